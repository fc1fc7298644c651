from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.unsignedinteger[Any]]

def count_in_four(values: Values, limit: int, tables: NDArray[np.uint32]) -> bool: ...
def count_in_bytes(values: Values, limit: int, low: NDArray[np.uint8], high: NDArray[np.int64]) -> int: ...
