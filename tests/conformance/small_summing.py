"""Small sums for the conformance kit: few users, few levels and so much noise that every outcome occurs."""

from shuffledp.domain import Interval
from shuffledp.privacy.almost_central import AlmostCentralCurve
from shuffledp.privacy.discrete_laplace import DiscreteLaplaceCurve, least_ratio
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.sum.almost_central import AlmostCentralSum
from shuffledp.protocols.sum.cheu import CheuSum
from shuffledp.protocols.sum.discrete_laplace import DiscreteLaplaceSum
from shuffledp.protocols.sum.duchi import DuchiSum
from shuffledp.protocols.sum.laplace import LaplaceSum
from shuffledp.protocols.sum.local_laplace import LocalLaplaceSum
from shuffledp.protocols.sum.piecewise import PiecewiseSum
from shuffledp.protocols.sum.privacy_blanket import PrivacyBlanketSum
from shuffledp.protocols.sum.split_and_mix import SplitAndMixSum
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic
from shuffledp.testing.conformance import CHECKS

REALS = Interval(-1.0, 3.0)
BITS = Interval(2, 3, whole=True)
THREE = Interval(0, 2, whole=True)

ONLY = {
    "sum/split-and-mix": tuple(
        name for name in CHECKS if name not in ("the guarantee holds exactly", "the protocol survives its document")
    )
}
"""Checks to run where not all can be: mixing is proven for 19 users or more, too many to enumerate."""


class FewUsersSplitAndMix(SplitAndMixSum):
    """For fewer users than the theorem needs: it claims what holds for the sum alone, as if mixing were perfect."""

    @property
    def guarantee(self) -> Guarantee:
        curve = DiscreteLaplaceCurve(self.ratio, sensitivity=self.levels)
        return self.target.guarantee(curve, theorem="none: for tests of everything else")


def instances() -> dict[str, object]:
    """By question and name."""
    return {
        "sum/duchi": DuchiSum.calibrate(users=3, epsilon=1.0, delta=1e-6, domain=REALS),
        "sum/discrete-laplace": DiscreteLaplaceSum.calibrate(users=3, epsilon=2.0, delta=1e-6, domain=REALS, levels=2),
        "sum/discrete-laplace whole": DiscreteLaplaceSum.calibrate(users=3, epsilon=1.0, delta=1e-6, domain=THREE),
        "sum/laplace": LaplaceSum.calibrate(users=3, epsilon=1.0, delta=1e-6, domain=REALS, levels=2),
        "sum/piecewise": PiecewiseSum.calibrate(users=3, epsilon=2.0, delta=1e-6, domain=REALS, answers=6),
        "sum/piecewise of wide steps": PiecewiseSum(
            Target(2, 2.0, 0.0), levels=2, step=2, window=3, outside=Dyadic(1, 2), domain=REALS
        ),
        "sum/local-laplace": LocalLaplaceSum(
            Target(2, 4.0, 0.0), levels=2, ratio=least_ratio(4.0, 2), margin=12, domain=REALS
        ),
        "sum/cheu": CheuSum(Target(3, 1.0, 0.9), bits=4, flip=Dyadic(3, 4), domain=REALS),
        "sum/cheu of one bit": CheuSum(Target(3, 1.0, 0.9), bits=1, flip=Dyadic(3, 4), domain=BITS),
        "sum/privacy-blanket": PrivacyBlanketSum(Target(3, 1.0, 0.9), levels=2, blanket=Dyadic(1, 1), domain=REALS),
        "sum/split-and-mix": FewUsersSplitAndMix(
            Target(2, 4.0, 0.5), levels=1, ratio=Dyadic(1, 5), messages=3, modulus=8, domain=REALS
        ),
        "sum/almost-central": AlmostCentralSum(
            Target(2, 5.0, 0.995), AlmostCentralCurve(1, Dyadic(1, 4), 2, step=0.8, spare=5.0), domain=BITS
        ),
    }
