"""Problems of Balcer and Cheu (2020), solved privately: support identification, pointer chasing, pointer jumping."""

from shuffledp.lab.problems.identification import Method
from shuffledp.lab.problems.pointer_chasing import PointerChasing
from shuffledp.lab.problems.pointer_jumping import PointerJumping
from shuffledp.lab.problems.sample_size import (
    central_rate,
    direct_sample_size,
    exact_sample_size,
    local_rate,
    local_rate_scope,
    paper_sample_size,
    shuffled_rate,
)
from shuffledp.lab.problems.search import MeasuredSampleSize, measure_sample_size, measure_success
from shuffledp.lab.problems.solver import Solution, solve
from shuffledp.lab.problems.support_identification import SupportIdentification

__all__ = [
    "MeasuredSampleSize",
    "Method",
    "PointerChasing",
    "PointerJumping",
    "Solution",
    "SupportIdentification",
    "central_rate",
    "direct_sample_size",
    "exact_sample_size",
    "local_rate",
    "local_rate_scope",
    "measure_sample_size",
    "measure_success",
    "paper_sample_size",
    "shuffled_rate",
    "solve",
]
