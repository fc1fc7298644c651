from typing import Any

import numpy as np
from numpy.typing import NDArray

def slice_bits(
    words: NDArray[np.uint64],
    digits: NDArray[np.uint8],
    ends: bool,
    bitmap: NDArray[np.uint8],
    ties: NDArray[np.int64],
) -> tuple[int, int]: ...
def spread_bits(bitmap: NDArray[np.uint8], flags: NDArray[np.uint8]) -> None: ...
def list_bits(bitmap: NDArray[np.uint8], base: int, out: NDArray[Any]) -> int: ...
def scatter_places(
    counts: NDArray[np.int64], bits: int, base: int, words: NDArray[np.uint64], out: NDArray[Any]
) -> tuple[int, int]: ...
def scatter_bits(counts: NDArray[np.int64], bits: int, words: NDArray[np.uint64], bitmap: NDArray[np.uint8]) -> int: ...
