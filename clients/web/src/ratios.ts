/** Exact comparisons of probabilities, and logarithms of ratios that are never rounded down. */
import { type Dyadic } from "./numbers.ts";

/** ln(numerator / denominator) of positive integers, rounded up. */
export function logRatioAbove(numerator: bigint, denominator: bigint): number {
  const ratio = (numerator << 80n) / denominator + 1n, excess = Number(ratio - (1n << 80n)) / 2 ** 80;
  const logarithm = Math.abs(excess) < 0.25 ? Math.log1p(excess) : Math.log(Number(ratio) / 2 ** 80);
  return logarithm + Math.abs(logarithm) * 1e-14 + 1e-15;
}

/** Whether p < q. */
export const isBelow = (p: Dyadic, q: Dyadic): boolean => p.numerator << BigInt(q.bits) < q.numerator << BigInt(p.bits);

/** The exact value of a finite double from 0 on. */
export function dyadicOf(x: number): Dyadic {
  let bits = 0;
  for (; !Number.isInteger(x); bits++) x *= 2;
  return { numerator: BigInt(x), bits };
}
