"""Several private answers about the same people under one budget: shares, a refusal, and a session that continues."""

from pathlib import Path
from tempfile import TemporaryDirectory

from pyarrow import csv

import shuffledp as sdp
from shuffledp.datasets import COMMUTE_MODES, commute_path

commute = csv.read_csv(commute_path())
USERS = commute.num_rows

with TemporaryDirectory() as directory:
    record = Path(directory) / "session.json"

    # The shares are fixed before any answer is seen. Each release is on record before its noise is drawn.
    session = sdp.Session(users=USERS, epsilon=1.0, delta=1e-7, path=record)
    modes = session.histogram(commute["mode"], categories=COMMUTE_MODES, share=0.6, label="modes of travel")
    truth = commute["mode"].to_pylist()
    for name, number in zip(modes.categories[:3], modes.shown(0.95), strict=False):
        print(f"{name:<10}{number.text:>7} users, {number.interval} with 95% confidence (truth: {truth.count(name):,})")
    print(session)

    # A later process continues with what is left.
    session = sdp.Session.load(record)
    try:
        session.count(commute["owns_car"], share=0.6)
    except sdp.BudgetError as error:
        print(f"\nRefused, and nothing was spent: {error}")
    mean = session.mean(commute["minutes"], lower=0, upper=120, clip=True, share=0.4, label="minutes to work")
    low, high = mean.interval(0.95)
    print(f"Mean time to work: {mean.value:.2f} minutes, between {low:.2f} and {high:.2f} with 95% confidence")

    session.page(Path(directory) / "minutes.html", title="Minutes to work")
    print(f"Spent: epsilon = {session.spent.epsilon:.4f} of {session.epsilon:g}\n")
    print(session.report())
