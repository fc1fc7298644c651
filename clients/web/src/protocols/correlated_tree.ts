/** A tree over ordered bins: a user's cell of every level, with correlated noise in all cells (quantiles/correlated-noise). */
import { unaryPair } from "../accounting/correlated.ts";
import { type NoiseDraws } from "../noise.ts";
import { cellNoise, chanceOfNoise, drawNoise, expectedNoise, floodOf, noisyCells, readNoise, twoCellsDelta } from "./correlated_noise.ts";
import { quantilesParameters, type Reader, type Readers } from "./protocol.ts";
import { cellsOf, levelsOf, readBranching } from "./tree_levels.ts";

const correlatedTree: Reader = (document) => {
  const { terms, domain, branching, noise } = readNoise((readers) => quantilesParameters(document, { branching: readBranching, ...readers }));
  const levels = levelsOf(domain.bins, branching), cells = cellsOf(levels);
  return {
    domain, terms, localEpsilon: Infinity, maxMessages: null,
    format: { bounds: [BigInt(cells)], flags: 1 },
    draws: 2 * (levels.length + expectedNoise(noise, terms.honest, cells)),
    source: drawNoise,
    randomize: (draws: NoiseDraws, bin, limit) => noisyCells((...cell) => cellNoise(draws, noise, terms.honest, ...cell), cells, levels.map(({ first, width }) => [BigInt(first + Math.floor(bin / width)), 0n]), limit),
    ...(levels.length === 1 && { delta: twoCellsDelta(() => unaryPair(noise.ratio, floodOf(noise))) }),
    chanceOfMore: (limit) => chanceOfNoise(noise, terms.honest, cells, limit - levels.length + 1),
  };
};

export const READERS: Readers = { "quantiles/correlated-noise": correlatedTree };
