"""Two organisations count together on Spark: each randomizes in its cluster, a shuffler mixes, an analyzer counts."""

from pathlib import Path
from tempfile import TemporaryDirectory

import shuffledp as sdp

MODES = ["bus", "bike", "car"]


def main() -> None:
    """Run all parties on this machine; in reality each has its own cluster, and only directories of messages move."""
    spark = sdp.spark.start_session()
    # all parties agree on one protocol, for the users of both organisations; up to half of them may leave out noise
    target = sdp.Target(users=5_000, epsilon=1.0, delta=1e-6, honest_fraction=0.5)
    protocol = sdp.protocols.UniformBlanketHistogram.calibrate(target=target, categories=MODES)

    with TemporaryDirectory() as name:
        shared = Path(name)
        silos = []
        for organisation, sizes in {"north": (2_000, 500, 500), "south": (500, 500, 2_000)}.items():
            rows = [(mode,) for mode, users in zip(MODES, sizes, strict=True) for _ in range(users)]
            frame = spark.createDataFrame(rows, "mode string")
            silos.append(sdp.spark.randomize(frame, "mode", protocol, out=shared / organisation))
            print(f"{organisation}: {silos[-1].users:,} users, {silos[-1].records:,} messages")

        mixed = sdp.spark.mix(silos, out=shared / "mixed")
        print(f"shuffler: {mixed.records:,} messages of {mixed.users:,} users, silos of {mixed.silos}")

        estimate = protocol.estimate(sdp.spark.tally(mixed, protocol))
        print(estimate)


if __name__ == "__main__":
    main()
