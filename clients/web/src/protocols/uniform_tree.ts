/** A tree over ordered bins: a user's cell of every level among uniform cells (quantiles/uniform-blanket). */
import { blanketDelta } from "../accounting/blanket.ts";
import { list } from "../canonical.ts";
import { type Message } from "../packing.ts";
import { check } from "../refusal.ts";
import { addedMessages, maxBlanketMessages, readBlanket } from "./blankets.ts";
import { quantilesParameters, type Reader, type Readers } from "./protocol.ts";
import { cellsOf, levelsOf, MAX_LEVELS, readBranching } from "./tree_levels.ts";

const uniformBlanketTree: Reader = (document) => {
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

export const READERS: Readers = { "quantiles/uniform-blanket": uniformBlanketTree };
