"""A source of randomness whose words a test chooses."""

import numpy as np
import pytest


class _Words:
    """A source that hands out given 64-bit words."""

    secure = False

    def __init__(self, *words: int):
        self.words = list(words)

    def fill(self, out):
        out[:] = np.frombuffer(
            b"".join(self.words.pop(0).to_bytes(8, "little") for _ in range(len(out) // 8)), np.uint8
        )


@pytest.fixture(scope="session")
def words_source():
    """From 64-bit words to a source that hands them out one after the other."""
    return _Words
