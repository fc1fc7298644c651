"""Named columns of equal length as a pandas data frame or an Arrow table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shuffledp.extras import extra

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def data_frame(columns: Mapping[str, Any]) -> pd.DataFrame:
    """The columns as a pandas data frame; needs the extra ``pandas``."""
    with extra("pandas", "to_frame()"):
        import pandas as pd
    return pd.DataFrame(dict(columns))


def arrow_table(columns: Mapping[str, Any]) -> pa.Table:
    """The columns as an Arrow table; needs the extra ``files``."""
    with extra("files", "to_table()"):
        import pyarrow as pa
    return pa.table(dict(columns))
