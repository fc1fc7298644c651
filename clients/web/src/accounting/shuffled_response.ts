/** Randomized response after shuffling: the privacy blanket, hiding among clones, and the exact value for bits. */
import { complement, toDouble, type Dyadic } from "../numbers.ts";
import { binomial, binomialWindow } from "./binomial.ts";
import { clonesDelta } from "./blanket.ts";
import { roundedUp } from "./divergence.ts";

/** The work of a precise bound: less than a second. */
const MAX_STEPS = 1 << 25;
/** The work of a coarser one, which proves only tasks that leave slack. */
const COARSE_STEPS = 1 << 22;
const CUT = 1e-60;

/** The least bound that is proved for response(x, n, blanket) of `honest` users. */
export function responseDelta(honest: number, n: number, blanket: Dyadic, epsilon: number): number {
  if (n === 1) return 0;
  const b = toDouble(blanket), odds = (n * toDouble(complement(blanket))) / b, E = Math.exp(epsilon); // e^local_epsilon - 1
  if (E >= 1 + odds) return 0;
  const exact = n === 2 ? flippedBitsDelta(honest, b / 2, E) : 1;
  if (exact < 1) return exact;
  const alpha = (1 + odds) / (2 + odds), notAlpha = 1 / (2 + odds);
  // of Feldman, McMillan and Talwar (2023): a user is a clone with probability 2 / (e^local_epsilon + 1)
  const stronger = clonesDelta(honest - 1, (2 * (1 - 2 ** -48)) / (2 + odds), { alpha, notAlpha, E });
  // the reports of the two values alone: all others are revealed to the attacker
  const revealed = Math.min(1, (b / n) * (2 + odds)) * clonesDelta(honest - 1, (2 * b) / n, { alpha, notAlpha, E });
  return Math.min(stronger, n > 2 ? roundedUp(revealed) : 1, blanketResponseDelta(honest, n, blanket, epsilon));
}

/**
 * Lemma 5.3 of Balle, Bell, Gascon and Nissim (2019): E[max(0, odds (A - E B) - (E - 1)(A + B + C))] / honest, where a
 * user is counted in A and in B with probability b / n each, and in C with b (n - 2) / n.
 *
 * Given A + B = j, A is Bin(j, 1/2) and C is Bin(honest - j, c).
 */
export function blanketResponseDelta(honest: number, n: number, blanket: Dyadic, epsilon: number): number {
  const b = toDouble(blanket), notB = toDouble(complement(blanket)), odds = (n * notB) / b, gap = Math.expm1(epsilon);
  if (gap >= odds) return 0;
  const others = (b * (n - 2)) / n, { first, masses, outside } = binomialWindow(honest, (2 * b) / n, notB + others, CUT);
  const c = others / (notB + others), notC = notB / (notB + others), last = first + masses.length - 1;
  const perTable = 40 * Math.sqrt(honest * c * notC) + 100, perNumber = 20 * Math.sqrt(last) + 10;
  if (masses.length * perNumber > MAX_STEPS) return 1; // the bound would take too long
  const steps = masses.length * perTable, skip = steps > MAX_STEPS ? Math.ceil(steps / COARSE_STEPS) : 1;
  let sum = 0, table: Integral | null = null;
  for (let i = masses.length - 1; i >= 0; i--) {
    // fewer users to be counted in C make the bound larger: the table of a larger j is one for this j
    if (others > 0 && gap > 0 && (masses.length - 1 - i) % skip === 0) table = new Integral(honest - first - i, c, notC);
    sum += masses[i]! * expectedGain(first + i, Math.exp(epsilon), gap, odds, table);
  }
  return roundedUp(sum / honest, outside * odds + 1e-280 * odds * odds);
}

/** E[max(0, odds (A - E (j - A)) - gap (j + C))] for A of Bin(j, 1/2). */
function expectedGain(j: number, E: number, gap: number, odds: number, table: Integral | null): number {
  const start = Math.max(0, Math.ceil((j * (odds * E + gap)) / (odds * (1 + E))) - 1);
  let sum = 0, mass = binomial(start, j, 0.5, 0.5);
  for (let a = start; a <= j; a++) {
    const height = Math.max(0, odds * (a - E * (j - a)) - gap * j);
    sum += mass * (table ? gap * table.upTo(height / gap) : height);
    mass *= (j - a) / (a + 1);
    if (mass * odds * j < 1e-18 * sum || mass === 0) break;
  }
  return sum;
}

