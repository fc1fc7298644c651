/** The values that people give, and how one becomes the input of a randomizer: the same rules as in Python. */
import { fields, list, type Json } from "./canonical.ts";
import { integer, number } from "./numbers.ts";
import { check, Refusal } from "./refusal.ts";
import { checkString } from "./texts.ts";

export function boolean(document: Json | undefined): boolean {
  check(typeof document === "boolean", "true or false");
  return document;
}

export type Value = string | number | boolean;
/** 0 or 1, an index, a position from 0 to 1 in an interval, a bin, or the cell of a string on every level of a tree. */
export type Input = number | readonly bigint[];

/** `encode` gives the input of the randomizer, or throws a Refusal. */
export type Domain = Bit | Categories | Interval | Bins | Strings;
/** Of a count: yes or no. */
export interface Bit { readonly kind: "bit"; encode(value: Value): number }
/** Of a histogram; without names the categories are numbered from 0. */
export interface Categories { readonly kind: "categories"; readonly size: number; readonly names: readonly string[] | null; encode(value: Value): number }
/** Of a sum; `whole`: only integers. */
export interface Interval { readonly kind: "interval"; readonly lower: number; readonly upper: number; readonly whole: boolean; encode(value: Value): number }
/** Of quantiles. */
export interface Bins { readonly kind: "bins"; readonly lower: number; readonly upper: number; readonly bins: number; encode(value: Value): number }
/** Of strings over an alphabet such as a-z; null for bytes, and then `maxLength` is of bytes in UTF-8. */
export interface Strings {
  readonly kind: "strings";
  readonly alphabet: string | null;
  readonly maxLength: number;
  /** The string after normalization, as it is counted; null if it is outside the domain. */
  counted(text: string): string | null;
  /** Whether a string outside the domain counts as the empty one; else it is refused. */
  readonly other: boolean;
  encode(value: Value): Promise<readonly bigint[]>;
}

const LARGEST_BOUND = 1e290;
const MAX_BINS = 1 << 20, MAX_NAMES = 1 << 17, LONGEST_NAME = 200;

// docs/collection/task.md, "Names that look the same"
const NORMALIZED =
  /[\u0000-\u0377\u037a-\u037f\u0384-\u038a\u038c\u038e-\u03a1\u03a3-\u052f\u0591-\u05c7\u05d0-\u05ea\u0600-\u070d\u0898-\u0983\u1100-\u11ff\u1d00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fc4\u1fc6-\u1fd3\u1fd6-\u1fdb\u1fdd-\u1fef\u1ff2-\u1ff4\u1ff6-\u1ffe\u20d0-\u20f0\u2100-\u218b\u2190-\u2426\u3041-\u3096\u3099-\u30ff\uac00-\ud7a3\uf900-\ufa6d\ufa70-\ufad9]+/gu;

export const BIT: Bit = {
  kind: "bit",
  encode(value) {
    if (value === true || value === 1) return 1;
    if (value === false || value === 0) return 0;
    throw new Refusal("domain", "a count needs true or false");
  },
};

/** Names of categories, which people must be able to tell apart; or null if they are numbered. */
export function readNames(document: Json | undefined): readonly string[] | null {
  if (document === null) return null;
  const seen = new Set<string>(), names = list(document, MAX_NAMES).map((name) => {
    checkString(name, 1, LONGEST_NAME);
    seen.add(name.replace(NORMALIZED, (run) => run.normalize("NFC")));
    return name;
  });
  check(seen.size === names.length, "different categories");
  return names;
}

export const categories = (size: number, names: readonly string[] | null): Categories => ({
  kind: "categories", size, names,
  encode(value) {
    const index = names ? names.indexOf(value as string) : value;
    if (typeof index !== "number" || !Number.isInteger(index) || index < 0 || index >= size)
      throw new Refusal("domain", names ? "not a category" : `not an integer from 0 to ${size - 1}`);
    return index;
  },
});

export const readInterval = (document: Json | undefined): Interval => {
  const { lower, upper, whole } = fields(document, { lower: number, upper: number, whole: boolean });
  checkBounds(lower, upper);
  check(!whole || (Number.isInteger(lower) && Number.isInteger(upper)), "bounds of integers");
  return {
    kind: "interval", lower, upper, whole,
    encode(value) {
      checkBetween(lower, upper, value);
      if (whole && !Number.isInteger(value)) throw new Refusal("domain", "not an integer");
      return Math.min(Math.max((value - lower) / (upper - lower), 0), 1);
    },
  };
};

export const readBins = (document: Json | undefined): Bins => {
  const { lower, upper, bins } = fields(document, { lower: number, upper: number, bins: (value) => integer(value, 2, MAX_BINS) });
  const edge = (i: number): number => (i === bins ? upper : lower + ((upper - lower) * i) / bins);
  checkBounds(lower, upper);
  for (let i = 1; i <= bins; i++) check(edge(i) > edge(i - 1), "bins wide enough for floating-point numbers");
  return {
    kind: "bins", lower, upper, bins,
    encode(value) {
      checkBetween(lower, upper, value);
      let low = 0, high = bins; // the largest i below `bins` whose edge is at most the value
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (edge(middle) <= value) low = middle;
        else high = middle;
      }
      return low;
    },
  };
};

const checkBounds = (lower: number, upper: number): void => check(lower < upper && Math.max(-lower, upper) <= LARGEST_BOUND, "a lower bound below the upper one");

function checkBetween(lower: number, upper: number, value: Value): asserts value is number {
  if (typeof value !== "number" || !(value >= lower && value <= upper)) throw new Refusal("domain", `not a number from ${lower} to ${upper}`);
}
