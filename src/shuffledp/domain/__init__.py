"""The public set of possible values, and the only rules by which a value becomes an index.

Every domain has ``parse`` for a string as people write it, ``encode`` for one value and ``encode_all`` for many.
The rules:

- A value is a string, a number or a boolean. Numbers and booleans are compared as strings (see ``text_values``); spaces
  around a string are ignored. A missing value is not in any domain.
- A string is the category of the same name, or else the only category with the same canonical form: "1.0" is "1",
  "TRUE" is "true". So an integer is an index only if the categories are numbered.
- A date is written as 2024-05-31, also with a time: 2024-05-31 18:30 or 2024-05-31T18:30:00+02:00. It is taken as it is
  written, in its own time zone.
"""

from shuffledp.domain.bins import DEFAULT_BINS, MAX_BINS, BinnedNumbers, Bins, Edges
from shuffledp.domain.bit import BIT, Bit, EqualTo
from shuffledp.domain.categories import Categories, Numbered
from shuffledp.domain.domain import DiscreteDomain, Domain
from shuffledp.domain.encoded import check_counts, check_index, check_indices, check_positions
from shuffledp.domain.interval import Interval
from shuffledp.domain.periods import Periods
from shuffledp.domain.strings import Strings

__all__ = [
    "BIT",
    "DEFAULT_BINS",
    "MAX_BINS",
    "BinnedNumbers",
    "Bins",
    "Bit",
    "Categories",
    "DiscreteDomain",
    "Domain",
    "Edges",
    "EqualTo",
    "Interval",
    "Numbered",
    "Periods",
    "Strings",
    "check_counts",
    "check_index",
    "check_indices",
    "check_positions",
]
