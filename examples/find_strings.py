"""Find strings that nobody listed, then count them precisely in a second round, under one budget.

The list that the first round releases is public, so the second round uses it as the categories of a histogram, whose
error is much smaller. The session is adaptive: how many categories there are depends on the first result, so the pairs
(epsilon, delta) of both rounds are added up.
"""

import shuffledp as sdp

words = ["shuffle"] * 9_000 + ["noise"] * 5_000 + ["blanket"] * 3_000 + ["tree"] * 400 + ["user", "level"] * 1_300

session = sdp.Session(users=len(words), epsilon=1.0, delta=1e-6, adaptive=True)
found = session.strings(words, alphabet="a-z", max_length=7, share=0.5, label="which words")
print(found.found_sentence())

categories = [*found.strings, "(other)"]
precise = session.histogram(words, categories=categories, other="(other)", share=0.5, label="how often")
for text, first, second in zip(found.strings, found.shown(), precise.shown(), strict=False):
    print(f"{text:<8} first {first.text:>6} +- {first.error:<4} then {second.text:>6} +- {second.error}")

print(f"Both rounds together: epsilon = {session.spent.epsilon:.3g} at delta = {session.spent.delta:.3g}.")
