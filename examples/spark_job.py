"""A job for spark-submit: private answers about a Parquet table, one line per answer.

    spark-submit examples/spark_job.py s3a://bucket/trips/*.parquet

Without a path it makes a small table of its own. It needs the extra spark and Java 17 or newer.
"""

import sys

import shuffledp as sdp


def main() -> None:
    """Two answers under one budget, and one by group."""
    spark = sdp.spark.start_session()
    trips = spark.read.parquet(*sys.argv[1:]) if sys.argv[1:] else invented_trips(spark)

    session = sdp.Session.of(trips, columns=["mode", "minutes"], user="person", releases=2, epsilon=1.0, delta=1e-8)
    modes = session.histogram("mode", categories=["bus", "bike", "car"])
    for mode, users, (low, high) in zip(modes.categories, modes.counts, modes.interval(0.95), strict=True):
        print(f"{mode}: {users:,.0f} of {session.users:,} people ({low:,.0f} to {high:,.0f})")
    minutes = session.mean("minutes", lower=0, upper=120)
    print(f"mean travel time: {minutes.value:.1f} minutes")

    regions = sdp.mean(
        sdp.spark.table(trips)["minutes"],
        lower=0,
        upper=120,
        user="person",
        group_by="region",
        epsilon=1.0,
        delta=1e-8,
    )
    for region, estimate in regions.released.items():
        print(f"{region}: {estimate.value:.1f} minutes, {estimate.users:,} people")


def invented_trips(spark):
    """Trips of 20,000 people."""
    return spark.range(60_000).selectExpr(
        "id % 20000 as person",
        "element_at(array('bus', 'bike', 'car'), cast(id % 3 + 1 as int)) as mode",
        "cast(id % 90 as double) as minutes",
        "element_at(array('north', 'south'), cast(id % 2 + 1 as int)) as region",
    )


if __name__ == "__main__":
    main()
