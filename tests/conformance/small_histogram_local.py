"""Local histograms of few users and values, for the conformance kit."""

from shuffledp.protocols.histogram.bassily_smith import BassilySmith
from shuffledp.protocols.histogram.hadamard_response import HadamardResponse
from shuffledp.protocols.histogram.k_rr import KRandomizedResponse
from shuffledp.protocols.histogram.local_hashing import LocalHashing
from shuffledp.protocols.histogram.unary import UnaryEncoding
from shuffledp.protocols.parts.hashing import AffineHashes
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic


def instances() -> dict[str, object]:
    """Every outcome occurs, and values differ enough for a fault of a few per cent to show."""
    three, two = Target(3, 2.0, 0.0), Target(2, 2.0, 0.0)
    blanket = Dyadic(1, 2)
    return {
        "histogram/k-rr": KRandomizedResponse(three, Dyadic(1, 1), 3),
        "histogram/unary": UnaryEncoding(three, Dyadic(1, 1), Dyadic(1, 3), 2),
        "histogram/unary of three": UnaryEncoding(two, Dyadic(1, 1), Dyadic(1, 3), 3),
        "histogram/unary symmetric": UnaryEncoding.calibrate(
            users=3, epsilon=2, delta=1e-6, domain_size=2, variant="symmetric"
        ),
        "histogram/local-hashing": LocalHashing(two, blanket, AffineHashes(3, 2), 2),
        "histogram/local-hashing of three": LocalHashing(two, blanket, AffineHashes(3, 2), 3),
        "histogram/hadamard-response": HadamardResponse(three, blanket, 1, 3),
        "histogram/hadamard-response of two blocks": HadamardResponse(Target(3, 2.6, 0.0), blanket, 2, 2),
        "histogram/hadamard-response of uneven blocks": HadamardResponse(Target(2, 2.6, 0.0), blanket, 2, 4),
        "histogram/bassily-smith": BassilySmith(three, blanket, 2),
        "histogram/bassily-smith of three": BassilySmith(two, blanket, 3),
    }
