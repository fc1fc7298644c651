/** Correlated noise whose pairs come in clusters (histogram/correlated-noise, version 2). */
import { chanceOfAtLeast } from "../accounting/capping.ts";
import { clusterFlood, clusterRates, tablePair, type Clusters } from "../accounting/clusters.ts";
import { unaryPair, type Pair } from "../accounting/correlated.ts";
import { list, type Json } from "../canonical.ts";
import { type Domain } from "../domain.ts";
import { type NoiseDraws } from "../noise.ts";
import { fraction, integer, ratioToDouble, type Dyadic, type Ratio } from "../numbers.ts";
import { type Message } from "../packing.ts";
import { check } from "../refusal.ts";
import { checkCategories, checkWidth, drawable, drawNoise, noisePart, noisyCells, odds, perReport, stayingNoise, twoCellsDelta } from "./correlated_noise.ts";
import { histogramParameters, type Protocol, type Reader, type Readers, type Terms } from "./protocol.ts";

/** Noise that stays, of this ratio, and clusters of pairs that cancel. */
export interface ClusteredNoise { readonly ratio: Dyadic; readonly clusters: Clusters }

/** Singles and clusters of all cells, or null if they are more than `room` messages: one number for all, and a uniform cell for each. */
export function clusterNoise(draws: NoiseDraws, { rate, ranges, singles }: Clusters, honest: number, cells: number, signs: (cell: bigint) => [Message, Message], room: number): Message[] | null {
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

/** An upper bound of the probability that the noise of this many cells has at least `least` messages. */
export function chanceOfNoise({ ratio, clusters }: ClusteredNoise, honest: number, cells: number, least: number): number {
  const groups = clusterRates(clusters).map(({ size, rate }) => ({ size: 2 * size, rate: (rate * cells) / honest }));
  if (clusters.singles) groups.push({ size: 1, rate: (ratioToDouble(clusters.singles) * cells) / honest });
  return chanceOfAtLeast([noisePart(2 * cells, ratio, 1, honest)], least, groups);
}

/** Messages of the noise on average. */
export function expectedNoise({ ratio, clusters }: ClusteredNoise, honest: number, cells: number): number {
  const pairs = clusterRates(clusters).reduce((sum, { size, rate }) => sum + size * rate, 0);
  return (cells / honest) * (2 * odds(ratio) + 2 * pairs + (clusters.singles ? ratioToDouble(clusters.singles) : 0));
}

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

/** The parameters of the noise; `read` reads them with others. */
export function readNoise<P extends { ratio: Dyadic; cluster_rate: Ratio; clusters: Clusters["ranges"]; singles: Ratio | null }>(read: (readers: typeof CLUSTERS) => P): P & { readonly noise: ClusteredNoise } {
  const parameters = read(CLUSTERS), { ratio, cluster_rate: rate, clusters: ranges, singles } = parameters;
  checkWidth(ratio);
  return { ...parameters, noise: { ratio, clusters: { rate, ranges, singles } } };
}

/** A histogram with the noise of `sharers` users. */
export function noisyHistogram(
  { terms, domain, k, noise }: { readonly terms: Terms; readonly domain: Domain; readonly k: number; readonly noise: ClusteredNoise },
  sharers: number,
  pairOf: () => Pair,
): Protocol {
  checkCategories(k);
  return {
    domain, terms, localEpsilon: Infinity, maxMessages: null,
    format: { bounds: [BigInt(k)], flags: 1 },
    draws: 2 * expectedNoise(noise, sharers, k),
    source: drawNoise,
    randomize(draws: NoiseDraws, x, limit) {
      const messages = noisyCells((...cell) => stayingNoise(draws, noise.ratio, sharers, ...cell), k, [[BigInt(x), 0n]], limit);
      const added = messages && clusterNoise(draws, noise.clusters, sharers, k, (cell) => [[cell, 0n], [cell, 1n]], limit - messages.length);
      return added && [...messages, ...added];
    },
    delta: twoCellsDelta(pairOf),
    chanceOfMore: (limit) => chanceOfNoise(noise, sharers, k, limit),
  };
}

const clusteredHistogram: Reader = (document) => {
  const parameters = readNoise((readers) => histogramParameters(document, readers)), { terms, noise: { ratio, clusters } } = parameters, { singles } = clusters;
  return noisyHistogram(parameters, terms.honest, () => (singles ? tablePair(ratio, { ...clusters, singles }) : unaryPair(ratio, clusterFlood(clusters))));
};

export const READERS: Readers = { "histogram/correlated-noise": clusteredHistogram };
