"""The services of Hotline; one folder per process, and `runtime`, which all of them are made of."""
