/** A tree over ordered bins: a user's cell of every level, with correlated noise in all cells (quantiles/correlated-noise). */
import { type NoiseDraws } from "../noise.ts";
import { chanceOfNoise, checkWidth, drawNoise, expectedNoise, NOISE, noisyCells, twoCellsDelta } from "./correlated_noise.ts";
import { quantilesParameters, type Reader, type Readers } from "./protocol.ts";
import { cellsOf, levelsOf, readBranching } from "./tree_levels.ts";

const correlatedTree: Reader = (document) => {
  const { terms, domain, branching, ratio, flood_shape: floodShape, flood_ratio: floodRatio } = quantilesParameters(document, {
    branching: readBranching, ...NOISE,
  });
  const levels = levelsOf(domain.bins, branching), cells = cellsOf(levels), noise = { ratio, floodShape, floodRatio };
  checkWidth(noise);
  return {
    domain, terms, localEpsilon: Infinity, maxMessages: null,
    format: { bounds: [BigInt(cells)], flags: 1 },
    draws: 2 * (levels.length + expectedNoise(noise, terms.honest, cells)),
    source: drawNoise,
    randomize: (draws: NoiseDraws, bin, limit) => noisyCells(draws, noise, terms.honest, cells, levels.map(({ first, width }) => [BigInt(first + Math.floor(bin / width)), 0n]), limit),
    ...(levels.length === 1 && { delta: twoCellsDelta(noise) }),
    chanceOfMore: (limit) => chanceOfNoise(noise, terms.honest, cells, limit - levels.length + 1),
  };
};

export const READERS: Readers = { "quantiles/correlated-noise": correlatedTree };
