/** Ghazi et al.: noise in shares, and pairs of messages that cancel (histogram/correlated-noise). */
import { chanceOfAtLeast } from "../accounting/capping.ts";
import { unaryPair, type CorrelatedNoise, type Pair } from "../accounting/correlated.ts";
import { roundedUp, twoSided } from "../accounting/divergence.ts";
import { type Json } from "../canonical.ts";
import { SecureNoise, type NoiseDraws } from "../noise.ts";
import { complement, fraction, logComplement, properDyadic, ratioToDouble, toDouble, type Dyadic, type Ratio } from "../numbers.ts";
import { type Message } from "../packing.ts";
import { check, Refusal } from "../refusal.ts";
import { histogramParameters, type Reader, type Readers } from "./protocol.ts";

const LEAST_COMPLEMENT = 2 ** -18;
const WIDEST = 1e6;
/** Each takes three draws: more would keep a device busy for minutes. */
const MAX_CATEGORIES = 1 << 20;

/** Refuses noise whose distribution is too wide to compute with. */
export function checkWidth({ ratio, floodShape, floodRatio }: CorrelatedNoise): void {
  const width = (shape: number, r: Dyadic) => (shape * toDouble(r) + 12 * Math.sqrt(shape * toDouble(r))) / toDouble(complement(r));
  check(width(1, ratio) + width(ratioToDouble(floodShape), floodRatio) <= WIDEST, "noise that is not too wide to compute with");
}

/** The ratio of noise that is drawn in shares: at most 1 - 2^-18. */
export function drawable(document: Json | undefined): Dyadic {
  const ratio = properDyadic(document);
  check(toDouble(complement(ratio)) >= LEAST_COMPLEMENT, "the noise is too wide to draw");
  return ratio;
}

/** The noise of one cell, or null if it is more than `room` messages. */
export function cellNoise(draws: NoiseDraws, noise: CorrelatedNoise, honest: number, plus: Message, minus: Message, room: number): Message[] | null {
  const own: Ratio = { numerator: 1n, denominator: BigInt(honest) };
  const pairs: Ratio = { numerator: noise.floodShape.numerator, denominator: noise.floodShape.denominator * BigInt(honest) };
  const messages: Message[] = [];
  for (const sign of [plus, minus]) {
    const copies = draws.shares(own, noise.ratio, room - messages.length);
    if (copies > room - messages.length) return null;
    for (let copy = 0; copy < copies; copy++) messages.push(sign);
  }
  const copies = draws.shares(pairs, noise.floodRatio, (room - messages.length) >> 1);
  if (2 * copies > room - messages.length) return null;
  for (let copy = 0; copy < copies; copy++) messages.push(plus, minus);
  return messages;
}

/** The noise of cells 0, 1, ... with the flag 0 for plus and 1 for minus, after a user's own messages. */
export function noisyCells(draws: NoiseDraws, noise: CorrelatedNoise, honest: number, cells: number, own: Message[], limit: number): Message[] | null {
  const messages = own;
  for (let cell = 0n; cell < cells; cell++) {
    const added = cellNoise(draws, noise, honest, [cell, 0n], [cell, 1n], limit - messages.length);
    if (!added) return null;
    messages.push(...added);
  }
  return messages;
}

/** An upper bound of the probability that the noise of this many cells has at least `least` messages. */
export function chanceOfNoise(noise: CorrelatedNoise, honest: number, cells: number, least: number): number {
  const part = (shape: number, ratio: Dyadic, size: number) => ({ shape: shape / honest, ratio: toDouble(ratio), logNotRatio: logComplement(ratio), size });
  return chanceOfAtLeast([part(2 * cells, noise.ratio, 1), part(cells * ratioToDouble(noise.floodShape), noise.floodRatio, 2)], least);
}

/** Messages of the noise on average. */
export const expectedNoise = ({ ratio, floodShape, floodRatio }: CorrelatedNoise, honest: number, cells: number): number =>
  ((2 * cells) / honest) * (toDouble(ratio) / toDouble(complement(ratio)) + (ratioToDouble(floodShape) * toDouble(floodRatio)) / toDouble(complement(floodRatio)));

/** The source of randomness. */
export const drawNoise = (): NoiseDraws => new SecureNoise();

export const NOISE = { ratio: drawable, flood_shape: fraction, flood_ratio: drawable };

/** Delta of two cells of which one gains a message and the other one loses it. */
export function twoCellsDelta(noise: CorrelatedNoise): (epsilon: number) => number {
  let pair: Pair | undefined; // computed when it is needed: not for a task that is refused before
  return (epsilon) => {
    const { p, q, leftOut } = (pair ??= unaryPair(noise));
    return roundedUp(twoSided(p, q, Math.exp(epsilon)), 2 * leftOut);
  };
}

const correlatedHistogram: Reader = (document) => {
  const { terms, domain, k, ratio, flood_shape: floodShape, flood_ratio: floodRatio } = histogramParameters(document, NOISE), noise = { ratio, floodShape, floodRatio };
  checkWidth(noise);
  if (k > MAX_CATEGORIES) throw new Refusal("policy", `this device draws noise for at most ${MAX_CATEGORIES} categories`);
  return {
    domain, terms, localEpsilon: Infinity, maxMessages: null,
    format: { bounds: [BigInt(k)], flags: 1 },
    draws: 2 * expectedNoise(noise, terms.honest, k),
    source: drawNoise,
    randomize: (draws: NoiseDraws, x, limit) => noisyCells(draws, noise, terms.honest, k, [[BigInt(x), 0n]], limit),
    delta: twoCellsDelta(noise),
    chanceOfMore: (limit) => chanceOfNoise(noise, terms.honest, k, limit),
  };
};

export const READERS: Readers = { "histogram/correlated-noise": correlatedHistogram };
