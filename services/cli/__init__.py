"""The `hotline` command and the local supervisor."""
