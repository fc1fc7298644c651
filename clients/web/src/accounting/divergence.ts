/** Hockey-stick divergences of lists of probabilities: sums of positive terms, rounded up. */

/** Tasks leave a relative 1e-9 of delta; the sums of this client err by less than 1e-10. */
const ROUNDING = 1 + 2e-10;
/** More than everything that underflows in a sum. */
const TINY = 1e-290;

/** An upper bound from a sum of positive terms, and what was left out of it. */
export const roundedUp = (sum: number, leftOut = 0): number => sum * ROUNDING + leftOut + TINY;

/** The sum of max(0, p_i - E q_i). */
export function oneSided(p: Float64Array, q: Float64Array, E: number): number {
  let sum = 0;
  for (let i = 0; i < p.length; i++) sum += Math.max(0, p[i]! - E * q[i]!);
  return sum;
}

/** The sum over i and j of max(0, p_i q_j - E q_i p_j): sorted by p / q, the positive terms of one i are those of the first j. */
export function twoSided(p: Float64Array, q: Float64Array, E: number): number {
  const order = byRatio(p, q).filter((i) => p[i]! > 0 || q[i]! > 0); // one without mass would end the inner loop
  let sum = 0, next = 0, lessP = 0, lessQ = 0;
  for (const i of order) {
    for (; next < order.length; next++) {
      const j = order[next]!;
      if (!(p[i]! * q[j]! > E * q[i]! * p[j]!)) break;
      lessP += p[j]!;
      lessQ += q[j]!;
    }
    sum += Math.max(0, p[i]! * lessQ - E * q[i]! * lessP);
  }
  return sum;
}

/** The indices in ascending order of p / q; often they are so already. */
function byRatio(p: Float64Array, q: Float64Array): Uint32Array {
  const ratios = p.map((mass, i) => (q[i]! > 0 ? mass / q[i]! : mass > 0 ? Infinity : 0)), order = Uint32Array.from(p.keys());
  return ratios.every((ratio, i) => i === 0 || ratios[i - 1]! <= ratio) ? order : order.sort((i, j) => (ratios[i]! === ratios[j]! ? 0 : ratios[i]! - ratios[j]!));
}

/** Delta of a randomizer that has epsilon e0 on its own. */
export const pureDelta = (epsilon: number, e0: number): number => (epsilon >= e0 ? 0 : (-Math.expm1(epsilon - e0) / (1 + Math.exp(-e0))) * (1 + 1e-12));
