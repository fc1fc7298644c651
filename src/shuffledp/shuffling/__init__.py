"""Uniformly random permutation of opaque items, in memory or through a scratch file."""

from shuffledp.shuffling.permutation import permute

__all__ = ["permute"]
