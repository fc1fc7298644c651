"""The HTTP client that devices, servers and operators share."""
