/** Uniform messages as a blanket: a user's message among those that hit the same two cells. */
import { type Dyadic } from "../numbers.ts";
import { binomial, binomialWindow, type Window } from "./binomial.ts";
import { roundedUp } from "./divergence.ts";

export interface Blanket { readonly whole: number; readonly rest: Dyadic }

/** The work of one bound, in steps; beyond it, the bound gets coarser, never too small. */
const MAX_STEPS = 1 << 25;
const WIDEST_VARIANCE = 1e8;

/** The number of uniform messages of h users that hit with probability share/n each; every `step`th number stands for those after it. */
function hits({ whole, rest }: Blanket, h: number, n: bigint, share = 2n): Steps {
  const first = windowOf(h * whole, share, n), second = windowOf(h, share * rest.numerator, n << BigInt(rest.bits));
  const step = Math.ceil(Math.sqrt((first.masses.length * second.masses.length) / MAX_STEPS)), [a, b] = [coarser(first, step), coarser(second, step)];
  const masses = new Float64Array(a.length + b.length - 1);
  for (let i = 0; i < a.length; i++) for (let j = 0; j < b.length; j++) masses[i + j]! += a[i]! * b[j]!;
  return { first: first.first + second.first, masses, outside: first.outside + second.outside, step };
}

interface Steps extends Window { readonly step: number }

/** A window; of a very wide distribution its lower end alone, by Chernoff's bound: fewer hits hide less, so the bound grows. */
function windowOf(trials: number, numerator: bigint, denominator: bigint): Window {
  if (numerator === 0n || trials === 0) return { first: 0, masses: Float64Array.of(1), outside: 0 };
  const p = Number(numerator) / Number(denominator), q = Number(denominator - numerator) / Number(denominator), mean = trials * p;
  if (mean * q < WIDEST_VARIANCE) return binomialWindow(trials, p, q);
  return { first: Math.floor(mean - Math.sqrt(1400 * mean)), masses: Float64Array.of(1), outside: 1e-300 };
}

/** The masses of every `step` numbers added up. */
function coarser({ masses }: Window, step: number): Float64Array {
  if (step <= 1) return masses;
  const sums = new Float64Array(Math.ceil(masses.length / step));
  masses.forEach((mass, i) => { sums[Math.floor(i / step)]! += mass; });
  return sums;
}

/** Delta of a message in the clear among the uniform messages of h users on n cells: exact, but rounded up. */
export const blanketDelta = (blanket: Blanket, h: number, n: bigint, epsilon: number): number =>
  n === 1n ? 0 : amongClones(hits(blanket, h, n), { alpha: 1, notAlpha: 0, E: Math.exp(epsilon) });

/** The same for hashed values on n buckets, two of which have the same hash with probability a/d: such messages hide both. */
export function hashedBlanketDelta(blanket: Blanket, h: number, n: bigint, a: bigint, d: bigint, epsilon: number): number {
  const { first, masses, outside, step } = hits(blanket, h, n * d, 2n * d - a), collision = Number(a) / Number(d), E = Math.exp(epsilon);
  const skip = Math.ceil(Math.sqrt(first + step * masses.length) / 80);
  let sum = 0, divergence = 1;
  masses.forEach((mass, i) => {
    if (i % skip === 0) divergence = threeKindsDivergence(first + step * i + 1, collision, E); // it falls, as below
    sum += mass * divergence;
  });
  return roundedUp(sum, outside);
}

/**
 * Of n messages that agree with either of two values, one is the user's. Bin(n, c/(2 - c)) of them agree with both: (2 - c)/n
 * times the expectation of max(0, A + both - E (n - A)), A of Bin(n - both, 1/2). It falls with `both`: the least of a block is a bound.
 */
function threeKindsDivergence(n: number, c: number, E: number): number {
  const { first, masses, outside } = binomialWindow(n, c / (2 - c), (2 - 2 * c) / (2 - c), 1e-60), block = Math.max(1, Math.floor(n / 1400));
  let sum = 0, gain = 0;
  masses.forEach((mass, i) => {
    if (i % block === 0) gain = expectedGain(n - first - i, first + i, E);
    sum += mass * gain;
  });
  return ((2 - c) / n) * sum + outside;
}

/** The expectation of max(0, A + both - E (n - A + both)) for A of Bin(n, 1/2): no difference of large numbers if A = n. */
function expectedGain(n: number, both: number, E: number): number {
  const start = Math.max(0, Math.min(n, Math.floor((E * n + (E - 1) * both) / (1 + E))) - 1);
  let sum = 0, mass = binomial(start, n, 0.5, 0.5);
  for (let i = start; i <= n; i++) {
    const term = mass * Math.max(0, i + both - E * (n - i + both));
    sum += term;
    if (mass === 0 || (term < 1e-17 * sum && 2 * i > n)) break;
    mass *= (n - i) / (i + 1);
  }
  return sum;
}

/** A message that is of its own type with probability alpha, compared with one of the other type, at E = e^epsilon. */
export interface Types { readonly alpha: number; readonly notAlpha: number; readonly E: number }

/** Delta of a message if each of the other users is a clone of it with this probability. */
export const clonesDelta = (others: number, rate: number, types: Types): number =>
  amongClones(others === 0 ? { first: 0, masses: Float64Array.of(1), outside: 0 } : binomialWindow(others, Math.min(1, rate), Math.max(0, 1 - rate)), types);

/** The expectation of the divergence over the number of clones. */
function amongClones({ first, masses, outside, step = 1 }: Window & { step?: number }, types: Types): number {
  const width = 16 * Math.sqrt(first + step * masses.length) + 64, skip = Math.ceil((masses.length * width) / MAX_STEPS);
  let sum = 0, divergence = 1;
  masses.forEach((mass, i) => {
    if (i % skip === 0) divergence = twoTypesDivergence(first + step * i, types); // it falls with the number of clones: the last one is a bound
    sum += mass * divergence;
  });
  return roundedUp(sum, outside);
}

/**
 * Of t + 1 messages i are of the first type: t clones, of which b(i) = Bin(t, 1/2)(i) are, and the message itself. The sum
 * over i of max(0, b(i - 1) (alpha - E notAlpha) - b(i) (E alpha - notAlpha)), whose terms are positive from some i on.
 */
function twoTypesDivergence(t: number, { alpha, notAlpha, E }: Types): number {
  const gain = alpha - E * notAlpha + 2 ** -50 * (alpha + E * notAlpha), loss = E * alpha - notAlpha;
  if (!(gain > 0)) return 0;
  const start = Math.max(0, Math.floor((loss / (gain + loss)) * (t + 1)) - 1);
  let sum = 0, mass = binomial(start, t, 0.5, 0.5);
  for (let i = start; i <= t; i++) {
    const term = (mass * Math.max(0, i * gain - (t + 1 - i) * loss)) / (t + 1 - i);
    sum += term;
    if (mass === 0 || (term < 1e-17 * sum && 2 * i > t)) break;
    mass *= (t - i) / (i + 1);
  }
  return sum + 2 ** -t * gain; // i = t + 1
}
