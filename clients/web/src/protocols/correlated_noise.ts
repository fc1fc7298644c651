/** Ghazi et al.: noise in shares, and pairs of messages that cancel (histogram/correlated-noise). */
import { chanceOfAtLeast } from "../accounting/capping.ts";
import { clusterRates, tablePair, unaryPair, type Clusters, type CorrelatedNoise, type Pair } from "../accounting/correlated.ts";
import { roundedUp, twoSided } from "../accounting/divergence.ts";
import { list, type FieldReaders, type Json, type Read } from "../canonical.ts";
import { SecureNoise, type NoiseDraws } from "../noise.ts";
import { complement, fraction, gcd, integer, logComplement, properDyadic, ratioToDouble, toDouble, type Dyadic, type Ratio } from "../numbers.ts";
import { type Message } from "../packing.ts";
import { check, Refusal } from "../refusal.ts";
import { histogramParameters, type Reader, type Readers } from "./protocol.ts";

const LEAST_COMPLEMENT = 2 ** -18;
const WIDEST = 1e6;
/** Each takes three draws: more would keep a device busy for minutes. */
const MAX_CATEGORIES = 1 << 20;

/** Refuses noise whose distribution is too wide to compute with. */
export function checkWidth(noise: CorrelatedNoise): void {
  const width = (shape: number, r: Dyadic) => (shape * toDouble(r) + 12 * Math.sqrt(shape * toDouble(r))) / toDouble(complement(r));
  const pairs = "clusters" in noise ? 0 : width(ratioToDouble(noise.floodShape), noise.floodRatio);
  check(width(1, noise.ratio) + pairs <= WIDEST, "noise that is not too wide to compute with");
}

/** The ratio of noise that is drawn in shares: at most 1 - 2^-18. */
export function drawable(document: Json | undefined): Dyadic {
  const ratio = properDyadic(document);
  check(toDouble(complement(ratio)) >= LEAST_COMPLEMENT, "the noise is too wide to draw");
  return ratio;
}

/** A ratio times cells over honest users. */
function perReport({ numerator, denominator }: Ratio, cells: number, honest: number): Ratio {
  const top = numerator * BigInt(cells), bottom = denominator * BigInt(honest), divisor = gcd(top, bottom);
  return { numerator: top / divisor, denominator: bottom / divisor };
}

/** Singles and clusters of all cells, or null if they are more than `room` messages: one number for all, and a uniform cell for each. */
function clusterNoise(draws: NoiseDraws, { rate, ranges, singles }: Clusters, honest: number, cells: number, signs: (cell: bigint) => [Message, Message], room: number): Message[] | null {
  const messages: Message[] = [];
  const alone = singles ? draws.poisson(perReport(singles, cells, honest), room) : 0;
  if (alone > room) return null;
  for (let i = 0; i < alone; i++) messages.push(signs(draws.below(BigInt(cells)))[0]);
  const number = draws.poisson(perReport(rate, cells, honest), room >> 1);
  if (2 * number > room) return null;
  for (let i = 0; i < number; i++) {
    const pair = signs(draws.below(BigInt(cells)));
    const [first, last] = ranges[draws.weighted(ranges.map(([from, to, weight]) => BigInt(to - from + 1) * BigInt(weight)))]!;
    const size = first + Number(draws.below(BigInt(last - first + 1)));
    if (2 * size > room - messages.length) return null;
    for (let copy = 0; copy < size; copy++) messages.push(...pair);
  }
  return messages;
}

/** The noise of one cell, or null if it is more than `room` messages. */
export function cellNoise(draws: NoiseDraws, noise: CorrelatedNoise, honest: number, plus: Message, minus: Message, room: number): Message[] | null {
  const messages = stayingNoise(draws, noise, honest, plus, minus, room);
  if (!messages) return null;
  if ("clusters" in noise) {
    const added = clusterNoise(draws, noise.clusters, honest, 1, () => [plus, minus], room - messages.length);
    return added && [...messages, ...added];
  }
  const copies = draws.shares(perReport(noise.floodShape, 1, honest), noise.floodRatio, (room - messages.length) >> 1);
  if (2 * copies > room - messages.length) return null;
  for (let copy = 0; copy < copies; copy++) messages.push(plus, minus);
  return messages;
}

/** The noise of one cell that does not cancel. */
function stayingNoise(draws: NoiseDraws, noise: CorrelatedNoise, honest: number, plus: Message, minus: Message, room: number): Message[] | null {
  const own: Ratio = { numerator: 1n, denominator: BigInt(honest) };
  const messages: Message[] = [];
  for (const sign of [plus, minus]) {
    const copies = draws.shares(own, noise.ratio, room - messages.length);
    if (copies > room - messages.length) return null;
    for (let copy = 0; copy < copies; copy++) messages.push(sign);
  }
  return messages;
}

