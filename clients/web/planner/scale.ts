/** Positions of sliders and the numbers they stand for: logarithmic or linear, in steps of two digits. */

export interface Scale { low: number; high: number; log: boolean }

export const STEPS = 400;
const WHOLE = new Set(["users", "domain_size", "bins", "releases"]);

/** The number at a position, as it is written in the field; two digits, so that the same questions are asked again. */
export function fromPosition(position: number, { low, high, log }: Scale, name: string): string {
  const share = position / STEPS;
  const exact = log ? low * (high / low) ** share : low + (high - low) * share;
  const snapped = Number(Math.min(Math.max(exact, low), high).toPrecision(2));
  const number = WHOLE.has(name) ? Math.max(1, Math.round(snapped)) : snapped;
  return number >= 1e-3 ? String(number) : number.toExponential();
}

/** The position nearest to a number; the ends for what lies outside. */
export function toPosition(number: number, { low, high, log }: Scale): number {
  if (!(number > low)) return 0;
  if (number >= high) return STEPS;
  return Math.round(STEPS * (log ? Math.log(number / low) / Math.log(high / low) : (number - low) / (high - low)));
}
