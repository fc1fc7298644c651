/** Trees over ordered bins: a user's cell of every level, among uniform cells (quantiles/uniform-blanket) or with correlated noise (quantiles/correlated-noise). */
import { blanketDelta } from "../accounting/blanket.ts";
import { list, type Json } from "../canonical.ts";
import { fraction } from "../numbers.ts";
import { type Message } from "../packing.ts";
import { check } from "../refusal.ts";
import { addedMessages, maxBlanketMessages, readBlanket } from "./blankets.ts";
import { chanceOfNoise, checkWidth, drawable, expectedNoise, noisyCells, twoCellsDelta } from "./correlated_noise.ts";
import { from, quantilesParameters, type Reader } from "./protocol.ts";

const MAX_LEVELS = 20;
const readBranching = (value: Json | undefined): number[] => list(value, MAX_LEVELS).map(from(2, 1 << 20));

/** One level: its first cell, the bins of a cell, and the number of cells. */
interface Level { readonly first: number; readonly width: number; readonly cells: number }

function levelsOf(bins: number, branching: readonly number[]): Level[] {
  const levels: Level[] = [];
  let first = 0;
  branching.forEach((_, i) => {
    const width = branching.slice(i + 1).reduce((product, children) => product * children, 1), cells = Math.ceil(bins / width);
    levels.push({ first, width, cells });
    first += cells;
  });
  check(levels.length > 0 && levels[0]!.cells === branching[0] && branching.length <= bins.toString(2).length, "levels that fit the bins");
  return levels;
}

const cellsOf = (levels: readonly Level[]): number => levels.reduce((sum, { cells }) => sum + cells, 0);

export const uniformBlanketTree: Reader = (document) => {
  const { terms, domain, branching, blankets } = quantilesParameters(document, { branching: readBranching, blankets: (value) => list(value, MAX_LEVELS).map(readBlanket) });
  const levels = levelsOf(domain.bins, branching);
  check(blankets.length === levels.length, "a blanket for every level");
  return {
    domain, terms, localEpsilon: Infinity,
    format: { bounds: [BigInt(cellsOf(levels))], flags: 0 },
    maxMessages: blankets.reduce((sum, blanket) => sum + maxBlanketMessages(blanket), 0),
    randomize: (draws, bin) =>
      levels.flatMap(({ first, width, cells }, i): Message[] => [
        [BigInt(first + Math.floor(bin / width))],
        ...addedMessages(draws, blankets[i]!, [BigInt(cells)]).map(([cell]) => [BigInt(first) + cell!]),
      ]),
    ...(levels.length === 1 && { delta: (epsilon: number) => blanketDelta(blankets[0]!, terms.honest, BigInt(levels[0]!.cells), epsilon) }),
  };
};

export const correlatedTree: Reader = (document) => {
  const { terms, domain, branching, ratio, flood_shape: floodShape, flood_ratio: floodRatio } = quantilesParameters(document, {
    branching: readBranching, ratio: drawable, flood_shape: fraction, flood_ratio: drawable,
  });
  const levels = levelsOf(domain.bins, branching), cells = cellsOf(levels), noise = { ratio, floodShape, floodRatio };
  checkWidth(noise);
  return {
    domain, terms, localEpsilon: Infinity, maxMessages: null,
    format: { bounds: [BigInt(cells)], flags: 1 },
    draws: 2 * (levels.length + expectedNoise(noise, terms.honest, cells)),
    randomize: (draws, bin, limit) => noisyCells(draws, noise, terms.honest, cells, levels.map(({ first, width }) => [BigInt(first + Math.floor(bin / width)), 0n]), limit),
    ...(levels.length === 1 && { delta: twoCellsDelta(noise) }),
    chanceOfMore: (limit) => chanceOfNoise(noise, terms.honest, cells, limit - levels.length + 1),
  };
};
