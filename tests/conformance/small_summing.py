"""Small sums for the conformance kit: few users, few levels and so much noise that every outcome occurs."""

from shuffledp.domain import Interval
from shuffledp.privacy.discrete_laplace import least_ratio
from shuffledp.protocols.summing.cheu import CheuSum
from shuffledp.protocols.summing.discrete_laplace import DiscreteLaplaceSum
from shuffledp.protocols.summing.duchi import DuchiSum
from shuffledp.protocols.summing.laplace import LaplaceSum
from shuffledp.protocols.summing.local_laplace import LocalLaplaceSum
from shuffledp.protocols.summing.piecewise import PiecewiseSum
from shuffledp.protocols.terms import Terms
from shuffledp.randomness import Dyadic

REALS = Interval(-1.0, 3.0)
BITS = Interval(2, 3, whole=True)
THREE = Interval(0, 2, whole=True)


def instances() -> dict[str, object]:
    """By question and name."""
    return {
        "sum/duchi": DuchiSum.calibrate(users=3, epsilon=1.0, delta=1e-6, domain=REALS),
        "sum/discrete-laplace": DiscreteLaplaceSum.calibrate(
            users=3, epsilon=2.0, delta=1e-6, domain=REALS, levels=2
        ),
        "sum/discrete-laplace whole": DiscreteLaplaceSum.calibrate(users=3, epsilon=1.0, delta=1e-6, domain=THREE),
        "sum/laplace": LaplaceSum.calibrate(users=3, epsilon=1.0, delta=1e-6, domain=REALS, levels=2),
        "sum/piecewise": PiecewiseSum.calibrate(users=3, epsilon=2.0, delta=1e-6, domain=REALS, answers=6),
        "sum/piecewise of wide steps": PiecewiseSum(
            Terms(2, 2.0, 0.0), levels=2, step=2, window=3, outside=Dyadic(1, 2), domain=REALS
        ),
        "sum/local-laplace": LocalLaplaceSum(
            Terms(2, 4.0, 0.0), levels=2, ratio=least_ratio(4.0, 2), margin=12, domain=REALS
        ),
        "sum/cheu": CheuSum(Terms(3, 1.0, 0.9), bits=4, flip=Dyadic(3, 4), domain=REALS),
        "sum/cheu of one bit": CheuSum(Terms(3, 1.0, 0.9), bits=1, flip=Dyadic(3, 4), domain=BITS),
    }
