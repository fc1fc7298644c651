"""What devices and servers both need: an HTTP connection."""
