/** Uniform messages as a blanket: a user's message among those that hit the same two cells. */
import { type Dyadic } from "../numbers.ts";
import { binomial, binomialWindow, OUTSIDE, type Window } from "./binomial.ts";
import { roundedUp } from "./divergence.ts";

export interface Blanket { readonly whole: number; readonly rest: Dyadic }

/** The work of one bound, in steps; beyond it, the bound gets coarser, never too small. */
const MAX_STEPS = 1 << 25;

/** The number T of uniform messages of h users that hit either of two of n cells. */
export function hits({ whole, rest }: Blanket, h: number, n: bigint): Window {
  const first = window(h * whole, 2n, n), second = window(h, 2n * rest.numerator, n << BigInt(rest.bits));
  const steps = Math.ceil(Math.sqrt((first.masses.length * second.masses.length) / MAX_STEPS));
  const [a, b] = [coarser(first, steps), coarser(second, steps)];
  const masses = new Float64Array(a.masses.length + b.masses.length - 1);
  a.masses.forEach((p, i) => p > 0 && b.masses.forEach((q, j) => { masses[i + j]! += p * q; }));
  return { first: a.first + b.first, masses };
}

const window = (trials: number, numerator: bigint, denominator: bigint): Window =>
  numerator === 0n || trials === 0
    ? { first: 0, masses: Float64Array.of(1) }
    : binomialWindow(trials, Number(numerator) / Number(denominator), Number(denominator - numerator) / Number(denominator));

/** All but every so manieth mass is moved down: fewer hits hide less, so the bound grows. */
function coarser({ first, masses }: Window, step: number): Window {
  if (step <= 1) return { first, masses };
  const moved = new Float64Array(masses.length);
  masses.forEach((mass, i) => { moved[i - (i % step)]! += mass; });
  return { first, masses: moved };
}

/** The expectation over T of the divergence of 1 + Bin(T, 1/2) and Bin(T, 1/2). */
export function blanketDelta(blanket: Blanket, h: number, n: bigint, epsilon: number): number {
  if (n === 1n) return 0;
  const { first, masses } = hits(blanket, h, n), E = Math.exp(epsilon);
  const width = 16 * Math.sqrt(first + masses.length) + 64, step = Math.ceil((masses.length * width) / MAX_STEPS);
  let sum = 0, divergence = 1;
  masses.forEach((mass, i) => {
    if (i % step === 0) divergence = coinDivergence(first + i, E); // it falls with t: the last one is a bound
    sum += mass * divergence;
  });
  return roundedUp(sum, 2 * OUTSIDE);
}

/** The sum over i of max(0, b(i - 1) - E b(i)), b = Bin(t, 1/2): all i from the first on at which i > E (t + 1 - i). */
function coinDivergence(t: number, E: number): number {
  const start = Math.max(0, Math.floor((E / (1 + E)) * (t + 1)));
  let sum = 0, mass = binomial(start, t, 0.5, 0.5);
  for (let i = start; i <= t; i++) {
    const gain = (mass * Math.max(0, i - E * (t + 1 - i))) / (t + 1 - i);
    sum += gain;
    if (i > start + 1 && gain < 1e-17 * sum && i > t / 2) break;
    mass *= (t - i) / (i + 1);
  }
  return sum + 2 ** -t; // i = t + 1
}
