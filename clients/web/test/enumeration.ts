/** The exact distribution of a report: the randomizer runs once for every path through the tree of its choices. */
import { hex } from "../src/bytes.ts";
import { type Input } from "../src/domain.ts";
import { type GeometricDraws } from "../src/geometric.ts";
import { type NoiseDraws } from "../src/noise.ts";
import { type Dyadic, type Ratio } from "../src/numbers.ts";
import { pack } from "../src/packing.ts";
import { type Protocol } from "../src/protocols/protocol.ts";
import { Fraction, ONE, ZERO } from "./fractions.ts";

const fractionOf = ({ numerator, bits }: Dyadic) => new Fraction(numerator, 1n << BigInt(bits));

/** One path: what is chosen at each fork, and how likely that is. */
class Path implements NoiseDraws, GeometricDraws {
  readonly choices: number[];
  readonly forks: number[] = [];
  mass = ONE;
  /** Of the factor e^-exponent that Poisson numbers lack. */
  exponent = 0;

  constructor(choices: number[]) {
    this.choices = choices;
  }

  #pick(masses: readonly Fraction[]): number {
    const possible = [...masses.keys()].filter((index) => masses[index]!.numerator !== 0n), position = this.forks.length;
    if (position === this.choices.length) this.choices.push(0);
    this.forks.push(possible.length);
    const picked = possible[this.choices[position]!]!;
    this.mass = this.mass.times(masses[picked]!);
    return picked;
  }

  below(n: bigint): bigint {
    return BigInt(this.#pick(Array<Fraction>(Number(n)).fill(new Fraction(1n, n))));
  }

  coin(p: Dyadic): boolean {
    return this.#pick([ONE.minus(fractionOf(p)), fractionOf(p)]) === 1;
  }

  choose(weights: readonly bigint[]): number {
    return this.#pick(weights.map((weight) => new Fraction(weight, 1n << 64n)));
  }

  shares(shape: Ratio, ratio: Dyadic, limit: number): number {
    const s = new Fraction(shape.numerator, shape.denominator), r = fractionOf(ratio);
    const masses = [ONE.minus(r).root(Number(s.denominator)).power(s.numerator)];
    for (let k = 0n; k < limit; k++) masses.push(masses.at(-1)!.times(s.plus(new Fraction(k))).times(r).over(new Fraction(k + 1n)));
    return this.#pick([...masses, ONE.minus(masses.reduce((sum, mass) => sum.plus(mass), ZERO))]);
  }

  /** Without the factor e^-mean, and without what does not fit: it cancels in the distribution of a report that fits. */
  poisson(mean: Ratio, limit: number): number {
    const m = new Fraction(mean.numerator, mean.denominator), masses = [ONE];
    for (let k = 1n; k <= limit; k++) masses.push(masses.at(-1)!.times(m).over(new Fraction(k)));
    this.exponent += Number(mean.numerator) / Number(mean.denominator);
    return this.#pick(masses);
  }

  weighted(weights: readonly bigint[]): number {
    const total = weights.reduce((sum, weight) => sum + weight, 0n);
    return this.#pick(weights.map((weight) => new Fraction(weight, total)));
  }

  sharesModulo(shape: Ratio, ratio: Dyadic, modulus: bigint): bigint {
    if (shape.numerator !== shape.denominator) throw new Error("only a geometric distribution is one of fractions");
    const r = fractionOf(ratio), scale = ONE.minus(r).over(ONE.minus(r.power(modulus)));
    return BigInt(this.#pick(Array.from({ length: Number(modulus) }, (_, k) => scale.times(r.power(BigInt(k))))));
  }

  geometricDifference(ratio: Dyadic, low: bigint, high: bigint): bigint {
    if (low === high) return low;
    const r = fractionOf(ratio), all = ONE.plus(r), masses: Fraction[] = [];
    const below = (x: bigint) => (x <= 0n ? r.power(-x).over(all) : ONE.minus(r.power(x + 1n).over(all))); // Pr[difference <= x]
    for (let x = low; x < high; x++) masses.push(x === low ? below(x) : below(x).minus(below(x - 1n)));
    masses.push(ONE.minus(below(high - 1n)));
    return low + BigInt(this.#pick(masses));
  }
}

/** The distribution of the packed messages of a report, and the probability that it is drawn again. */
export function enumerate(protocol: Protocol<Input>, input: Input, limit: number): { distribution: Map<string, Fraction>; more: Fraction; chance: number } {
  const distribution = new Map<string, Fraction>(), choices: number[] = [];
  let more = ZERO, exponent = 0, fits = ZERO;
  do {
    const path = new Path(choices), messages = protocol.randomize(path, input, limit);
    if (!messages || messages.length > limit) more = more.plus(path.mass);
    else {
      const key = messages.map((message) => hex(pack(protocol.format, message))).sort().join(" ");
      distribution.set(key, (distribution.get(key) ?? ZERO).plus(path.mass));
      fits = fits.plus(path.mass);
      exponent = path.exponent;
    }
    choices.length = path.forks.length;
    while (choices.length && choices.at(-1)! + 1 === path.forks[choices.length - 1]) choices.pop();
    if (choices.length) choices[choices.length - 1]!++;
  } while (choices.length);
  for (const [key, mass] of distribution) distribution.set(key, mass.over(fits));
  return { distribution, more, chance: 1 - fits.toNumber() * Math.exp(-exponent) };
}
