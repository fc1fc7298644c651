/** Ghazi et al.: noise in shares, and pairs of messages that cancel (histogram/correlated-noise, version 1). */
import { chanceOfAtLeast, type Part } from "../accounting/capping.ts";
import { negativeBinomial, unaryPair, type Flood, type Pair } from "../accounting/correlated.ts";
import { roundedUp, twoSided } from "../accounting/divergence.ts";
import { type Json } from "../canonical.ts";
import { SecureNoise, type NoiseDraws } from "../noise.ts";
import { complement, fraction, gcd, logComplement, properDyadic, ratioToDouble, toDouble, type Dyadic, type Ratio } from "../numbers.ts";
import { type Message } from "../packing.ts";
import { check, Refusal } from "../refusal.ts";
import { histogramParameters, type Reader, type Readers } from "./protocol.ts";

const LEAST_COMPLEMENT = 2 ** -18;
const WIDEST = 1e6;
/** Each takes three draws: more would keep a device busy for minutes. */
const MAX_CATEGORIES = 1 << 20;

/** Noise that stays, of this ratio, and a negative binomial number of pairs that cancel. */
export interface CorrelatedNoise { readonly ratio: Dyadic; readonly floodShape: Ratio; readonly floodRatio: Dyadic }

/** Mean and twelve standard deviations of shares. */
const width = (shape: number, r: Dyadic): number => (shape * toDouble(r) + 12 * Math.sqrt(shape * toDouble(r))) / toDouble(complement(r));

/** Refuses noise whose distribution is too wide to compute with. */
export const checkWidth = (ratio: Dyadic, pairs = 0): void => check(width(1, ratio) + pairs <= WIDEST, "noise that is not too wide to compute with");

export function checkCategories(k: number): void {
  if (k > MAX_CATEGORIES) throw new Refusal("policy", `this device draws noise for at most ${MAX_CATEGORIES} categories`);
}

/** The ratio of noise that is drawn in shares: at most 1 - 2^-18. */
export function drawable(document: Json | undefined): Dyadic {
  const ratio = properDyadic(document);
  check(toDouble(complement(ratio)) >= LEAST_COMPLEMENT, "the noise is too wide to draw");
  return ratio;
}

/** A ratio times cells over honest users. */
export function perReport({ numerator, denominator }: Ratio, cells: number, honest: number): Ratio {
  const top = numerator * BigInt(cells), bottom = denominator * BigInt(honest), divisor = gcd(top, bottom);
  return { numerator: top / divisor, denominator: bottom / divisor };
}

/** The noise of one cell that does not cancel. */
export function stayingNoise(draws: NoiseDraws, ratio: Dyadic, honest: number, plus: Message, minus: Message, room: number): Message[] | null {
  const own: Ratio = { numerator: 1n, denominator: BigInt(honest) };
  const messages: Message[] = [];
  for (const sign of [plus, minus]) {
    const copies = draws.shares(own, ratio, room - messages.length);
    if (copies > room - messages.length) return null;
    for (let copy = 0; copy < copies; copy++) messages.push(sign);
  }
  return messages;
}

/** The noise of one cell, or null if it is more than `room` messages. */
export function cellNoise(draws: NoiseDraws, { ratio, floodShape, floodRatio }: CorrelatedNoise, honest: number, plus: Message, minus: Message, room: number): Message[] | null {
  const messages = stayingNoise(draws, ratio, honest, plus, minus, room);
  if (!messages) return null;
  const copies = draws.shares(perReport(floodShape, 1, honest), floodRatio, (room - messages.length) >> 1);
  if (2 * copies > room - messages.length) return null;
  for (let copy = 0; copy < copies; copy++) messages.push(plus, minus);
  return messages;
}

/** The noise of cells 0, 1, ... with the flag 0 for plus and 1 for minus, after a user's own messages. */
export function noisyCells(ofCell: (plus: Message, minus: Message, room: number) => Message[] | null, cells: number, own: Message[], limit: number): Message[] | null {
  const messages = own;
  for (let cell = 0n; cell < cells; cell++) {
    const added = ofCell([cell, 0n], [cell, 1n], limit - messages.length);
    if (!added) return null;
    messages.push(...added);
  }
  return messages;
}

/** shares(shape / honest, ratio) of `size` messages at a time. */
export const noisePart = (shape: number, ratio: Dyadic, size: number, honest: number): Part => ({ shape: shape / honest, ratio: toDouble(ratio), logNotRatio: logComplement(ratio), size });

/** An upper bound of the probability that the noise of this many cells has at least `least` messages. */
export const chanceOfNoise = ({ ratio, floodShape, floodRatio }: CorrelatedNoise, honest: number, cells: number, least: number): number =>
  chanceOfAtLeast([noisePart(2 * cells, ratio, 1, honest), noisePart(cells * ratioToDouble(floodShape), floodRatio, 2, honest)], least);

/** The mean of shares(1, ratio). */
export const odds = (ratio: Dyadic): number => toDouble(ratio) / toDouble(complement(ratio));

/** Messages of the noise on average. */
export const expectedNoise = ({ ratio, floodShape, floodRatio }: CorrelatedNoise, honest: number, cells: number): number =>
  ((2 * cells) / honest) * (odds(ratio) + ratioToDouble(floodShape) * odds(floodRatio));

/** The source of randomness. */
export const drawNoise = (): NoiseDraws => new SecureNoise();

const NOISE = { ratio: drawable, flood_shape: fraction, flood_ratio: drawable };

/** The parameters of the noise; `read` reads them with others. */
export function readNoise<P extends { ratio: Dyadic; flood_shape: Ratio; flood_ratio: Dyadic }>(read: (readers: typeof NOISE) => P): P & { readonly noise: CorrelatedNoise } {
  const parameters = read(NOISE), { ratio, flood_shape: floodShape, flood_ratio: floodRatio } = parameters;
  checkWidth(ratio, width(ratioToDouble(floodShape), floodRatio));
  return { ...parameters, noise: { ratio, floodShape, floodRatio } };
}

/** How many pairs there are. */
export const floodOf = ({ floodShape, floodRatio }: CorrelatedNoise): Flood => negativeBinomial(ratioToDouble(floodShape), toDouble(floodRatio), toDouble(complement(floodRatio)));

/** Delta of two cells of which one gains a message and the other one loses it. */
export function twoCellsDelta(pairOf: () => Pair): (epsilon: number) => number {
  let pair: Pair | undefined; // computed when it is needed: not for a task that is refused before
  return (epsilon) => {
    const { p, q, leftOut } = (pair ??= pairOf());
    return roundedUp(twoSided(p, q, Math.exp(epsilon)), 2 * leftOut);
  };
}

const correlatedHistogram: Reader = (document) => {
  const { terms, domain, k, noise } = readNoise((readers) => histogramParameters(document, readers));
  checkCategories(k);
  return {
    domain, terms, localEpsilon: Infinity, maxMessages: null,
    format: { bounds: [BigInt(k)], flags: 1 },
    draws: 2 * expectedNoise(noise, terms.honest, k),
    source: drawNoise,
    randomize: (draws: NoiseDraws, x, limit) => noisyCells((...cell) => cellNoise(draws, noise, terms.honest, ...cell), k, [[BigInt(x), 0n]], limit),
    delta: twoCellsDelta(() => unaryPair(noise.ratio, floodOf(noise))),
    chanceOfMore: (limit) => chanceOfNoise(noise, terms.honest, k, limit),
  };
};

export const READERS: Readers = { "histogram/correlated-noise": correlatedHistogram };
