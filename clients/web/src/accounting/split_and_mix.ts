/** The mixing of shares, and the discrete Laplace noise of their sum: Balle, Bell, Gascon and Nissim (2020). */
import { complement, toDouble, type Dyadic } from "../numbers.ts";
import { roundedUp } from "./divergence.ts";

export interface Split { readonly honest: number; readonly levels: number; readonly ratio: Dyadic; readonly messages: number; readonly modulus: bigint }

export function splitAndMixDelta({ honest, levels, ratio, messages, modulus }: Split, epsilon: number): number {
  if (honest < 19 || messages < 4) return 1; // mixing is proved for these alone
  const mixing = Math.exp((Math.log(Number(modulus)) + (messages - 2) * (1 - Math.log(honest))) / 2);
  return roundedUp(Math.min(1, mixing) + laplaceDelta(levels, ratio, epsilon));
}

/**
 * The sum over all integers i of max(0, d(i) - E d(i - levels)), d(i) = (1 - r) / (1 + r) r^|i|.
 *
 * The ratio of the two falls from r^-levels to r^levels as i grows, so the terms up to some i <= levels are positive.
 * With m = floor((levels - epsilon / ln(1/r)) / 2) they are those up to m, and add up to the difference of two tails.
 */
function laplaceDelta(levels: number, ratio: Dyadic, epsilon: number): number {
  const notRatio = toDouble(complement(ratio)), decay = -(notRatio < 0.5 ? Math.log1p(-notRatio) : Math.log(toDouble(ratio)));
  if (epsilon >= levels * decay) return 0;
  let sum = 0;
  const r = toDouble(ratio), last = Math.floor((levels - epsilon / decay) / 2) + 1;
  // below 0 the ratio of d(i) and d(i - levels) is constant: r^levels
  sum += (r / (1 + r)) * -Math.expm1(epsilon - levels * decay);
  const scale = notRatio / (1 + r), steps = Math.min(last, MAX_STEPS);
  for (let i = 0; i <= steps; i++) sum += scale * Math.exp(-decay * i) * Math.max(0, -Math.expm1(epsilon - decay * (levels - 2 * i)));
  return sum + (last > steps ? Math.exp(-decay * steps) : 0); // what is not summed is added in full
}
const MAX_STEPS = 1 << 22;
