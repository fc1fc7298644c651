import numpy as np
from numpy.typing import NDArray

def draw_below(words: NDArray[np.uint64], bound: int, out: NDArray[np.uint64]) -> int: ...
