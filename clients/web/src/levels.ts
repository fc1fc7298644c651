/** Levels of an interval: a value of a sum, rounded at random so that the mean is exact. */
import { type Interval } from "./domain.ts";
import { type Draws } from "./draw.ts";
import { dyadicOf } from "./ratios.ts";

/** The position in an interval as a number of levels from 0 to n, not rounded. */
function scaledLevel(domain: Interval, position: number, n: number): number {
  const scaled = position * n;
  return domain.whole && n % (domain.upper - domain.lower) === 0 ? Math.round(scaled) : scaled;
}

/** A position from 0 to 1 in an interval as one of the levels 0 to n, rounded at random so that the mean is exact. */
export function level(draws: Draws, domain: Interval, position: number, n: number): number {
  const scaled = scaledLevel(domain, position, n), floor = Math.floor(scaled);
  return floor + (draws.coin(dyadicOf(scaled - floor)) ? 1 : 0);
}
