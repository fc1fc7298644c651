/** Bounds in fixed-point arithmetic of probabilities that are not fractions: powers, and negative binomial numbers. */
import { bitLength, type Dyadic, type Ratio } from "./numbers.ts";

/** Bits that are computed beyond those that are wanted; the errors below add up to far less than 2^-32 of a unit. */
const GUARD_BITS = 128;
const SLACK = 1n << 96n;
const LARGEST_RATE = 16n;

/** ratio^exponent over 2^bits, from below and from above. */
export function powerBounds(ratio: Dyadic, exponent: bigint, bits: number): readonly [bigint, bigint] {
  const size = BigInt(bits + GUARD_BITS), one = 1n << size;
  let low = one, high = one, lowSquare = (ratio.numerator << size) >> BigInt(ratio.bits), highSquare = lowSquare + 1n;
  for (let rest = exponent; rest > 0n; rest >>= 1n) {
    if (rest & 1n) [low, high] = [(low * lowSquare) >> size, ((high * highSquare) >> size) + 1n];
    [lowSquare, highSquare] = [(lowSquare * lowSquare) >> size, ((highSquare * highSquare) >> size) + 1n];
  }
  return [low >> BigInt(GUARD_BITS), (high >> BigInt(GUARD_BITS)) + 1n];
}

/** The random bits that a table needs. */
interface Bits { bits(count: number): bigint }

/**
 * Inversion for negative binomial numbers, and for Poisson numbers (`ratio` null, and `shape` their mean): the distribution function is computed as far as a draw needs it.
 *
 * The rate, shape ln(1 / (1 - ratio)), must be at most about 16, and larger ones are refused: then the first probability has at least 2^-24, every
 * weight is computed with a relative error of a few units of 2^-(bits + 104), and even 2^23 of them stay below SLACK.
 */
export class Shares {
  readonly #shape: Ratio;
  readonly #ratio: Dyadic | null;
  #bits = 128;
  #weight = 0n;
  /** Pr[K <= k] over 2^(bits + GUARD_BITS), up to an error of SLACK. */
  #sums: bigint[] = [];

  constructor(shape: Ratio, ratio: Dyadic | null) {
    this.#shape = shape;
    this.#ratio = ratio;
    this.#start();
  }

  /** A draw, or limit + 1 if it is larger than the limit. */
  draw(source: Bits, limit: number): number {
    let drawn = source.bits(this.#bits), width = this.#bits;
    for (;;) {
      for (; width < this.#bits; width += 64) drawn = (drawn << 64n) | source.bits(64);
      const unit = BigInt(this.#bits + GUARD_BITS - width), low = drawn << unit, high = (drawn + 1n) << unit;
      // k is certain if all numbers that begin with the bits drawn are between Pr[K < k] and Pr[K <= k]
      const k = this.#first(high + SLACK, limit);
      if (k === 0 || this.#sums[k - 1]! + SLACK <= low) return k;
      this.#bits += 64;
      this.#start();
    }
  }

  /** Bounds of Pr[K <= k] over 2^bits, for k = 0 .. last. */
  bounds(last: number): { low: bigint[]; high: bigint[]; bits: number } {
    this.#extend(last);
    const sums = this.#sums.slice(0, last + 1);
    return { low: sums.map((sum) => (sum - SLACK) >> BigInt(GUARD_BITS)), high: sums.map((sum) => ((sum + SLACK) >> BigInt(GUARD_BITS)) + 1n), bits: this.#bits };
  }

  /** The first k with Pr[K <= k] >= sum; if there is none, limit + 1 or the end of the table. */
  #first(sum: bigint, limit: number): number {
    for (let end = 64; ; end *= 2) {
      this.#extend(Math.min(end, limit));
      if (end >= limit || this.#weight === 0n || this.#sums.at(-1)! >= sum) break;
    }
    let low = 0, high = Math.min(this.#sums.length, limit + 1);
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#sums[middle]! >= sum) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  #start(): void {
    const bits = this.#bits + GUARD_BITS, rate = this.#rate(bits);
    if (rate >> BigInt(bits) > LARGEST_RATE) throw new RangeError("the rate of a table is too large"); // its weights would underflow
    this.#weight = exponential(rate, bits);
    this.#sums = [this.#weight];
  }

  /** Minus the logarithm of the first probability, over 2^bits. */
  #rate(bits: number): bigint {
    const { numerator, denominator } = this.#shape;
    if (!this.#ratio) return (numerator << BigInt(bits)) / denominator;
    const extra = bitLength(numerator), one = 1n << BigInt(this.#ratio.bits); // the error of the logarithm is multiplied by the shape
    return (numerator * logarithm(one, one - this.#ratio.numerator, bits + extra)) / (denominator << BigInt(extra));
  }

  #extend(last: number): void {
    const { numerator, denominator } = this.#shape;
    while (this.#sums.length <= last && this.#weight > 0n) {
      const k = BigInt(this.#sums.length - 1);
      if (!this.#ratio) this.#weight = (this.#weight * numerator) / (denominator * (k + 1n));
      else this.#weight = (this.#weight * (numerator + k * denominator) * this.#ratio.numerator) / (denominator * (k + 1n)) >> BigInt(this.#ratio.bits);
      this.#sums.push(this.#sums.at(-1)! + this.#weight);
    }
  }
}

/** ln(p / q) over 2^bits for p >= q, a few units too small at most. */
function logarithm(p: bigint, q: bigint, bits: number): bigint {
  const size = BigInt(bits + 64);
  let halvings = 0n;
  for (; p >= 2n * q; halvings++) q *= 2n; // p / q is in [1, 2) times 2^halvings
  const artanh = (numerator: bigint, denominator: bigint): bigint => {
    let term = (numerator << size) / denominator, sum = 0n;
    for (let i = 1n; term > 0n; i += 2n) {
      sum += term / i;
      term = (term * numerator * numerator) / (denominator * denominator);
    }
    return sum;
  };
  return (2n * (halvings * artanh(1n, 3n) + artanh(p - q, p + q))) >> 64n;
}

/** e^-x for x over 2^bits, up to a few units. */
export function exponential(x: bigint, bits: number): bigint {
  const size = BigInt(bits + 64), one = 1n << size;
  const halvings = BigInt(Math.max(0, x.toString(2).length - bits + 8));
  const small = (x << 64n) >> halvings;
  let term = one, sum = 0n;
  for (let i = 1n; term !== 0n; i++) {
    sum += term;
    term = -(term * small) / (one * i); // the division rounds towards 0, so that it ends
  }
  for (let i = 0n; i < halvings; i++) sum = (sum * sum) >> size;
  return sum >> 64n;
}
