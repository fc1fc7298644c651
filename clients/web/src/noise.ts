/**
 * Exact sampling of negative binomial and geometric numbers: the other functions of docs/collection/randomizers.md.
 *
 * No floating-point number decides a draw. A probability that is not a fraction is bounded from both sides, and the bounds
 * are refined while a random number lies between them.
 */
import { SecureDraws, type Draws } from "./draw.ts";
import { gcd, logComplement, ratioToDouble, type Dyadic, type Ratio } from "./numbers.ts";
import { powerBounds, Shares } from "./real_bounds.ts";

/** What randomizers with such noise need; tests replace it, too. */
export interface NoiseDraws extends Draws {
  /** A negative binomial number, or limit + 1 if it is larger than the limit. */
  shares(shape: Ratio, ratio: Dyadic, limit: number): number;
  /** A Poisson number of this mean, or limit + 1 if it is larger than the limit. */
  poisson(mean: Ratio, limit: number): number;
  /** The index i with a probability in proportion to weights[i]. */
  weighted(weights: readonly bigint[]): number;
  /** A negative binomial number modulo `modulus`. */
  sharesModulo(shape: Ratio, ratio: Dyadic, modulus: bigint): bigint;
  /** The difference of two geometric numbers, clipped to low .. high. */
  geometricDifference(ratio: Dyadic, low: bigint, high: bigint): bigint;
}

/** More rounds of refinement than this never happen: each has a probability of about 2^-64. */
const MAX_REFINEMENTS = 64;
/** The Poisson rate of one table; shares of a larger one are drawn in parts. It keeps the tables short and precise. */
const LARGEST_RATE = 16;

export class SecureNoise extends SecureDraws implements NoiseDraws {
  #tables = new Map<string, Shares>();

  shares(shape: Ratio, ratio: Dyadic | null, limit: number): number {
    const [table, parts] = this.#table(shape, ratio);
    let total = 0;
    for (let part = 0; part < parts; part++) {
      total += table.draw(this, limit - total);
      if (total > limit) return limit + 1;
    }
    return total;
  }

  poisson(mean: Ratio, limit: number): number {
    return this.shares(mean, null, limit);
  }

  weighted(weights: readonly bigint[]): number {
    let left = this.below(weights.reduce((sum, weight) => sum + weight, 0n)), index = 0;
    while (left >= weights[index]!) left -= weights[index++]!;
    return index;
  }

  sharesModulo(shape: Ratio, ratio: Dyadic, modulus: bigint): bigint {
    return BigInt(this.shares(shape, ratio, Number.MAX_SAFE_INTEGER)) % modulus;
  }

  geometricDifference(ratio: Dyadic, low: bigint, high: bigint): bigint {
    const difference = this.#geometric(ratio) - this.#geometric(ratio);
    return difference < low ? low : difference > high ? high : difference;
  }

  /** Negative binomial numbers add up: shares(s, r) is the sum of n independent shares(s / n, r). So do Poisson numbers, without a ratio. */
  #table(shape: Ratio, ratio: Dyadic | null): [Shares, number] {
    const key = `${shape.numerator}/${shape.denominator} ${ratio?.numerator}/${ratio?.bits}`;
    const parts = Math.max(1, Math.ceil((ratioToDouble(shape) * (ratio ? -logComplement(ratio) : 1)) / LARGEST_RATE));
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
