"""Plan the same histogram for every trust, and list the plans that no other beats in error and bytes."""

import shuffledp as sdp

question = sdp.Histogram(users=100_000, domain_size=50)
plans = sdp.plan(question, epsilon=1.0, delta=1e-8)

print("Plans that nothing beats in both bytes and error, cheapest first:")
for plan in plans.frontier:
    cost = plan.cost
    print(
        f"  {plan.protocol.name:18}{cost.bytes_per_user:>7.2f} bytes in {cost.messages_per_user:.2f} messages,"
        f" off by {plan.expected.rmse:.1f} users"
    )

print("\nThe best of each model:")
print(f"  shuffled: {plans.best.name}, off by {plans.plans[0].expected.rmse:.1f} users")
for model in ("central", "local"):
    best = next(plan for plan in plans.plans if plan.protocol.trust == model)
    print(f"  {model}: {best.protocol.name}, off by {best.expected.rmse:.1f} users")

print("\nIf an epsilon of at most 8 must remain when shuffler and analyzer collude (max_local_epsilon=8):")
shuffled = [plan for plan in plans.plans if not plan.reference]
careful = next(plan for plan in shuffled if plan.protocol.guarantee.local_epsilon <= 8)
print(f"  {careful.protocol.name}: {careful.why}")
print(f"  {careful.protocol.guarantee.sentence()}")
