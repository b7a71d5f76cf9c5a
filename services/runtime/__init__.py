"""What every service process is made of: errors, interceptors, lifecycle, channels, settings, logs."""
