/** Exact fractions, for probabilities of enumerated choices. */
import { gcd } from "../src/numbers.ts";

export class Fraction {
  readonly numerator: bigint;
  readonly denominator: bigint;

  constructor(numerator: bigint, denominator = 1n) {
    const divisor = gcd(numerator < 0n ? -numerator : numerator, denominator) || 1n;
    this.numerator = numerator / divisor;
    this.denominator = denominator / divisor;
  }

  /** Of "3/4", "1". */
  static parse(text: string): Fraction {
    const [numerator, denominator = "1"] = text.split("/") as [string, string?];
    return new Fraction(BigInt(numerator), BigInt(denominator));
  }

  plus(other: Fraction): Fraction {
    return new Fraction(this.numerator * other.denominator + other.numerator * this.denominator, this.denominator * other.denominator);
  }

  minus(other: Fraction): Fraction {
    return this.plus(new Fraction(-other.numerator, other.denominator));
  }

  times(other: Fraction): Fraction {
    return new Fraction(this.numerator * other.numerator, this.denominator * other.denominator);
  }

  over(other: Fraction): Fraction {
    return new Fraction(this.numerator * other.denominator, this.denominator * other.numerator);
  }

  power(exponent: bigint): Fraction {
    return new Fraction(this.numerator ** exponent, this.denominator ** exponent);
  }

  /** The root, which must be a fraction. */
  root(degree: number): Fraction {
    const integerRoot = (x: bigint): bigint => {
      const root = BigInt(Math.round(Number(x) ** (1 / degree)));
      if (root ** BigInt(degree) !== x) throw new Error("the root is no fraction");
      return root;
    };
    return new Fraction(integerRoot(this.numerator), integerRoot(this.denominator));
  }

  toNumber(): number {
    return Number((this.numerator * 10n ** 40n) / this.denominator) / 1e40;
  }

  toString(): string {
    return `${this.numerator}/${this.denominator}`;
  }
}

export const ZERO = new Fraction(0n), ONE = new Fraction(1n);
