import numpy as np
from numpy.typing import NDArray

def draw(
    words: NDArray[np.uint64],
    thresholds: NDArray[np.uint64],
    upper: NDArray[np.uint32],
    guide: NDArray[np.uint32],
    unsure: NDArray[np.uint64],
    first: int,
    add: bool,
    out: NDArray[np.int64],
) -> int: ...
def draw_halves(
    words: NDArray[np.uint32],
    upper: NDArray[np.uint32],
    guide: NDArray[np.uint32],
    unsure: NDArray[np.uint32],
    first: int,
    add: bool,
    out: NDArray[np.int64],
) -> int: ...
