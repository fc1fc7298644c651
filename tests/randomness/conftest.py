"""Sources whose words or bytes a test chooses, and the compiled kernels and their twins in numpy in turn."""

import numpy as np
import pytest

from shuffledp.native import ACTIVE
from shuffledp.randomness import coins, inversion, samplers

CHOOSING = (coins, inversion, samplers)


class _Words:
    """A source that hands out given 64-bit words."""

    secure = False

    def __init__(self, *words: int):
        self.words = list(words)

    def fill(self, out):
        out[:] = np.frombuffer(
            b"".join(self.words.pop(0).to_bytes(8, "little") for _ in range(len(out) // 8)), np.uint8
        )


class _Bytes:
    """A source that hands out given bytes, then zeros."""

    secure = False

    def __init__(self, script: bytes):
        self.script = script

    def fill(self, out):
        head = self.script[: len(out)]
        out[: len(head)] = np.frombuffer(head, dtype=np.uint8)
        out[len(head) :] = 0
        self.script = self.script[len(out) :]


@pytest.fixture(scope="session")
def words_source():
    """From 64-bit words to a source that hands them out one after the other."""
    return _Words


@pytest.fixture(scope="session")
def bytes_source():
    """From bytes to a source that hands them out, and then zeros."""
    return _Bytes


@pytest.fixture(scope="module", params=["native", "numpy"])
def path(request):
    """Both ways to draw, one after the other."""
    if request.param == "native" and not ACTIVE:
        pytest.skip("the kernels are not built")
    with pytest.MonkeyPatch.context() as patch:
        for module in CHOOSING:
            patch.setattr(module, "ACTIVE", request.param == "native")
        yield request.param