/** The noise of cells 0, 1, ... with the flag 0 for plus and 1 for minus, after a user's own messages. */
export function noisyCells(draws: NoiseDraws, noise: CorrelatedNoise, honest: number, cells: number, own: Message[], limit: number): Message[] | null {
  const messages = own, ofCell = "clusters" in noise ? stayingNoise : cellNoise;
  for (let cell = 0n; cell < cells; cell++) {
    const added = ofCell(draws, noise, honest, [cell, 0n], [cell, 1n], limit - messages.length);
    if (!added) return null;
    messages.push(...added);
  }
  if (!("clusters" in noise)) return messages;
  const added = clusterNoise(draws, noise.clusters, honest, cells, (cell) => [[cell, 0n], [cell, 1n]], limit - messages.length);
  return added && [...messages, ...added];
}

/** An upper bound of the probability that the noise of this many cells has at least `least` messages. */
export function chanceOfNoise(noise: CorrelatedNoise, honest: number, cells: number, least: number): number {
  const part = (shape: number, ratio: Dyadic, size: number) => ({ shape: shape / honest, ratio: toDouble(ratio), logNotRatio: logComplement(ratio), size });
  const staying = part(2 * cells, noise.ratio, 1);
  if (!("clusters" in noise)) return chanceOfAtLeast([staying, part(cells * ratioToDouble(noise.floodShape), noise.floodRatio, 2)], least);
  const groups = clusterRates(noise.clusters).map(({ size, rate }) => ({ size: 2 * size, rate: (rate * cells) / honest }));
  if (noise.clusters.singles) groups.push({ size: 1, rate: (ratioToDouble(noise.clusters.singles) * cells) / honest });
  return chanceOfAtLeast([staying], least, groups);
}

/** Messages of the noise on average. */
export function expectedNoise(noise: CorrelatedNoise, honest: number, cells: number): number {
  const odds = (ratio: Dyadic) => toDouble(ratio) / toDouble(complement(ratio)), staying = odds(noise.ratio);
  if (!("clusters" in noise)) return ((2 * cells) / honest) * (staying + ratioToDouble(noise.floodShape) * odds(noise.floodRatio));
  const pairs = clusterRates(noise.clusters).reduce((sum, { size, rate }) => sum + size * rate, 0), { singles } = noise.clusters;
  return (cells / honest) * (2 * staying + 2 * pairs + (singles ? ratioToDouble(singles) : 0));
}

/** The source of randomness. */
export const drawNoise = (): NoiseDraws => new SecureNoise();

export const NOISE = { ratio: drawable, flood_shape: fraction, flood_ratio: drawable };

const MOST_RANGES = 64, MOST_PAIRS = 1 << 14, MOST_WEIGHT = 2 ** 32, MOST_CLUSTERS = 700, MOST_SINGLES = 1e6;

function readRanges(document: Json | undefined): Clusters["ranges"] {
  let before = 0;
  const ranges = list(document, MOST_RANGES).map((entry) => {
    const [first, last, weight, ...more] = list(entry, 3);
    check(more.length === 0, "a range of sizes");
    const range = [integer(first, before + 1, MOST_PAIRS), integer(last, before + 1, MOST_PAIRS), integer(weight, 1, MOST_WEIGHT)] as const;
    check(range[0] <= range[1], "a range of sizes");
    before = range[1];
    return range;
  });
  check(ranges.length > 0, "ranges of sizes");
  return ranges;
}

function rateUpTo(most: number): (document: Json | undefined) => Ratio {
  return (document) => {
    const rate = fraction(document);
    check(rate.numerator << 64n >= rate.denominator && rate.numerator <= rate.denominator * BigInt(most), `a rate from 2^-64 to ${most}`);
    return rate;
  };
}

const CLUSTERS = {
  ratio: drawable, cluster_rate: rateUpTo(MOST_CLUSTERS), clusters: readRanges,
  singles: (document: Json | undefined): Ratio | null => (document === "0/1" ? null : rateUpTo(MOST_SINGLES)(document)),
};

/** The parameters of the noise: of version 2 if there are clusters, else of version 1. `read` reads them with others. */
export function readNoise<P>(document: Json | undefined, read: (readers: FieldReaders) => P): P & { readonly noise: CorrelatedNoise } {
  const clustered = typeof document === "object" && document !== null && Object.hasOwn(document, "clusters");
  const parameters = read(clustered ? CLUSTERS : NOISE);
  if (!clustered) {
    const { ratio, flood_shape: floodShape, flood_ratio: floodRatio } = parameters as unknown as Read<typeof NOISE>;
    return { ...parameters, noise: { ratio, floodShape, floodRatio } };
  }
  const { ratio, cluster_rate: rate, clusters: ranges, singles } = parameters as unknown as Read<typeof CLUSTERS>;
  return { ...parameters, noise: { ratio, clusters: { rate, ranges, singles } } };
}

/** Delta of two cells of which one gains a message and the other one loses it. */
export function twoCellsDelta(noise: CorrelatedNoise): (epsilon: number) => number {
  let pair: Pair | undefined; // computed when it is needed: not for a task that is refused before
  return (epsilon) => {
    const { p, q, leftOut } = (pair ??= "clusters" in noise && noise.clusters.singles ? tablePair(noise.ratio, { ...noise.clusters, singles: noise.clusters.singles }) : unaryPair(noise));
    return roundedUp(twoSided(p, q, Math.exp(epsilon)), 2 * leftOut);
  };
}

const correlatedHistogram: Reader = (document) => {
  const { terms, domain, k, noise } = readNoise(document, (readers) => histogramParameters(document, readers));
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
