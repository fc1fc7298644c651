"""What a device recomputes, by the formulas of docs/collection/randomizers.md: in doubles, without the library."""

import math
from fractions import Fraction

import numpy as np
from scipy.stats import binom


def one(p, q, e):
    return float(np.maximum(p - e * q, 0).sum())


def two(p, q, e):
    return float(np.maximum(np.outer(p, q) - e * np.outer(q, p), 0).sum())


def rows(p, q, copies, e):
    """As many independent copies of the pair that ``two`` compares."""
    ours, theirs = np.ones(1), np.ones(1)
    for _ in range(copies):
        ours, theirs = (
            np.outer(np.outer(ours, first).ravel(), second).ravel()
            for ours, first, second in ((ours, p, q), (theirs, q, p))
        )
    return one(ours, theirs, e)


def masses(n, a, start=0):
    """Bin(n, a) from ``start`` to n + 1."""
    return binom.pmf(np.arange(start, n + 2), n, float(a))


def shifted(n, a):
    return np.append(0, masses(n, a)[:-1]), masses(n, a)


def fake_rows(p, h, e):
    flip = float(p["flip"])
    before, here = shifted(h * p["fake_rows"], flip)
    return two((1 - flip) * before + flip * here, flip * before + (1 - flip) * here, e)


def clones(blanket, h, n):
    """The distribution of the number of uniform messages that hit either of two cells."""
    whole = masses(h * blanket["whole"], min(Fraction(2, n), 1))
    return np.convolve(whole, masses(h, min(2 * blanket["rest"] / n, 1)))


def blanket_messages(p, h, e, n):
    number = clones(p["blanket"], h, n)
    total = 0.0
    for t, mass in enumerate(number):
        ways = [math.comb(t, i) for i in range(t + 1)]
        total += mass / 2**t * sum(max(0, a - e * b) for a, b in zip([0, *ways], [*ways, 0], strict=True))
    return total


