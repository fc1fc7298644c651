"""Engines: reading columns of files or of memory as counts, positions or values; local is this process."""
