/** Levels of a tree over ordered bins, and their cells. */
import { list, type Json } from "../canonical.ts";
import { check } from "../refusal.ts";
import { from } from "./protocol.ts";

export const MAX_LEVELS = 20;
export const readBranching = (value: Json | undefined): number[] => list(value, MAX_LEVELS).map(from(2, 1 << 20));

/** One level: its first cell, the bins of a cell, and the number of cells. */
interface Level { readonly first: number; readonly width: number; readonly cells: number }

export function levelsOf(bins: number, branching: readonly number[]): Level[] {
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

export const cellsOf = (levels: readonly Level[]): number => levels.reduce((sum, { cells }) => sum + cells, 0);
