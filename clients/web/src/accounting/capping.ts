/** The probability that a report is too long: the tail of a sum of negative binomial and Poisson numbers, by its recurrence. */
import { roundedUp } from "./divergence.ts";

/** shares(shape, ratio) of `size` messages at a time; `logNotRatio` is ln(1 - ratio), in which 1 - ratio must not be rounded. */
export interface Part { readonly shape: number; readonly ratio: number; readonly logNotRatio: number; readonly size: number }

/** A Poisson number, of mean `rate`, of groups of `size` messages. */
export interface Groups { readonly rate: number; readonly size: number }

const RESCALE = 2 ** 600;
/** Of the recurrence: more would keep a device busy, and Chernoff's bound is used instead. */
const MOST_TERMS = 1 << 25;

/** An upper bound of Pr[M >= least]: summed outward from there, and beyond the end by Chernoff's bound. */
export function chanceOfAtLeast(parts: readonly Part[], least: number, groups: readonly Groups[] = []): number {
  if (least <= 0) return 1;
  const farthest = Math.max(8, ...groups.map(({ size }) => size));
  if ((2 * least + 4096) * groups.length > MOST_TERMS) return chernoff(parts, groups, least);
  const last = 2 * least + 4096, masses = new Float64Array(last + 1), sums = parts.map(() => new Float64Array(last + 1));
  // everything is over e^scale, which is moved before a mass overflows: Pr[M = 0] alone may underflow
  let scale = parts.reduce((sum, { shape, logNotRatio }) => sum + shape * logNotRatio, -groups.reduce((sum, { rate }) => sum + rate, 0)), tail = 0;
  masses[0] = 1;
  for (let m = 1; m <= last; m++) {
    let mass = 0;
    parts.forEach(({ shape, ratio, size }, i) => {
      if (m < size) return;
      const sum = ratio * (sums[i]![m - size]! + masses[m - size]!);
      sums[i]![m] = sum;
      mass += shape * size * sum;
    });
    for (const { rate, size } of groups) if (m >= size) mass += rate * size * masses[m - size]!;
    masses[m] = mass / m;
    if (m >= least) tail += mass / m;
    if (mass > RESCALE) {
      for (const list of [masses, ...sums]) for (let back = Math.max(0, m - farthest); back <= m; back++) list[back]! /= RESCALE;
      tail /= RESCALE;
      scale += Math.log(RESCALE);
    }
    if (m % 1024 === 0 && m > least) {
      const beyond = chernoff(parts, groups, m + 1);
      if (beyond <= 1e-12 * tail * Math.exp(scale)) return roundedUp(tail * Math.exp(scale), beyond);
    }
  }
  return roundedUp(tail * Math.exp(scale), chernoff(parts, groups, last + 1));
}

/** Pr[M >= least] <= E[z^M] / z^least for every z above 1; z = e^t is chosen by ternary search, and each is valid. */
function chernoff(parts: readonly Part[], groups: readonly Groups[], least: number): number {
  const ofGroups = (t: number) => groups.reduce((sum, { rate, size }) => sum + rate * Math.expm1(size * t), 0);
  const exponent = (t: number) =>
    parts.reduce((sum, { shape, ratio, logNotRatio, size }) => sum + shape * (logNotRatio - Math.log1p(-ratio * Math.exp(size * t))), ofGroups(t) - least * t);
  let low = 0, high = Math.min(...parts.map(({ ratio, size }) => -Math.log(ratio) / size), ...groups.map(({ size }) => 300 / size)) * (1 - 1e-9);
  for (let round = 0; round < 80; round++) {
    const first = low + (high - low) / 3, second = high - (high - low) / 3;
    if (exponent(first) < exponent(second)) high = second;
    else low = first;
  }
  const bound = Math.exp(exponent(low));
  return bound >= 0 ? Math.min(1, bound) : 1;
}
