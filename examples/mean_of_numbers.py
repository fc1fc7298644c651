"""A private mean of numbers between two public bounds, for every trust, compared with the true mean."""

import numpy as np
from pyarrow import csv

import shuffledp as sdp
from shuffledp.datasets import commute_path

# Nobody is counted with more than two hours. The bound is public: it must not come from the data.
bounds = sdp.Interval(0, 120)
minutes = np.clip(csv.read_csv(commute_path())["minutes"].to_numpy(), bounds.lower, bounds.upper)

print(f"{len(minutes):,} users, true mean {minutes.mean():.3f} minutes\n")
print(f"{'protocol':<18}{'trust':<10}{'mean':>8}{'interval':>20}{'bytes':>8}")
for name in ("discrete-laplace", "split-and-mix", "privacy-blanket", "piecewise"):
    protocol = sdp.find("sum", name).calibrate(users=len(minutes), domain=bounds, epsilon=1.0, delta=1e-8)
    mean = protocol.run(minutes).mean
    low, high = mean.interval(0.95)
    print(
        f"{name:<18}{protocol.trust:<10}{mean.value:>8.3f}{f'{low:.3f} to {high:.3f}':>20}"
        f"{protocol.cost.bytes_per_user:>8.2f}"
    )
    if name == "split-and-mix":
        shuffled = mean
print(f"\n{shuffled.guarantee_sentence()}")
