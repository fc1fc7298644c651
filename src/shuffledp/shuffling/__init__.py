"""The shuffler: a uniformly random permutation of things it neither reads nor interprets."""

from shuffledp.shuffling.permutation import permute

__all__ = ["permute"]
