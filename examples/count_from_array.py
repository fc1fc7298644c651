"""A private count from an array of yes/no values in memory."""

import numpy as np

import shuffledp as sdp

# 50,000 users, of whom 400 hold a 1. In a study, a seed for the data is fine; the noise never takes one.
holds_it = np.random.default_rng(1).permutation(50_000) < 400

protocol = sdp.BalcerCheuCount.calibrate(users=len(holds_it), epsilon=1.0, delta=1e-8)
predicted = protocol.expected_error(counts=np.array([400])).rmse
print(f"Each user sends {protocol.cost.messages_per_user:g} messages of {protocol.cost.bits_per_message} bit.")
print(f"Predicted error: {predicted:.1f} users")

estimate = protocol.run(holds_it)
low, high = estimate.interval(0.95)
print(f"Estimate: {estimate.value:.1f} users, between {low:.0f} and {high:.0f} with 95% confidence (truth: 400)")

nobody = protocol.run(np.zeros(50_000, dtype=np.bool_))
print(f"If nobody holds it, the estimate is exactly {nobody.value}. That is also what a small count may read:")
print(nobody.withheld_sentence(0.95))
print(estimate.guarantee_sentence())
