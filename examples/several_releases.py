"""Compose the guarantees of twelve monthly releases about the same people, and plan for their total."""

import shuffledp as sdp
from shuffledp.privacy.composition import compose

USERS, MONTHS, EPSILON, DELTA = 25_000, 12, 1.0, 1e-8
TARGET = {"users": USERS, "domain_size": 12, "delta": DELTA}

monthly = sdp.BalcerCheuHistogram.calibrate(epsilon=EPSILON, **TARGET)
print(f"One release: epsilon = {EPSILON}, noise {monthly.expected_error().rmse:.1f} users a category.")
for releases in (2, 4, MONTHS):
    total = monthly.guarantee.after(releases).epsilon
    print(f"{releases:>3} releases: epsilon = {total:.3f} (adding epsilons would say {releases * EPSILON:g})")

# The other way round: which epsilon may each month have, so that the year stays within EPSILON?
low, high = 0.2, 0.4
while high - low > 0.005:
    middle = (low + high) / 2
    each_month = sdp.BalcerCheuHistogram.calibrate(epsilon=middle, **TARGET)
    year = compose(each_month.guarantee.curve, MONTHS)
    low, high = (middle, high) if year.delta_at(EPSILON) <= DELTA else (low, middle)
careful = sdp.BalcerCheuHistogram.calibrate(epsilon=low, **TARGET)
print(f"\nFor a whole year within epsilon = {EPSILON}: give each month epsilon = {low:.3f}.")
print(f"The noise is then {careful.expected_error().rmse:.1f} users a category.")
print(careful.guarantee.after(MONTHS).sentence())
