/** The values that people give, and how one becomes the input of a randomizer: the same rules as in Python. */
import { fields, list, type Json } from "./canonical.ts";
import { boolean, integer, number } from "./numbers.ts";
import { check, Refusal } from "./refusal.ts";
import { checkNames } from "./texts.ts";

export type Value = string | number | boolean;

export type Domain =
  /** A count: yes or no. */
  | { readonly kind: "bit" }
  /** A histogram; without names the categories are numbered from 0. */
  | { readonly kind: "categories"; readonly size: number; readonly names: readonly string[] | null }
  | Interval
  | Bins;
/** Of a sum; `whole`: only integers. */
export interface Interval { readonly kind: "interval"; readonly lower: number; readonly upper: number; readonly whole: boolean }
/** Of quantiles. */
export interface Bins { readonly kind: "bins"; readonly lower: number; readonly upper: number; readonly bins: number }

const LARGEST_BOUND = 1e290;
const MAX_BINS = 1 << 20, MAX_NAMES = 1 << 17;

export const BIT: Domain = { kind: "bit" };

/** Names of categories, or null if they are numbered. */
export function readNames(document: Json | undefined): readonly string[] | null {
  if (document === null) return null;
  const names = list(document, MAX_NAMES);
  checkNames(names);
  return names;
}

export const readInterval = (document: Json | undefined): Interval => {
  const { lower, upper, whole } = fields(document, { lower: number, upper: number, whole: boolean });
  checkBounds(lower, upper);
  check(!whole || (Number.isInteger(lower) && Number.isInteger(upper)), "bounds of integers");
  return { kind: "interval", lower, upper, whole };
};

export const readBins = (document: Json | undefined): Bins => {
  const domain: Bins = { kind: "bins", ...fields(document, { lower: number, upper: number, bins: (value) => integer(value, 2, MAX_BINS) }) };
  checkBounds(domain.lower, domain.upper);
  for (let i = 1; i <= domain.bins; i++) check(edge(domain, i) > edge(domain, i - 1), "bins wide enough for floating-point numbers");
  return domain;
};

const checkBounds = (lower: number, upper: number): void => check(lower < upper && Math.max(-lower, upper) <= LARGEST_BOUND, "a lower bound below the upper one");

const edge = ({ lower, upper, bins }: Bins, i: number): number => (i === bins ? upper : lower + ((upper - lower) * i) / bins);

/** The input of the randomizer: 0 or 1, an index, a position from 0 to 1 in the interval, or a bin. */
export function encode(domain: Domain, value: Value): number {
  switch (domain.kind) {
    case "bit":
      if (value === true || value === 1) return 1;
      if (value === false || value === 0) return 0;
      throw new Refusal("domain", "a count needs true or false");
    case "categories": {
      const index = domain.names ? domain.names.indexOf(value as string) : value;
      if (typeof index !== "number" || !Number.isInteger(index) || index < 0 || index >= domain.size)
        throw new Refusal("domain", domain.names ? "not a category" : `not an integer from 0 to ${domain.size - 1}`);
      return index;
    }
    case "interval":
      checkBetween(domain, value);
      if (domain.whole && !Number.isInteger(value)) throw new Refusal("domain", "not an integer");
      return Math.min(Math.max((value - domain.lower) / (domain.upper - domain.lower), 0), 1);
    case "bins": {
      checkBetween(domain, value);
      let low = 0, high = domain.bins; // the largest i below `bins` whose edge is at most the value
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (edge(domain, middle) <= value) low = middle;
        else high = middle;
      }
      return low;
    }
  }
}

function checkBetween({ lower, upper }: { lower: number; upper: number }, value: Value): asserts value is number {
  if (typeof value !== "number" || !(value >= lower && value <= upper)) throw new Refusal("domain", `not a number from ${lower} to ${upper}`);
}

/** The position in an interval as a number of levels from 0 to n, not rounded. */
export function scaledLevel(domain: Interval, position: number, n: number): number {
  const scaled = position * n;
  return domain.whole && n % (domain.upper - domain.lower) === 0 ? Math.round(scaled) : scaled;
}
