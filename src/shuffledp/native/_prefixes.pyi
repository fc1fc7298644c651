import numpy as np
from numpy.typing import NDArray

def extend(
    parents: NDArray[np.uint64],
    scores: NDArray[np.int16],
    start: int,
    bits: int,
    key: int,
    symbols: NDArray[np.uint8] | NDArray[np.uint16],
    gains: NDArray[np.int16],
    ceiling: int,
    kept: NDArray[np.uint64],
    kept_scores: NDArray[np.int16],
    portable: bool = False,
) -> tuple[int, int]: ...