def hashed_messages(p, h, e):
    """Messages that agree with one of two values, or with both, which collide with probability c."""
    b, prime = p["buckets"], max(p["domain_size"], p["buckets"], 3)
    while any(prime % divisor == 0 for divisor in range(2, math.isqrt(prime) + 1)):
        prime += 1
    c = float(Fraction(prime // b * (prime % b + prime - b), prime * (prime - 1)))
    number = np.convolve(
        masses(h * p["blanket"]["whole"], (2 - c) / b), masses(h, (2 - c) / b * float(p["blanket"]["rest"]))
    )
    total = 0.0
    for t, mass in enumerate(number):
        for j, share in enumerate(binom.pmf(np.arange(t + 2), t + 1, c / (2 - c))):
            i = np.arange(t + 2 - j)
            gain = np.maximum(0, i + j - e * (t + 1 - i))
            total += mass * (2 - c) / (t + 1) * share * float(binom.pmf(i, t + 1 - j, 0.5) @ gain)
    return total


def tree_of_blankets(p, h, e):
    """The levels composed: the ratio of all levels is the product of t + 1 - i to i, one factor per level."""
    ratios, bins = {Fraction(1): 1.0}, p["domain"]["bins"]
    for level, blanket in enumerate(p["blankets"]):
        number = clones(blanket, h, -(-bins // math.prod(p["branching"][level + 1 :])))
        seen = {}
        for t, mass in enumerate(number):
            for i in range(1, t + 2):  # of the own cell are i; where it is hit by nobody else, nothing hides
                ratio = Fraction(t + 1 - i, i)
                seen[ratio] = seen.get(ratio, 0.0) + mass * math.comb(t, i - 1) / 2**t
        joint = {}
        for one_, p_ in ratios.items():
            for other, q_ in seen.items():
                joint[one_ * other] = joint.get(one_ * other, 0.0) + p_ * q_
        ratios = joint
    return sum(mass * max(0.0, 1 - e * float(ratio)) for ratio, mass in ratios.items())


def privacy_blanket(b, n, h, e):
    own, rest, none = float(b / n), float(b * (n - 2) / n), float(1 - b)
    factorial = np.cumsum(np.log(np.arange(1, h + 1)), dtype=float)
    factorial = np.append(0.0, factorial)  # logarithms
    total = 0.0
    for first in range(h + 1):
        for second in range(h + 1 - first):
            c = np.arange(h + 1 - first - second) if rest else np.zeros(1, dtype=int)
            left = h - first - second - c
            logs = factorial[h] - factorial[first] - factorial[second] - factorial[c] - factorial[left]
            logs += (first + second) * math.log(own) + c * math.log(rest or 1.0) + left * math.log(none)
            gain = float(n * (1 - b) / b) * (first - e * second) - (e - 1) * (first + second + c)
            total += float(np.exp(logs) @ np.maximum(gain, 0.0))
    return total / h


def flipped(ones, zeros, flip):
    return np.convolve(
        binom.pmf(np.arange(ones + 1), ones, 1 - flip), binom.pmf(np.arange(zeros + 1), zeros, flip)
    )  # fmt: skip


def flipped_sum(flip, h, m, e):
    n = (h - 1) * m
    pairs = [(flipped(k + m, n - k, float(flip)), flipped(k, n - k + m, float(flip))) for k in range(n + 1)]
    return max(one(p, q, e) for p, q in pairs)


def flipped_histogram(flip, h, e):
    pairs = [(flipped(k + 1, h - 1 - k, float(flip)), flipped(k, h - k, float(flip))) for k in range(h)]
    return max(
        float(np.maximum(np.outer(pairs[k][0], pairs[l][1]) - e * np.outer(pairs[k][1], pairs[l][0]), 0).sum())
        for k in range(h)
        for l in range(h - k)  # noqa: E741
    )


def negative_binomial(shape, ratio, length):
    """Pr[K = k] for k below the length."""
    k = np.arange(1, length)
    logs = np.cumsum(np.log(ratio * (k - 1 + shape) / k))
    return np.exp(np.append(0.0, logs) + shape * math.log1p(-ratio))


def correlated_noise(p, e):
    """Of a count, a histogram, or a tree of at most two levels."""
    a = float(p["ratio"])
    w = (
        clusters(p, 4000)
        if "clusters" in p
        else negative_binomial(float(p["flood_shape"]), float(p["flood_ratio"]), 4000)
    )
    if p.get("singles"):
        return with_singles(a, w[:260], float(p["singles"]), e)
    for i in range(1, len(w)):
        w[i] += a * a * w[i - 1]
    before = np.append(0, w[:-1])
    if p.get("encoding") == "signed":
        first, second, tie = (1 - a) * w, (1 - a) * a * a * before, [a * (1 - a) / (1 + a)]
        return one(np.concatenate((first, second, tie)), np.concatenate((second, first, tie)), e)
    ours, theirs = np.append((1 - a) * a * before, 1 / (1 + a)), np.append((1 - a) * w, a / (1 + a))
    if len(p.get("branching", ())) == 2:
        return twice_two(ours, theirs, e)
    return max(one(ours, theirs, e), one(theirs, ours, e)) if "encoding" in p else two(ours, theirs, e)


def shortage(p, h):
    """The probability of fewer honest carriers than planned; 0 without carriers."""
    if "honest_carriers" not in p:
        return 0
    a = p["carrier_probability"]
    return float(sum(math.comb(h, i) * a**i * (1 - a) ** (h - i) for i in range(p["honest_carriers"])))


def clusters(p, length):
    """The number of pairs: n F(n) = sum of s rate(s) F(n - s)."""
    rates = {size: weight for first, last, weight in p["clusters"] for size in range(first, last + 1)}
    sizes = np.array(list(rates))
    steps = sizes * np.array(list(rates.values()), dtype=float) * float(p["cluster_rate"]) / sum(rates.values())
    masses = np.zeros(length)
    masses[0] = math.exp(-p["cluster_rate"])
    for n in range(1, length):
        masses[n] = steps[sizes <= n] @ masses[n - sizes[sizes <= n]] / n
    return masses


def with_singles(a, w, singles, e):
    """The table of both numbers of messages, up to 260 of each."""
    length = len(w)
    for i in range(1, length):
        w[i] += a * a * w[i - 1]
    u, v = np.indices((length, length))
    plain = (1 - a) ** 2 * a ** np.abs(u - v) * w[np.minimum(u, v)]
    table = np.zeros((length + 1, length))
    mass = math.exp(-singles)
    for j in range(length):
        table[j:-1] += mass * plain[: length - j]
        mass *= singles / (j + 1)
    ours = np.vstack((np.zeros((1, length)), table[:-1]))
    return sorted_two(ours.ravel(), table.ravel(), e)


def sorted_two(p, q, e):
    """D2 of many outcomes: sorted by ratio, all partners above a bound count."""
    likely = np.maximum(p, q) > 1e-14
    p, q = p[likely], q[likely]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(q > 0, p / q, np.inf)
    order = np.argsort(ratio)
    ratio, above, below = ratio[order], p[order], q[order]
    above, below = (np.append(np.cumsum(part[::-1])[::-1], 0.0) for part in (above, below))
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.where(q > 0, e * p / q, np.inf)
    first = np.searchsorted(ratio, bound, side="right")
    return float(np.maximum(q * above[first] - e * p * below[first], 0.0).sum())


def twice_two(p, q, e):
    """Two levels, each with a cell that gains and one that loses: sorted by ratio, all partners above a bound count."""
    likely = np.maximum(p, q) > 1e-15
    gains, losses = np.outer(p[likely], q[likely]).ravel(), np.outer(q[likely], p[likely]).ravel()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(losses > 0, gains / losses, np.inf)
    order = np.argsort(ratio)
    ratio, above, below = ratio[order], gains[order], losses[order]
    above, below = (np.append(np.cumsum(part[::-1])[::-1], 0.0) for part in (above, below))
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.where(gains > 0, e * losses / gains, np.inf)
    first = np.searchsorted(ratio, bound, side="right")
    return float(np.maximum(gains * above[first] - e * losses * below[first], 0.0).sum())


def split_and_mix(p, h, e):
    mixing = math.sqrt(p["modulus"] * (math.e / h) ** (p["messages"] - 2))
    ratio, levels = float(p["ratio"]), p["levels"]
    if math.log(e) >= levels * math.log(1 / ratio):
        return mixing
    i = np.arange(-20_000, 20_000)
    noise = (1 - ratio) / (1 + ratio) * ratio ** np.abs(i)
    return mixing + one(noise, (1 - ratio) / (1 + ratio) * ratio ** np.abs(i - levels), e)


def pure(e0, e):
    return 0.0 if math.log(e) >= e0 else (math.exp(e0) - e) / (math.exp(e0) + 1)


def pure_sum(p, e):
    m, mix = len(p["weights"]) - 1, float(p["mix"])
    zero, one_ = (
        [mix * w / 2**64 + (1 - mix) * (t == (m - 1) // 2 + x) for t, w in enumerate(p["weights"])] for x in (0, 1)
    )
    worst = 0.0
    for k in range(p["certified_users"]):
        others = np.ones(1)
        for user in range(p["certified_users"] - 1):
            others = np.convolve(others, one_ if user < k else zero)
        worst = max(worst, float(np.abs(np.log(np.convolve(others, one_) / np.convolve(others, zero))).max()))
    return pure(worst, e)


def local_epsilon(name, p):
    """None for nothing."""
    size = p.get("domain_size")
    response = lambda n: math.log(1 + n * (1 - p["blanket"]) / p["blanket"]) if n > 1 else 0.0  # noqa: E731
    bit = lambda: math.log((1 - p["flip"]) / p["flip"])  # noqa: E731
    if name in ("histogram/uniform-blanket", "histogram/hadamard-blanket"):
        return 0.0 if size == 1 else None
    formulas = {
        "count/cheu": bit,
        "count/pure-sum": lambda: math.log(
            1 + 2**64 * (1 - p["mix"]) / (p["mix"] * p["weights"][len(p["weights"]) // 2])
        ),
        "count/randomized-response": lambda: response(2),
        "histogram/cheu": lambda: 2 * bit(),
        "histogram/shuffled-k-rr": lambda: response(size),
        "histogram/solh": lambda: response(p["buckets"]),
        "histogram/fake-users": lambda: 2 * bit() if size > 1 else 0.0,
        "histogram/k-rr": lambda: response(size),
        "histogram/unary": lambda: math.log(
            p["own_one"] * (1 - p["other_one"]) / (p["other_one"] * (1 - p["own_one"]))
        ),
        "histogram/local-hashing": lambda: response(p["hashes"]["buckets"]),
        "histogram/hadamard-response": lambda: response(2 * p["blocks"]),
        "histogram/bassily-smith": lambda: response(2),
        "sum/cheu": lambda: p["bits"] * bit(),
        "sum/privacy-blanket": lambda: response(p["levels"] + 1),
        "sum/duchi": lambda: response(2),
        "sum/piecewise": lambda: math.log((1 - p["outside"]) * p["levels"] * p["step"] / (p["outside"] * p["window"])),
        "sum/local-laplace": lambda: p["levels"] * math.log(1 / p["ratio"]),
    }
    return formulas[name]() if name in formulas else None


LOCAL = {"count/randomized-response", "sum/duchi", "sum/piecewise", "sum/local-laplace"} | {
    f"histogram/{name}" for name in ("k-rr", "unary", "local-hashing", "hadamard-response", "bassily-smith")
}


AUGMENTED = {"count/shuffler-laplace", "histogram/shuffler-laplace", "histogram/shuffler-geometric"}


def dummies(name, p, e):
    """The shuffler's noise: lists of probabilities with and without one message of a category."""
    a = float(p["ratio"])
    if name == "histogram/shuffler-geometric":
        last = math.ceil(-60 / math.log(a)) + 2
        here, keep = [(1 - a) * a**i for i in range(last)] + [0.0], float(p["keep"])
        before = [(1 - keep) * here[i] + keep * (here[i - 1] if i else 0.0) for i in range(last + 1)]
        return two(before, here, e)
    last = 2 * p["shift"] if name == "count/shuffler-laplace" else p["shift"] + math.ceil(-60 / math.log(a)) + 2
    weights = [a ** abs(i - p["shift"]) for i in range(last + 1)]
    here = [weight / math.fsum(weights) for weight in weights] + [0.0]
    here = np.array(here)
    before = np.append(0.0, here[:-1])
    if name == "count/shuffler-laplace":
        return max(one(before, here, e), one(here, before, e))
    return two(before, here, e)


def delta(name, p, h, epsilon):
    """By the page, without a cap."""
    e, size = math.exp(epsilon), p.get("domain_size")
    if name in AUGMENTED:
        return dummies(name, p, e)
    if name in LOCAL:
        return pure(local_epsilon(name, p), e)
    if name == "count/balcer-cheu":
        before, here = shifted(h, p["noise"]["absence"])
        return max(one(before, here, e), one(here, before, e))
    if name == "histogram/balcer-cheu":
        return two(*shifted(h, p["noise"]["absence"]), e)
    if name == "histogram/count-min":
        return rows(*shifted(h, p["gamma"]), len(p["hashes"]), e)
    if name == "histogram/fake-users":
        return fake_rows(p, h, e) if size > 1 else 0.0
    if name == "strings/tree-blanket":
        return blanket_messages(p, h, e, p["buckets"]) if p["domain"]["max_length"] else 0.0
    if name == "histogram/hashed-blanket":
        return hashed_messages(p, h, e)
    if name in ("histogram/uniform-blanket", "histogram/hadamard-blanket"):
        return blanket_messages(p, h, e, 1 << p["hashes"] if "hashes" in p else size) if size > 1 else 0.0
    if name == "quantiles/uniform-blanket":
        return tree_of_blankets(p, h, e)
    if name in ("histogram/shuffled-k-rr", "histogram/solh", "sum/privacy-blanket"):
        n = p.get("buckets") or (p["levels"] + 1 if "levels" in p else size)
        if n == 2 and name != "histogram/solh":
            return flipped_sum(p["blanket"] / 2, h, 1, e)
        return privacy_blanket(p["blanket"], n, h, e) if n > 1 else 0.0
    if name in ("count/cheu", "sum/cheu"):
        return flipped_sum(p["flip"], h, p.get("bits", 1), e)
    if name == "histogram/cheu":
        return flipped_histogram(p["flip"], h, e)
    if name in ("count/correlated-noise", "histogram/correlated-noise", "quantiles/correlated-noise"):
        return correlated_noise(p, e) + shortage(p, h)
    if name == "count/pure-sum":
        return pure_sum(p, e)
    assert name == "sum/split-and-mix"
    return split_and_mix(p, h, e)


def chance_of_more(most, parts):
    """Pr[M > most], by the page's recursion; its sums over j are kept for the next m."""
    curve = [math.prod((1 - r) ** s for s, r, _ in parts)]
    sums = [[0.0] * w for _, _, w in parts]
    for m in range(1, 4 * most):
        total = 0.0
        for (s, r, w), kept in zip(parts, sums, strict=True):
            if m >= w:
                kept[m % w] = r * (curve[m - w] + kept[m % w])
                total += s * w * kept[m % w]
        curve.append(total / m)
    return sum(curve[most + 1 :])
