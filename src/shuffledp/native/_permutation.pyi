import numpy as np
from numpy.typing import NDArray

def scatter(
    items: NDArray[np.uint8],
    size: int,
    heads: NDArray[np.int64],
    ends: NDArray[np.int64],
    labels: NDArray[np.uint8],
) -> int: ...
def settle(
    items: NDArray[np.uint8],
    size: int,
    begins: NDArray[np.int64],
    heads: NDArray[np.int64],
    labels: NDArray[np.uint8],
    bounds: NDArray[np.int64],
) -> None: ...
def fisher_yates(
    items: NDArray[np.uint8], size: int, index: int, words: NDArray[np.uint32], used: int
) -> tuple[int, int]: ...
