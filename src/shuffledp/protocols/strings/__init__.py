"""Protocols that find the frequent strings of an open domain, one file each, and the decoder of tree-blanket."""
