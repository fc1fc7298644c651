/** The correlated noise of Ghazi et al.: what remains of it in the sum, and what hides it in the number of messages. */
import { complement, ratioToDouble, toDouble, type Dyadic, type Ratio } from "../numbers.ts";
import { oneSided } from "./divergence.ts";

/** Clusters of pairs: their rate, and ranges of sizes with the weight of each size; and the rate of single messages, if there are any. */
export interface Clusters { readonly rate: Ratio; readonly ranges: readonly (readonly [first: number, last: number, weight: number])[]; readonly singles: Ratio | null }
/** Noise that stays, of this ratio, and pairs that cancel: a negative binomial number of them, or clusters. */
export type CorrelatedNoise = { readonly ratio: Dyadic } & ({ readonly floodShape: Ratio; readonly floodRatio: Dyadic } | { readonly clusters: Clusters });

/** Probabilities of a user's message among the noise (p) and without it (q), and a bound of what the lists leave out. */
export interface Pair { readonly p: Float64Array; readonly q: Float64Array; readonly leftOut: number }

const LONGEST = 1 << 20;

/** Negative binomial probabilities from 0 on, and a bound of those that are left out. */
export function negativeBinomial(shape: number, ratio: number, notRatio: number): { masses: Float64Array; leftOut: number } {
  const mode = Math.max(0, Math.floor(((shape - 1) * ratio) / notRatio)), masses = [1];
  if (mode >= LONGEST) return { masses: Float64Array.of(0), leftOut: 1 };
  let leftOut = Infinity;
  for (let k = mode; leftOut > 1e-300 && masses.length < LONGEST; k++) {
    const growth = ((shape + k) * ratio) / (k + 1), bound = Math.max(growth, ratio);
    masses.push(masses.at(-1)! * growth);
    leftOut = bound < 1 ? masses.at(-1)! / (1 - bound) : Infinity;
  }
  const down: number[] = [];
  for (let k = mode, mass = 1; k > 0; k--) down.push((mass *= k / ((shape + k - 1) * ratio)));
  const all = Float64Array.from([...down.reverse(), ...masses]), sum = all.toSorted().reduce((total, mass) => total + mass, 0);
  return { masses: all.map((mass) => mass / sum), leftOut: leftOut / sum };
}

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

function floodMasses(noise: CorrelatedNoise): { masses: Float64Array; leftOut: number } {
  if (!("clusters" in noise)) return negativeBinomial(ratioToDouble(noise.floodShape), toDouble(noise.floodRatio), toDouble(complement(noise.floodRatio)));
  const rates = clusterRates(noise.clusters), length = reachOf(rates, CLUSTER_RISK);
  if (!(length < LONGEST && length * rates.length <= MOST_TERMS)) return { masses: Float64Array.of(0), leftOut: 1 };
  return { masses: clusterMasses(noise.clusters, length), leftOut: CLUSTER_RISK };
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

/** W(i) = F(i) + a^2 F(i - 1) + a^4 F(i - 2) + ...; behind the list every W(i) is a^2 W(i - 1). */
function weights(noise: CorrelatedNoise): { W: Float64Array; a: number; notA: number; leftOut: number } {
  const { masses, leftOut } = floodMasses(noise), { ratio } = noise;
  const a = toDouble(ratio);
  for (let i = 1; i < masses.length; i++) masses[i]! += a * a * masses[i - 1]!;
  return { W: masses, a, notA: toDouble(complement(ratio)), leftOut: 2 * leftOut };
}

/** Of one cell: a message that was added, and none. What is equally likely is one entry, the last. */
export function unaryPair(noise: CorrelatedNoise): Pair {
  const { W, a, notA, leftOut } = weights(noise), n = W.length, p = new Float64Array(n + 1), q = new Float64Array(n + 1);
  for (let i = 0; i < n; i++) {
    q[i] = notA * W[i]!;
    p[i] = i ? notA * a * W[i - 1]! : 0;
  }
  const behind = (W[n - 1]! * a) / (1 + a); // notA a^2 / (1 - a^2) W(n - 1), over a
  p[n] = behind + 1 / (1 + a);
  q[n] = a * behind + a / (1 + a);
  return { p, q, leftOut };
}

/** Of a count to which every user adds a sign: by symmetry one direction is enough. */
export function signedDelta(noise: CorrelatedNoise, E: number): { sum: number; leftOut: number } {
  const { W, a, notA, leftOut } = weights(noise);
  const own = W.map((weight) => notA * weight), other = W.map((_, i) => (i ? notA * a * a * W[i - 1]! : 0));
  return { sum: oneSided(own, other, E) + oneSided(other, own, E), leftOut };
}
