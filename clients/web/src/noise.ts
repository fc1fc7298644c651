/**
 * Exact sampling of negative binomial and Poisson numbers: further functions of docs/collection/randomizers.md.
 *
 * No floating-point number decides a draw. A probability that is not a fraction is bounded from both sides, and the bounds
 * are refined while a random number lies between them.
 */
import { SecureDraws, type Draws } from "./draw.ts";
import { gcd, logComplement, ratioToDouble, type Dyadic, type Ratio } from "./numbers.ts";
import { Shares } from "./real_bounds.ts";

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
}

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
}
