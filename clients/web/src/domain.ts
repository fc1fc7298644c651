/** The values that people give, and how one becomes the input of a randomizer: the same rules as in Python. */
import { object, type Json, type JsonObject } from "./canonical.ts";
import { boolean, integer, number } from "./numbers.ts";
import { check, Refusal } from "./refusal.ts";
import { checkNames } from "./texts.ts";

export type Value = string | number | boolean;

export type Domain =
  /** A count: yes or no. */
  | { readonly kind: "bit" }
  /** A histogram; without names the categories are numbered from 0. */
  | { readonly kind: "categories"; readonly size: number; readonly names: readonly string[] | null }
  /** A sum; `whole`: only integers. */
  | { readonly kind: "interval"; readonly lower: number; readonly upper: number; readonly whole: boolean }
  /** Quantiles. */
  | { readonly kind: "bins"; readonly lower: number; readonly upper: number; readonly bins: number };

const LARGEST_BOUND = 1e290;
const MAX_BINS = 1 << 20;

export const BIT: Domain = { kind: "bit" };

export function readCategories(parameters: JsonObject, largest = Number.MAX_SAFE_INTEGER): Domain & { kind: "categories" } {
  const size = integer(parameters["domain_size"], 1, largest), names = parameters["categories"];
  if (names === null) return { kind: "categories", size, names };
  check(Array.isArray(names), "the names of the categories are missing");
  checkNames(names);
  check(names.length === size, `there are ${names.length} names of ${size} categories`);
  return { kind: "categories", size, names };
}

export function readInterval(document: Json | undefined): Domain & { kind: "interval" } {
  const parts = object(document, ["lower", "upper", "whole"]), [lower, upper] = bounds(parts), whole = boolean(parts["whole"]);
  check(!whole || (Number.isInteger(lower) && Number.isInteger(upper)), "integers need integer bounds");
  return { kind: "interval", lower, upper, whole };
}

export function readBins(document: Json | undefined): Domain & { kind: "bins" } {
  const parts = object(document, ["lower", "upper", "bins"]), [lower, upper] = bounds(parts);
  const domain = { kind: "bins", lower, upper, bins: integer(parts["bins"], 2, MAX_BINS) } as const;
  for (let i = 1, last = lower; i <= domain.bins; i++) {
    const next = edge(domain, i);
    check(next > last, "the bins are too narrow for floating-point numbers");
    last = next;
  }
  return domain;
}

function bounds(parts: JsonObject): [number, number] {
  const lower = number(parts["lower"]), upper = number(parts["upper"]);
  check(lower < upper && Math.max(-lower, upper) <= LARGEST_BOUND, "the lower bound must be below the upper one, and both at most 1e290 in size");
  return [lower, upper];
}

const edge = ({ lower, upper, bins }: Domain & { kind: "bins" }, i: number): number => (i === bins ? upper : lower + ((upper - lower) * i) / bins);

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
        throw new Refusal("domain", domain.names ? "the value is not the name of a category" : `the value is not an integer from 0 to ${domain.size - 1}`);
      return index;
    }
    case "interval":
      checkBetween(domain, value);
      if (domain.whole && !Number.isInteger(value)) throw new Refusal("domain", "the value is not an integer");
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
  if (typeof value !== "number" || !(value >= lower && value <= upper)) throw new Refusal("domain", `the value is not a number from ${lower} to ${upper}`);
}

/** The position in an interval as a number of levels from 0 to n, not rounded. */
export function scaledLevel(domain: Domain & { kind: "interval" }, position: number, n: number): number {
  const scaled = position * n;
  return domain.whole && n % (domain.upper - domain.lower) === 0 ? Math.round(scaled) : scaled;
}
