/** The correlated noise of Ghazi et al.: what remains of it in the sum, and what hides it in the number of messages. */
import { complement, toDouble, type Dyadic } from "../numbers.ts";
import { oneSided } from "./divergence.ts";

/** Probabilities of 0, 1, ... pairs that cancel, and a bound of those that are left out. */
export interface Flood { readonly masses: Float64Array; readonly leftOut: number }

/** Probabilities of a user's message among the noise (p) and without it (q), and a bound of what the lists leave out. */
export interface Pair { readonly p: Float64Array; readonly q: Float64Array; readonly leftOut: number }

export const LONGEST = 1 << 20;

/** Negative binomial probabilities from 0 on, and a bound of those that are left out. */
export function negativeBinomial(shape: number, ratio: number, notRatio: number): Flood {
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

/** W(i) = F(i) + a^2 F(i - 1) + a^4 F(i - 2) + ...; behind the list every W(i) is a^2 W(i - 1). */
function weights(ratio: Dyadic, { masses, leftOut }: Flood): { W: Float64Array; a: number; notA: number; leftOut: number } {
  const a = toDouble(ratio);
  for (let i = 1; i < masses.length; i++) masses[i]! += a * a * masses[i - 1]!;
  return { W: masses, a, notA: toDouble(complement(ratio)), leftOut: 2 * leftOut };
}

/** Of one cell: a message that was added, and none. What is equally likely is one entry, the last. */
export function unaryPair(ratio: Dyadic, flood: Flood): Pair {
  const { W, a, notA, leftOut } = weights(ratio, flood), n = W.length, p = new Float64Array(n + 1), q = new Float64Array(n + 1);
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
export function signedDelta(ratio: Dyadic, flood: Flood, E: number): { sum: number; leftOut: number } {
  const { W, a, notA, leftOut } = weights(ratio, flood);
  const own = W.map((weight) => notA * weight), other = W.map((_, i) => (i ? notA * a * a * W[i - 1]! : 0));
  return { sum: oneSided(own, other, E) + oneSided(other, own, E), leftOut };
}
