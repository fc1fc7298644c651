/**
 * Exact sampling from cryptographically secure bits: the functions of docs/collection/randomizers.md.
 *
 * No floating-point number decides a draw. A probability that is no fraction is bounded from both sides, and the bounds
 * are refined while a random number lies between them.
 */
import { scaledLevel, type Interval } from "./domain.ts";
import { dyadicOf, gcd, logComplement, ratioToDouble, type Dyadic, type Ratio } from "./numbers.ts";
import { powerBounds, Shares } from "./real_bounds.ts";

/** The source of randomness of a randomizer; tests replace it by one that enumerates all choices. */
export interface Draws {
  /** A uniform integer from 0 to n - 1. */
  below(n: bigint): bigint;
  /** True with probability p. */
  coin(p: Dyadic): boolean;
  /** The index i with probability weights[i] / 2^64. */
  choose(weights: readonly bigint[]): number;
  /** A negative binomial number, or limit + 1 if it is larger than the limit. */
  shares(shape: Ratio, ratio: Dyadic, limit: number): number;
  /** A negative binomial number modulo `modulus`. */
  sharesModulo(shape: Ratio, ratio: Dyadic, modulus: bigint): bigint;
  /** The difference of two geometric numbers, clipped to low .. high. */
  geometricDifference(ratio: Dyadic, low: bigint, high: bigint): bigint;
}

const POOL_BYTES = 4096;
/** More rounds of refinement than this never happen: each has a probability of about 2^-64. */
const MAX_REFINEMENTS = 64;
/** The Poisson rate of one table; shares of a larger one are drawn in parts. It keeps the tables short and precise. */
const LARGEST_RATE = 16;

export class SecureDraws implements Draws {
  #pool = new Uint8Array(POOL_BYTES);
  #left = 0;
  #tables = new Map<string, Shares>();

  /** Random bytes; the pool forgets them at once. */
  #byte(): number {
    if (this.#left === 0) {
      crypto.getRandomValues(this.#pool);
      this.#left = POOL_BYTES;
    }
    const byte = this.#pool[--this.#left]!;
    this.#pool[this.#left] = 0;
    return byte;
  }

  #word(): number {
    return ((this.#byte() << 24) | (this.#byte() << 16) | (this.#byte() << 8) | this.#byte()) >>> 0;
  }

  /** A uniform integer of so many bits. */
  bits(count: number): bigint {
    let value = 0n, left = count;
    for (; left >= 32; left -= 32) value = (value << 32n) | BigInt(this.#word());
    return left > 0 ? (value << BigInt(left)) | BigInt(this.#word() >>> (32 - left)) : value;
  }

  below(n: bigint): bigint {
    if (n <= 1n << 32n) {
      const bound = Number(n), spare = Math.clz32(bound - 1);
      for (;;) {
        const value = bound === 1 ? 0 : this.#word() >>> spare;
        if (value < bound) return BigInt(value);
      }
    }
    const size = (n - 1n).toString(2).length;
    for (;;) {
      const value = this.bits(size);
      if (value < n) return value;
    }
  }

  coin({ numerator, bits }: Dyadic): boolean {
    if (numerator >> BigInt(bits)) return true;
    for (let left = bits; left > 0; ) { // from the most significant bits on: undecided only while they are equal
      const count = Math.min(32, left);
      left -= count;
      const own = Number((numerator >> BigInt(left)) & 0xffffffffn) & (count < 32 ? 2 ** count - 1 : -1);
      const drawn = this.#word() >>> (32 - count);
      if (drawn !== own >>> 0) return drawn < own >>> 0;
    }
    return false;
  }

  choose(weights: readonly bigint[]): number {
    let left = this.bits(64), index = 0;
    while (left >= weights[index]!) left -= weights[index++]!;
    return index;
  }

  shares(shape: Ratio, ratio: Dyadic, limit: number): number {
    const [table, parts] = this.#table(shape, ratio);
    let total = 0;
    for (let part = 0; part < parts; part++) {
      total += table.draw(this, limit - total);
      if (total > limit) return limit + 1;
    }
    return total;
  }

  sharesModulo(shape: Ratio, ratio: Dyadic, modulus: bigint): bigint {
    return BigInt(this.shares(shape, ratio, Number.MAX_SAFE_INTEGER)) % modulus;
  }

  geometricDifference(ratio: Dyadic, low: bigint, high: bigint): bigint {
    const difference = this.#geometric(ratio) - this.#geometric(ratio);
    return difference < low ? low : difference > high ? high : difference;
  }

  /** Negative binomial numbers add up: shares(s, r) is the sum of n independent shares(s / n, r). */
  #table(shape: Ratio, ratio: Dyadic): [Shares, number] {
    const key = `${shape.numerator}/${shape.denominator} ${ratio.numerator}/${ratio.bits}`;
    const parts = Math.max(1, Math.ceil((ratioToDouble(shape) * -logComplement(ratio)) / LARGEST_RATE));
    let table = this.#tables.get(key);
    if (!table) {
      const divisor = gcd(shape.numerator, shape.denominator * BigInt(parts));
      table = new Shares({ numerator: shape.numerator / divisor, denominator: (shape.denominator * BigInt(parts)) / divisor }, ratio);
      this.#tables.set(key, table);
    }
    return [table, parts];
  }

  /**
   * The binary digits of a geometric number are independent: digit j is 1 with probability x / (1 + x), x = r^(2^j).
   * Digits are drawn up to where r^(2^j) is below 1/2; the rest is geometric again, and short.
   */
  #geometric(ratio: Dyadic): bigint {
    const power = (exponent: bigint) => (bits: number) => powerBounds(ratio, exponent, bits);
    let digits = 0, value = 0n;
    while (digits < 64 && powerBounds(ratio, 1n << BigInt(digits), 64)[1] > 1n << 63n) digits++;
    while (this.#bounded(power(1n << BigInt(digits)))) value++;
    for (let digit = digits - 1; digit >= 0; digit--) {
      const odds = power(1n << BigInt(digit));
      const isOne = this.#bounded((bits) => {
        const [low, high] = odds(bits), one = 1n << BigInt(bits);
        return [(low << BigInt(bits)) / (one + low), (high << BigInt(bits)) / (one + high) + 1n];
      });
      value = 2n * value + (isOne ? 1n : 0n);
    }
    return value;
  }

  /** True with a probability that is known by bounds over 2^bits, for any number of bits. */
  #bounded(bounds: (bits: number) => readonly [bigint, bigint]): boolean {
    let drawn = 0n;
    for (let round = 1; round <= MAX_REFINEMENTS; round++) {
      drawn = (drawn << 64n) | this.bits(64);
      const [low, high] = bounds(64 * round);
      if (drawn + 1n <= low) return true; // all numbers that begin with these bits are below the probability
      if (drawn >= high) return false;
    }
    throw new Error("a random draw could not be decided");
  }
}

/** `below(n)` if `coin(blanket)`, else x. */
export const response = (draws: Draws, x: bigint, n: bigint, blanket: Dyadic): bigint => (draws.coin(blanket) ? draws.below(n) : x);

/** A position from 0 to 1 in an interval as one of the levels 0 to n, rounded at random so that the mean is exact. */
export function level(draws: Draws, domain: Interval, position: number, n: number): number {
  const scaled = scaledLevel(domain, position, n), floor = Math.floor(scaled);
  return floor + (draws.coin(dyadicOf(scaled - floor)) ? 1 : 0);
}
