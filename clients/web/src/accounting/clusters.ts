/** Clusters of pairs that cancel, which hide the number of messages with fewer of them. */
import { complement, ratioToDouble, toDouble, type Dyadic, type Ratio } from "../numbers.ts";
import { LONGEST, type Flood, type Pair } from "./correlated.ts";

/** Their rate, and ranges of sizes with the weight of each size; and the rate of single messages, if there are any. */
export interface Clusters { readonly rate: Ratio; readonly ranges: readonly (readonly [first: number, last: number, weight: number])[]; readonly singles: Ratio | null }

/** Sizes of clusters and their rates. */
export function clusterRates({ rate, ranges }: Clusters): { size: number; rate: number }[] {
  const total = ranges.reduce((sum, [first, last, weight]) => sum + (last - first + 1) * weight, 0), unit = ratioToDouble(rate) / total;
  return ranges.flatMap(([first, last, weight]) => Array.from({ length: last - first + 1 }, (_, i) => ({ size: first + i, rate: unit * weight })));
}

/** A number that pairs, and a geometric number of this ratio, reach together with a probability of at most `risk`, by Chernoff's bound. */
function reachOf(rates: readonly { size: number; rate: number }[], risk: number, ratio = 0): number {
  const largest = rates.at(-1)!.size;
  let reach = Infinity;
  for (let step = 0; step < 100; step++) {
    const t = (1e-3 / largest) * 6e4 ** (step / 99), odds = ratio * Math.exp(t);
    if (odds >= 1) break;
    const growth = rates.reduce((sum, { size, rate }) => sum + rate * Math.expm1(size * t), Math.log1p(-ratio) - Math.log1p(-odds));
    reach = Math.min(reach, ((growth - Math.log(risk)) / t) * (1 + 1e-12) + 1);
  }
  return Math.ceil(reach);
}

/** Probabilities of 0, 1, ... pairs: n F(n) is the sum over sizes s of s rate(s) F(n - s); all terms are positive. */
function clusterMasses(clusters: Clusters, length: number): Float64Array {
  const rates = clusterRates(clusters), masses = new Float64Array(length);
  masses[0] = Math.exp(-ratioToDouble(clusters.rate));
  for (let n = 1; n < length; n++) {
    let sum = 0;
    for (const { size, rate } of rates) {
      if (size > n) break;
      sum += size * rate * masses[n - size]!;
    }
    masses[n] = sum / n;
  }
  return masses;
}

const CLUSTER_RISK = 1e-60;
const TABLE_RISK = 1e-20;
const MOST_TERMS = 1 << 27;

export function clusterFlood(clusters: Clusters): Flood {
  const rates = clusterRates(clusters), length = reachOf(rates, CLUSTER_RISK);
  if (!(length < LONGEST && length * rates.length <= MOST_TERMS)) return { masses: Float64Array.of(0), leftOut: 1 };
  return { masses: clusterMasses(clusters, length), leftOut: CLUSTER_RISK };
}

/** Of one cell with singles: an entry for every number of plus and of minus messages. */
export function tablePair(ratio: Dyadic, clusters: Clusters & { readonly singles: Ratio }): Pair {
  const a = toDouble(ratio), singles = ratioToDouble(clusters.singles), rates = clusterRates(clusters), n = reachOf(rates, TABLE_RISK, a), nothing = { p: Float64Array.of(0), q: Float64Array.of(0), leftOut: 1 };
  let shifts = Math.max(1, Math.ceil(singles));
  while (shifts < LONGEST && shifts * (1 + Math.log(singles / shifts)) - singles > Math.log(TABLE_RISK)) shifts++;
  if (!((n + shifts + 1) * n <= 1 << 22 && n * n * shifts <= 1 << 29 && n * rates.length <= MOST_TERMS)) return nothing;
  const W = clusterMasses(clusters, n), notA = toDouble(complement(ratio)), p = new Float64Array((n + shifts + 1) * n), q = new Float64Array(p.length);
  for (let i = 1; i < n; i++) W[i]! += a * a * W[i - 1]!;
  const powers = Float64Array.from({ length: n }, (_, i) => notA * notA * a ** i);
  let mass = Math.exp(-singles);
  for (let j = 0; j < shifts; j++) {
    for (let u = 0; u < n; u++) for (let v = 0; v < n; v++) q[(u + j) * n + v]! += mass * powers[Math.abs(u - v)]! * W[Math.min(u, v)]!;
    mass *= singles / (j + 1);
  }
  p.set(q.subarray(0, q.length - n), n);
  return { p, q, leftOut: 3 * TABLE_RISK };
}
