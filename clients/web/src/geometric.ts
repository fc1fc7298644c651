/** Exact sampling of geometric numbers, of which a device may need a wide one. No floating-point number decides a draw. */
import { SecureDraws, type Draws } from "./draw.ts";
import { type Dyadic } from "./numbers.ts";
import { powerBounds } from "./real_bounds.ts";

/** What a randomizer with such noise needs; tests replace it, too. */
export interface GeometricDraws extends Draws {
  /** The difference of two geometric numbers, clipped to low .. high. */
  geometricDifference(ratio: Dyadic, low: bigint, high: bigint): bigint;
}

/** More rounds of refinement than this never happen: each has a probability of about 2^-64. */
const MAX_REFINEMENTS = 64;

export class SecureGeometric extends SecureDraws implements GeometricDraws {
  geometricDifference(ratio: Dyadic, low: bigint, high: bigint): bigint {
    const difference = this.#geometric(ratio) - this.#geometric(ratio);
    return difference < low ? low : difference > high ? high : difference;
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
