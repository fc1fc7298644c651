"""A private histogram of one column of a CSV file, with a figure, compared with the true counts."""

from pathlib import Path
from tempfile import TemporaryDirectory

from pyarrow import csv

import shuffledp as sdp
from shuffledp.datasets import COMMUTE_MODES, commute_path

values = csv.read_csv(commute_path())["mode"].to_pylist()

# The categories come from the questionnaire, not from the answers.
question = sdp.Histogram(categories=COMMUTE_MODES, users=len(values))
plans = sdp.plan(question, epsilon=1.0, delta=1e-8)
print(f"{plans.best.name}: {plans.plans[0].why}")

estimate = plans.best.run(values)
print(f"\n{'mode':<18}{'estimate':>9}{'interval':>18}{'truth':>8}")
for name, number in zip(estimate.categories, estimate.shown(0.95), strict=True):  # clipped to the intervals
    print(f"{name:<18}{number.text:>9}{number.interval:>18}{values.count(name):>8,}")

with TemporaryDirectory() as directory:
    figure = Path(directory) / "commute.svg"
    estimate.plot(figure, title="How people got to work")
    print(f"\nThe figure has {figure.stat().st_size:,} bytes.")
print(estimate.guarantee_sentence())