/** The integral of the distribution function of Bin(n, c): E[max(0, x - C)], without a subtraction. */
class Integral {
  readonly #first: number;
  /** A bound of the probability of less than `first`. */
  readonly #below: number;
  readonly #cdf: Float64Array;
  readonly #sums: Float64Array;

  constructor(n: number, c: number, notC: number) {
    const { first, masses, outside } = binomialWindow(n, c, notC, CUT);
    this.#below = outside;
    this.#first = first;
    this.#cdf = new Float64Array(masses.length);
    this.#sums = new Float64Array(masses.length + 1);
    let mass = outside;
    masses.forEach((part, i) => {
      this.#cdf[i] = mass += part;
      this.#sums[i + 1] = this.#sums[i]! + mass;
    });
  }

  upTo(x: number): number {
    const whole = Math.floor(x), i = whole - this.#first, size = this.#cdf.length;
    if (i < 0) return this.#below * x;
    return i < size ? this.#sums[i]! + (x - whole) * this.#cdf[i]! + this.#below * x : this.#sums[size]! + (x - this.#first - size) * (1 + 1e-12);
  }
}

/** Above this standard deviation of the noise, bits are not compared: it would take too long. */
const WIDEST_NOISE = 400;
/** Maximum number of ranges; with fewer than needed the bound is larger, never too small. */
const MAX_RANGES = 3000;

/**
 * The largest divergence over the values of the others, of whom K hold 1: the noise is Bin(users - 1 - K, flip) - Bin(K, flip),
 * and less noise makes it larger, so ranges of K are bounded together. The worst range is divided until it is a single K.
 */
function flippedBitsDelta(users: number, flip: number, E: number): number {
  if (users * flip > WIDEST_NOISE ** 2) return 1;
  const rangeOf = (from: number, to: number) => ({ from, to, delta: flippedBitDivergence(from, users - 1 - to, flip, E) });
  const ranges = [rangeOf(0, users - 1)];
  for (;;) {
    const worst = ranges.reduce((a, b) => (b.delta > a.delta ? b : a)), { from, to, delta } = worst, middle = Math.floor((from + to) / 2);
    if (from === to || ranges.length > MAX_RANGES) return roundedUp(delta);
    ranges.splice(ranges.indexOf(worst), 1, rangeOf(from, middle), rangeOf(middle + 1, to));
  }
}

/** With W the noise and g = 1 - flip - E flip: g W(u - 1) - (E - 1) Pr[W >= u] at the least u at which outcomes favour a 1. */
function flippedBitDivergence(ones: number, zeros: number, flip: number, E: number): number {
  const plus = binomialWindow(zeros, flip, 1 - flip, CUT), minus = binomialWindow(ones, flip, 1 - flip, CUT), tails = plus.masses.slice();
  for (let i = tails.length - 2; i >= 0; i--) tails[i]! += tails[i + 1]!;
  // the sum over j of Bin(ones)(j) times the entry of the table at u + j; 0 after it, and `before` in front of it
  const sum = (table: Float64Array, u: number, before = 0) => {
    let total = 0;
    minus.masses.forEach((mass, j) => {
      const i = u + minus.first + j - plus.first;
      total += mass * (i < 0 ? before : table[i] ?? 0);
    });
    return total;
  };
  const gain = (1 - flip - E * flip) + 2 ** -50, loss = E * (1 - flip) - flip;
  let low = plus.first - minus.first - minus.masses.length, high = plus.first + plus.masses.length - minus.first;
  while (high - low > 1) { // the ratio of W(u - 1) to W(u) increases
    const u = Math.floor((low + high) / 2);
    if (gain * sum(plus.masses, u - 1) > loss * sum(plus.masses, u)) high = u;
    else low = u;
  }
  const gained = gain * sum(plus.masses, high - 1) * (1 + 4e-12); // what a difference of two sums may lose
  return Math.max(0, gained - (E - 1) * sum(tails, high, tails[0])) + plus.outside + minus.outside;
}
