/** Exact sampling from cryptographically secure bits: the functions of docs/collection/randomizers.md whose probabilities are fractions. */
import { type Dyadic } from "./numbers.ts";

/** The source of randomness of a randomizer; tests replace it by one that enumerates all choices. */
export interface Draws {
  /** A uniform integer from 0 to n - 1. */
  below(n: bigint): bigint;
  /** True with probability p. */
  coin(p: Dyadic): boolean;
  /** The index i with probability weights[i] / 2^64. */
  choose(weights: readonly bigint[]): number;
}

const POOL_BYTES = 4096;
export class SecureDraws implements Draws {
  #pool = new Uint8Array(POOL_BYTES);
  #left = 0;

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

  /** A uniform integer of this many bits. */
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
}
