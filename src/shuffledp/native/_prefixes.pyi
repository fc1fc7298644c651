import numpy as np
from numpy.typing import NDArray

def extend(
    parents: NDArray[np.uint64],
    scores: NDArray[np.int16],
    start: int,
    bits: int,
    key: int,
    gains: NDArray[np.int8],
    ceiling: int,
    kept: NDArray[np.uint64],
    kept_scores: NDArray[np.int16],
) -> tuple[int, int]: ...
