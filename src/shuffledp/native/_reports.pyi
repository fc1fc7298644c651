from typing import Any

import numpy as np
from numpy.typing import NDArray

def write_reports(
    absent: NDArray[np.int64],
    row: NDArray[Any],
    owned: NDArray[np.int64],
    dummy: int,
    out: NDArray[Any],
    ends: NDArray[np.int64],
) -> int: ...
