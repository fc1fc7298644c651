"""A client of another language, in Python: written from docs/collection/randomizers.md alone, without the library.

Every choice that it makes can be enumerated, so that the distribution of its reports is known fraction by fraction.
"""

import hashlib
import math
import re
from fractions import Fraction


class TooLongError(Exception):
    """A report has more messages than fit, and is drawn again."""


class Draws:
    """The words of the page, for one path through the tree of all choices."""

    def __init__(self, path, most):
        self.path, self.room, self.place, self.mass, self.choices = path, most, 0, Fraction(1), []
        self.exponent = Fraction(0)  # of e^-m, for all numbers without that factor

    def pick(self, masses):
        if self.place == len(self.path):
            self.path.append(0)
        possible = [k for k, mass in enumerate(masses) if mass]
        picked = possible[self.path[self.place]]
        self.choices.append(len(possible))
        self.place += 1
        self.mass *= masses[picked]
        return picked

    def below(self, n):
        return self.pick([Fraction(1, n)] * n)

    def coin(self, p):
        return self.pick([1 - p, p])

    def choose(self, weights):
        return self.pick([Fraction(weight, 1 << 64) for weight in weights])

    def shares(self, s, r, each=1):
        """All up to what fits into a report, if each is so many messages; further ones as one, which does not."""
        start = round((1 - r).numerator ** (1 / s.denominator)), round((1 - r).denominator ** (1 / s.denominator))
        masses = [Fraction(*start) ** s.numerator]
        assert masses[0] ** s.denominator == (1 - r) ** s.numerator
        for k in range(self.room // each):
            masses.append(masses[-1] * (s + k) / (k + 1) * r)
        drawn = self.pick([*masses, 1 - sum(masses)])
        self.room -= drawn * each
        if self.room < 0:
            raise TooLongError
        return drawn

    def poisson(self, m, each):
        """As many as fit, if each is so many messages, without the factor e^-m; larger numbers are left out."""
        self.exponent += m
        drawn = self.pick([m**k / math.factorial(k) for k in range(self.room // each + 1)])
        self.room -= drawn * each
        return drawn

    def geometric_modulo(self, r, n):
        return self.pick([(1 - r) * r**k / (1 - r**n) for k in range(n)])

    def difference(self, r, low, high):
        """Of two geometric numbers, everything outside of low .. high at its ends."""
        masses = {x: (1 - r) / (1 + r) * r ** abs(x) for x in range(low, high + 1)}
        masses[low] = r**-low / (1 + r) if low < high else Fraction(1)
        masses[high] = r**high / (1 + r) if low < high else Fraction(1)
        if low == 0 < high:
            masses[low] = 1 - sum(mass for x, mass in masses.items() if x != low)
        if low < 0 == high:
            masses[high] = 1 - sum(mass for x, mass in masses.items() if x != high)
        return low + self.pick(list(masses.values()))

    def response(self, x, n, b):
        return self.below(n) if self.coin(b) else x

    def level(self, x, n, domain):
        place = min(max((float(x) - domain["lower"]) / (domain["upper"] - domain["lower"]), 0.0), 1.0)
        scaled = place * n
        if domain["whole"] and n % (domain["upper"] - domain["lower"]) == 0:
            scaled = float(round(scaled))
        return math.floor(scaled) + self.coin(Fraction(scaled) - math.floor(scaled))


def read(value):
    """Parameters as numbers."""
    if isinstance(value, dict) and set(value) == {"numerator", "bits"}:
        return Fraction(read(value["numerator"]), 1 << value["bits"])
    if isinstance(value, dict):
        return {key: read(part) for key, part in value.items()}
    if isinstance(value, list):
        return [part if isinstance(part, str) and not part.startswith("0x") else read(part) for part in value]
    if isinstance(value, str) and value.startswith("0x"):
        return int(value, 16)
    if isinstance(value, str) and re.fullmatch("-?[0-9]+/[0-9]+", value):
        return Fraction(value)
    return float(value) if isinstance(value, str) and re.match("-?[0-9]", value) else value


def honest(p, document):
    terms = document.get("terms") or document["noise"]
    return math.floor(Fraction(terms["honest_fraction"]) * (p.get("terms") or p["noise"])["users"])


def sharers(p, document):
    """Among how many the noise is divided: honest users, or honest carriers."""
    return p.get("honest_carriers") or honest(p, document)


def odd(a, b):
    return (a & b).bit_count() % 2


def even_out(vector, row):
    """The vector, or with the lowest bit of the row flipped, so that both have an even number of ones in common."""
    return vector ^ (row & -row) if odd(vector, row) else vector


def prime_of(p):
    prime = max(3, p["domain_size"], p["buckets"])
    while any(prime % each == 0 for each in range(2, prime)):
        prime += 1
    return prime


def blanket_times(draw, p):
    return p["blanket"]["whole"] + draw.coin(p["blanket"]["rest"])


def balcer_cheu_count(draw, p, x, h):
    tokens = x + 1 - draw.coin(p["noise"]["absence"])
    return [(1,)] * tokens + [(0,)] * (2 - tokens if p["padded"] else 0)


def correlated(draw, p, h, plus, minus):
    sent = [plus] * draw.shares(Fraction(1, h), p["ratio"]) + [minus] * draw.shares(Fraction(1, h), p["ratio"])
    if "flood_shape" in p:
        return sent + [plus, minus] * draw.shares(p["flood_shape"] / h, p["flood_ratio"], 2)
    if p["singles"]:
        sent += [plus] * draw.poisson(p["singles"] / h, 1)
    for size, rate in rates_of(p).items():  # the clusters of each size are a Poisson number of their own
        sent += [plus, minus] * size * draw.poisson(rate / h, 2 * size)
    return sent


def rates_of(p):
    """The mean number of clusters of each size."""
    weights = {size: weight for first, last, weight in p["clusters"] for size in range(first, last + 1)}
    return {size: p["cluster_rate"] * weight / sum(weights.values()) for size, weight in weights.items()}


def correlated_count(draw, p, x, h):
    own = [(1 - x,)] if p["encoding"] == "signed" else [(0,)] * x
    return own + correlated(draw, p, h, (0,), (1,))


def correlated_histogram(draw, p, x, h):
    noise = [sent for c in range(p["domain_size"]) for sent in correlated(draw, p, h, (c, 0), (c, 1))]
    return [(x, 0), *noise]


def pure_sum(draw, p, x, h):
    m = len(p["weights"]) - 1
    ones = draw.choose(p["weights"]) if draw.coin(p["mix"]) else (m - 1) // 2 + x
    return [(1,)] * ones + [(0,)] * (m - ones)


def balcer_cheu_histogram(draw, p, x, h):
    k = p["domain_size"]
    drawn = [k if draw.coin(p["noise"]["absence"]) else c for c in range(k)]
    return [(x,)] + [(c,) for c in drawn if c < k or p["padded"]]


def cheu_histogram(draw, p, x, h):
    bits = [(c == x) ^ draw.coin(p["flip"]) for c in range(p["domain_size"])]
    if p["form"] == "ones":
        return [(c,) for c, bit in enumerate(bits) if bit]
    return list(enumerate(map(int, bits)))


def count_min(draw, p, x, h):
    prime = prime_of(p)
    sent = [(t, ((u + 1) * x + v) % prime % p["buckets"]) for t, (u, v) in enumerate(p["hashes"])]
    cells = [(t, b) for t in range(len(p["hashes"])) for b in range(p["buckets"])]
    return sent + [cell for cell in cells if draw.coin(p["gamma"])]


def hadamard_blanket(draw, p, x, h):
    bits = p["domain_size"].bit_length()
    own = tuple(even_out(draw.below(1 << bits), x + 1) for _ in range(p["hashes"]))
    added = blanket_times(draw, p)
    return [own] + [tuple(draw.below(1 << bits) for _ in range(p["hashes"])) for _ in range(added)]


def k_response(draw, p, x, h):
    return [(draw.response(x, p.get("domain_size", 2), p["blanket"]),)]


def hashed(draw, prime, buckets, x):
    u, v = draw.below(prime - 1), draw.below(prime)
    return u, v, ((u + 1) * x + v) % prime % buckets


def local_hashing(draw, p, x, h):
    prime, buckets = (p["hashes"]["prime"], p["hashes"]["buckets"]) if "hashes" in p else (prime_of(p), p["buckets"])
    u, v, bucket = hashed(draw, prime, buckets, x)
    return [(u, v, draw.response(bucket, buckets, p["blanket"]))]


def uniform_blanket(draw, p, x, h):
    return [(x,)] + [(draw.below(p["domain_size"]),) for _ in range(blanket_times(draw, p))]


def hashed_blanket(draw, p, x, h):
    prime = prime_of(p)
    own = hashed(draw, prime, p["buckets"], x)
    added = blanket_times(draw, p)
    return [own] + [(draw.below(prime - 1), draw.below(prime), draw.below(p["buckets"])) for _ in range(added)]


def fake_users(draw, p, x, h):
    rows = [[int(c == x and row == 0) for c in range(p["domain_size"])] for row in range(1 + p["fake_rows"])]
    return [tuple(bit ^ draw.coin(p["flip"]) for bit in row) for row in rows]


def unary(draw, p, x, h):
    return [tuple(draw.coin(p["own_one"] if c == x else p["other_one"]) for c in range(p["domain_size"]))]


def width_of(p):
    return 1 << math.ceil(p["domain_size"] / p["blocks"]).bit_length()


def hadamard_response(draw, p, x, h):
    width = width_of(p)
    block, row = x // (width - 1), 1 + x % (width - 1)
    column = even_out(draw.below(width), row)
    return [(draw.response(block * width + column, p["blocks"] * width, p["blanket"]),)]


def bassily_smith(draw, p, x, h):
    row = draw.below(1 << p["domain_size"].bit_length())
    return [(row, draw.response(odd(row, x + 1), 2, p["blanket"]))]


def cheu_sum(draw, p, x, h):
    j = draw.level(x, p["bits"], p["domain"])
    return [((i <= j) ^ draw.coin(p["flip"]),) for i in range(1, p["bits"] + 1)]


def privacy_blanket(draw, p, x, h):
    return [(draw.response(draw.level(x, p["levels"], p["domain"]), p["levels"] + 1, p["blanket"]),)]


def split_and_mix(draw, p, x, h):
    assert h == 1, "only then are all probabilities fractions"
    g = p["modulus"]
    rest = draw.level(x, p["levels"], p["domain"])
    rest += draw.geometric_modulo(p["ratio"], g) - draw.geometric_modulo(p["ratio"], g)
    sent = [draw.below(g) for _ in range(p["messages"] - 1)]
    return [(s,) for s in (*sent, (rest - sum(sent)) % g)]


def atoms_of(levels):
    """Numbers that add up to 0, with their reach."""
    most = levels + 1
    ends = [(1 << (i.bit_length() - 1), i - (1 << (i.bit_length() - 1))) for i in range(1, most + 1)]
    atoms = {(1, -1): max(max(power - t, 2 * t) for power, t in ends)}
    for d in range(most.bit_length()):
        g = -1 if d % 2 else 1
        for s in range(2, (most - 1 >> d) + 2):
            atoms[g * s, -g * (s - s // 2), -g * (s // 2)] = 1 << d
    return atoms


def almost_central(draw, p, x, h):
    noise = p["noise"]
    atoms = atoms_of(noise["levels"])
    low = min(map(min, atoms))
    sent = [draw.level(x, noise["levels"], p["domain"]) + 1]
    for sign in (1, -1):
        sent += [sign] * draw.shares(Fraction(1, h), noise["ratio"])
    for atom, reach in atoms.items():
        copies = draw.shares(Fraction(noise["shape"], h), Fraction(1 - noise["step"] / reach), len(atom))
        sent += copies * list(atom)
    return [(number - low,) for number in sent]


def piecewise(draw, p, x, h):
    start, rest = p["step"] * draw.level(x, p["levels"], p["domain"]), p["levels"] * p["step"]
    if draw.coin(p["outside"]):
        r = draw.below(rest)
        return [(r if r < start else r + p["window"],)]
    return [(start + draw.below(p["window"]),)]


def local_laplace(draw, p, x, h):
    noisy = draw.level(x, p["levels"], p["domain"]) + p["margin"]
    return [(noisy + draw.difference(p["ratio"], -noisy, p["levels"] + 2 * p["margin"] - noisy),)]


def bin_of(x, domain):
    lower, upper, bins = float(domain["lower"]), float(domain["upper"]), domain["bins"]
    assert lower <= float(x) <= upper
    edges = [lower + (upper - lower) * i / bins for i in range(bins)] + [upper]
    return min(sum(edge <= float(x) for edge in edges), bins) - 1


def levels_of(p):
    """First cell, width in bins and number of cells of each level."""
    levels, first = [], 0
    for level in range(len(p["branching"])):
        width = math.prod(p["branching"][level + 1 :])
        levels.append((first, width, -(-p["domain"]["bins"] // width)))
        first += levels[-1][2]
    return levels


def tree_of_blankets(draw, p, x, h):
    sent, own = [], bin_of(x, p["domain"])
    for (first, width, cells), blanket in zip(levels_of(p), p["blankets"], strict=True):
        sent.append((first + own // width,))
        sent += [(first + draw.below(cells),) for _ in range(blanket["whole"] + draw.coin(blanket["rest"]))]
    return sent


def correlated_tree(draw, p, x, h):
    own, cells = bin_of(x, p["domain"]), sum(cells for _, _, cells in levels_of(p))
    noise = [sent for c in range(cells) for sent in correlated(draw, p, h, (c, 0), (c, 1))]
    return [(first + own // width, 0) for first, width, _ in levels_of(p)] + noise


MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def symbols_of(alphabet):
    """The symbols of an alphabet without escapes; None for bytes."""
    if alphabet == "bytes":
        return None
    spelled = re.sub("(.)-(.)", lambda ends: "".join(map(chr, range(ord(ends[1]), ord(ends[2]) + 1))), alphabet)
    return list(spelled)


def mix(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def word_of(p, text):
    """The number of symbols, the bits of a word, and the word."""
    domain = p["domain"]
    symbols = symbols_of(domain["alphabet"])
    text = text.strip() if domain["trim"] else text
    text = text.casefold() if domain["case_fold"] else text
    digits = list(text.encode()) if symbols is None else [symbols.index(s) if s in symbols else -1 for s in text]
    if -1 in digits or len(digits) > domain["max_length"]:
        assert domain["other"]
        digits = []
    base, m, v = len(symbols or range(256)), len(digits), 0
    for digit in digits:
        v = v * base + digit
    k = (base**m - 1).bit_length()
    right = k - k // 2
    halves = [v >> right, v & (1 << right) - 1]
    for i in range(4):
        width = [k // 2, right][i % 2]
        content = b"shuffledp tree-blanket 1\0" + p["seed"].to_bytes(8, "big") + m.to_bytes(2, "big") + bytes([i])
        digest = hashlib.sha256(content + halves[1 - i % 2].to_bytes(-(-k // 8), "big")).digest()
        halves[i % 2] ^= int.from_bytes(digest, "big") >> 256 - width
    return m, k, halves[0] << right | halves[1]


def cell_of(p, text, level):
    m, k, word = word_of(p, text)
    first, last = min(k, p["first_bits"]), p["levels"] - p["tail"] - 1
    depth = first + math.ceil(Fraction((k - first) * min(level, last), last)) if last else k
    prefix = word >> k - depth
    h = mix(p["seed"] + GOLDEN * (1 + m * p["levels"] + level) & MASK)
    for limb in range(max(1, -(-k // 64))):
        h = mix((h + GOLDEN & MASK) ^ prefix >> 64 * limb & MASK)
    return (h >> 32) * p["buckets"] >> 32


def tree_of_strings(draw, p, x, h):
    level = draw.below(p["levels"])
    own = level, cell_of(p, x, level)
    return [own] + [(draw.below(p["levels"]), draw.below(p["buckets"])) for _ in range(blanket_times(draw, p))]


def most_of_blanket(p):
    return 1 + p["blanket"]["whole"] + (p["blanket"]["rest"] > 0)


def bounds_of_hashes(p):
    return [prime_of(p) - 1, prime_of(p), p["buckets"]]


def size(p):
    return [p["domain_size"]]


# the randomizer, the bounds, the flags, and the most messages (None: capped)
CLIENT = {
    "count/balcer-cheu": (balcer_cheu_count, lambda p: [2], 0, 2),
    "count/cheu": (lambda d, p, x, h: [(x ^ d.coin(p["flip"]),)], lambda p: [2], 0, 1),
    "count/correlated-noise": (correlated_count, lambda p: [2], 0, None),
    "count/pure-sum": (pure_sum, lambda p: [2], 0, lambda p: len(p["weights"]) - 1),
    "count/shuffler-laplace": (lambda d, p, x, h: [(x,)], lambda p: [2], 0, 1),
    "count/randomized-response": (k_response, lambda p: [2], 0, 1),
    "histogram/balcer-cheu": (
        balcer_cheu_histogram, lambda p: [p["domain_size"] + p["padded"]], 0, lambda p: p["domain_size"] + 1
    ),
    "histogram/cheu": (cheu_histogram, size, lambda p: p["form"] == "bits", lambda p: p["domain_size"]),
    "histogram/count-min": (
        count_min, lambda p: [len(p["hashes"]), p["buckets"]], 0, lambda p: len(p["hashes"]) * (1 + p["buckets"])
    ),
    "histogram/hadamard-blanket": (
        hadamard_blanket, lambda p: [1 << p["domain_size"].bit_length()] * p["hashes"], 0, most_of_blanket
    ),
    "histogram/shuffled-k-rr": (k_response, size, 0, 1),
    "histogram/solh": (local_hashing, bounds_of_hashes, 0, 1),
    "histogram/uniform-blanket": (uniform_blanket, size, 0, most_of_blanket),
    "histogram/hashed-blanket": (hashed_blanket, bounds_of_hashes, 0, most_of_blanket),
    "histogram/fake-users": (fake_users, lambda p: [], lambda p: p["domain_size"], lambda p: 1 + p["fake_rows"]),
    "histogram/correlated-noise": (correlated_histogram, size, 1, None),
    "histogram/shuffler-laplace": (lambda d, p, x, h: [(x,)], size, 0, 1),
    "histogram/shuffler-geometric": (lambda d, p, x, h: [(x,)], size, 0, 1),
    "histogram/k-rr": (k_response, size, 0, 1),
    "histogram/unary": (unary, lambda p: [], lambda p: p["domain_size"], 1),
    "histogram/local-hashing": (
        local_hashing, lambda p: [p["hashes"]["prime"] - 1, p["hashes"]["prime"], p["hashes"]["buckets"]], 0, 1
    ),
    "histogram/hadamard-response": (hadamard_response, lambda p: [p["blocks"] * width_of(p)], 0, 1),
    "histogram/bassily-smith": (bassily_smith, lambda p: [1 << p["domain_size"].bit_length()], 1, 1),
    "sum/cheu": (cheu_sum, lambda p: [2], 0, lambda p: p["bits"]),
    "sum/privacy-blanket": (privacy_blanket, lambda p: [p["levels"] + 1], 0, 1),
    "sum/split-and-mix": (split_and_mix, lambda p: [p["modulus"]], 0, lambda p: p["messages"]),
    "sum/almost-central": (
        almost_central,
        lambda p: [p["noise"]["levels"] + 2 - min(map(min, atoms_of(p["noise"]["levels"])))], 0, None,
    ),
    "sum/duchi": (
        lambda d, p, x, h: [(d.response(d.level(x, 1, p["domain"]), 2, p["blanket"]),)], lambda p: [2], 0, 1
    ),
    "sum/piecewise": (piecewise, lambda p: [p["window"] + p["levels"] * p["step"]], 0, 1),
    "sum/local-laplace": (local_laplace, lambda p: [p["levels"] + 2 * p["margin"] + 1], 0, 1),
    "quantiles/uniform-blanket": (
        tree_of_blankets,
        lambda p: [sum(cells for _, _, cells in levels_of(p))],
        0,
        lambda p: sum(1 + blanket["whole"] + (blanket["rest"] > 0) for blanket in p["blankets"]),
    ),
    "quantiles/correlated-noise": (
        correlated_tree, lambda p: [sum(cells for _, _, cells in levels_of(p))], 1, None
    ),
    "strings/tree-blanket": (tree_of_strings, lambda p: [p["levels"], p["buckets"]], 0, most_of_blanket),
}  # fmt: skip


def packed(message, bounds, flags):
    """Each part in as many bits as its largest value needs, then the flags, then zeros."""
    widths = [(bound - 1).bit_length() for bound in bounds] + [1] * flags
    bits = "".join(format(part, "b").zfill(width) for part, width in zip(message, widths, strict=True) if width)
    size = max(1, -(-len(bits) // 8))
    return int(bits.ljust(8 * size, "0"), 2).to_bytes(size, "big").hex()


def most_of(name, p):
    """How many messages every report has; None where the task says it."""
    most = CLIENT[name][3]
    return most(p) if callable(most) else most


def format_of(name, p):
    """The bounds and the number of flags of a message."""
    _, bounds, flags, _ = CLIENT[name]
    return bounds(p), int(flags(p) if callable(flags) else flags)


def curve_of(document, value, messages_per_report):
    """Each report, as packed messages in order, with its probability; and the probability of too long a one.

    Of parameters with carriers: the report of a carrier.
    """
    name, p = document["protocol"], read(document["parameters"])
    bounds, flags = format_of(name, p)
    curve, too_long, path, fitting = {}, Fraction(0), [], Fraction(0)
    while True:
        draw = Draws(path, messages_per_report)
        try:
            sent = CLIENT[name][0](draw, p, value, sharers(p, document["parameters"]))
            if len(sent) > messages_per_report:
                raise TooLongError
            report = " ".join(sorted(packed(message, bounds, flags) for message in sent))
            curve[report] = curve.get(report, Fraction(0)) + draw.mass
            fitting = draw.exponent
        except TooLongError:
            too_long += draw.mass
        del path[draw.place :]
        while path and path[-1] + 1 == draw.choices[len(path) - 1]:
            path.pop()
        if not path:
            if fitting:
                total = sum(curve.values())
                chance = 1 - math.exp(-fitting) * float(total)
                return {report: mass / total for report, mass in curve.items()}, chance
            return {report: mass / (1 - too_long) for report, mass in curve.items()}, too_long
        path[-1] += 1


def role_of(draw, p):
    """Whether the device is a carrier; drawn first, and once."""
    return draw.coin(p["carrier_probability"])


def report_of_other(document, value):
    """The report of a device that is no carrier: its own message."""
    name, p = document["protocol"], read(document["parameters"])
    own = (1 - value,) if name == "count/correlated-noise" else (value, 0)
    return packed(own, *format_of(name, p))
