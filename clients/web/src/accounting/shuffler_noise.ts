/** The dummies of an augmented shuffler: exact divergences in closed form, whose terms are all positive, rounded up. */
import { complement, logComplement, toDouble, type Dyadic } from "../numbers.ts";
import { dyadicOf, logRatioAbove } from "../ratios.ts";
import { exponential } from "../real_bounds.ts";
import { roundedUp, twoSided } from "./divergence.ts";

/** Of fixed-point numbers: e^-LARGEST is far above their unit, and their errors are a few of the units. */
const BITS = 1700, SLACK = 1n << 10n, LARGEST = 1000;
const EXCESS_BITS = 128n;

/** max(0, 1 - e^epsilon numerator / denominator), rounded up: exactly 0 where e^epsilon reaches the ratio of likelihoods. */
function excess(epsilon: number, numerator: bigint, denominator: bigint): number {
  if (!(epsilon >= 0)) return 1;
  const { numerator: top, bits } = dyadicOf(Math.min(epsilon, LARGEST)), x = (top << BigInt(BITS)) >> BigInt(bits);
  const inverse = exponential(x, BITS) + SLACK, ratio = (numerator << BigInt(BITS)) / denominator;
  return ratio >= inverse ? 0 : Number(((inverse - ratio) << EXCESS_BITS) / inverse + 1n) / 2 ** Number(EXCESS_BITS);
}

/** -ln(ratio), without a loss of digits. */
const decayOf = (ratio: Dyadic): number => -logComplement(complement(ratio));

/** Pr[z = k] in proportion to ratio^|k - shift|: of a category for all k from 0 on, of a count for k from 0 to 2 shift. */
export interface Laplace { readonly ratio: Dyadic; readonly shift: number }

function weightsOf({ ratio, shift }: Laplace): { least: number; below: number; all: number; above: number } {
  const decay = decayOf(ratio), rest = toDouble(complement(ratio)), sum = (terms: number) => -Math.expm1(-terms * decay) / rest; // of ratio^k for k below terms
  return { least: Math.exp(-shift * decay), below: sum(shift), all: sum(shift + 1), above: 1 / rest };
}

/** The mean of z of a category. */
export function meanOf({ ratio, shift }: Laplace): number {
  const a = toDouble(ratio), { all, above } = weightsOf({ ratio, shift }), rest = toDouble(complement(ratio));
  return shift + (Math.exp(-(shift + 1) * decayOf(ratio)) * ((shift + 1) * rest + a)) / rest ** 2 / (all + a * above);
}

/** Of the number of ones, with dummies of a fixed total: the likelihood ratio is 1 / ratio, ratio, or infinite at either end. */
export function countDelta({ ratio, shift }: Laplace, epsilon: number): number {
  const { least, below, all } = weightsOf({ ratio, shift }), total = 2 * all - 1;
  return roundedUp((least + below * excess(epsilon, ratio.numerator, 1n << BigInt(ratio.bits))) / total);
}

/** Of two categories, one with a user's message and one without: the ratios are those of each, multiplied. */
export function categoriesDelta({ ratio, shift }: Laplace, epsilon: number): number {
  const { least, below, all, above } = weightsOf({ ratio, shift }), total = all + toDouble(ratio) * above;
  return roundedUp((least + below * (above / total) * excess(epsilon, ratio.numerator ** 2n, 1n << BigInt(2 * ratio.bits))) / total);
}

/** Of two categories of sampled reports with geometric dummies: what counts is whether there is any message of them. */
export function sampledDelta(keep: Dyadic, ratio: Dyadic, epsilon: number): number {
  const whole = 1n << BigInt(keep.bits), dropped = whole - keep.numerator, unit = 1n << BigInt(ratio.bits), some = dropped * ratio.numerator + keep.numerator * unit; // over whole and ratio
  if (epsilon >= (logRatioAbove(whole, dropped) + logRatioAbove(some, whole * ratio.numerator)) * (1 + 4e-16)) return 0;
  const empty = (unit - ratio.numerator) * dropped, all = whole * unit, share = (part: bigint) => Number((part << 256n) / all) / 2 ** 256;
  return roundedUp(twoSided(Float64Array.of(share(empty), share(all - empty)), Float64Array.of(toDouble(complement(ratio)), toDouble(ratio)), Math.exp(epsilon)));
}
