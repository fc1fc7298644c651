"""What devices and servers both need: an HTTP connection and careful file access."""
