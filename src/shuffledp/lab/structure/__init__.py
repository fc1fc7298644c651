"""Structural results on the shuffled model, checked exactly on finite channels.

``Channel`` is a randomizer with rational probabilities. ``RandomizerCurve`` is its exact privacy, ``ShuffledCurve``
that of the shuffled protocol. They check the results of section 4 of Balcer and Cheu (2020):

- Claim 18, ``claim_18_witness``: with one message per user and pure privacy, shuffling does not reduce epsilon;
- Theorem 17, ``to_local``: such a protocol is equivalent to a local protocol;
- Claim 19, ``r_infinity``, and Claim 20, ``r_gap``: with several messages per user both statements are false.
"""

from shuffledp.lab.structure.channels import Channel
from shuffledp.lab.structure.counterexamples import extreme_ratio, r_gap, r_infinity
from shuffledp.lab.structure.curves import PureRatios, RandomizerCurve, ShuffledCurve, Witness, pure_ratios
from shuffledp.lab.structure.local_simulation import LocalProtocol, ShuffledProtocol, to_local
from shuffledp.lab.structure.single_message import (
    LocalAgainstShuffled,
    RepeatedMessages,
    claim_18_witness,
    compare_theorem_6_2,
    pure_epsilons_agree,
    theorem_6_2_epsilon,
)

__all__ = [
    "Channel",
    "LocalAgainstShuffled",
    "LocalProtocol",
    "PureRatios",
    "RandomizerCurve",
    "RepeatedMessages",
    "ShuffledCurve",
    "ShuffledProtocol",
    "Witness",
    "claim_18_witness",
    "compare_theorem_6_2",
    "extreme_ratio",
    "pure_epsilons_agree",
    "pure_ratios",
    "r_gap",
    "r_infinity",
    "theorem_6_2_epsilon",
    "to_local",
]
