/** What a device must know about a protocol, and what the parameters of several protocols have in common. */
import { fields, type Json, type FieldReaders, type Read } from "../canonical.ts";
import { BIT, categories, readBins, readInterval, readNames, type Bins, type Domain, type Input, type Interval } from "../domain.ts";
import { type Draws } from "../draw.ts";
import { type Language, type OwnTexts } from "../explain.ts";
import { integer, number, positiveDecimal, type Dyadic } from "../numbers.ts";
import { type Message, type MessageFormat } from "../packing.ts";
import { check } from "../refusal.ts";

/** `I` is what its domain encodes values to. */
export interface Protocol<I extends Input = number> {
  readonly domain: Domain;
  readonly terms: Terms;
  readonly format: MessageFormat;
  /** The maximum number of messages of a report; null if the noise has none, and a task needs a cap. */
  readonly maxMessages: number | null;
  /** Epsilon if shuffler and analyzer collude; Infinity if there is no guarantee. */
  readonly localEpsilon: number;
  /** Whether the guarantee needs no shuffler. */
  readonly local?: true;
  /** If the shuffler adds all noise: how many can, one after the other. */
  readonly augmented?: number;
  /** Few users, chosen by a coin, add the noise of all: `randomize` is that of one of them. */
  readonly roles?: Roles;
  /** Sentences for people that are its own. */
  readonly texts?: { readonly [language in Language]: OwnTexts };
  /** The source of randomness, if the randomizer needs more than SecureDraws. */
  readonly source?: () => Draws;
  /** The messages of a report, or null if they are more than `limit`: then everything is drawn again. */
  randomize(draws: Draws, input: I, limit: number): Message[] | null;
  /** An upper bound of delta at epsilon, without a cap; missing if this client cannot compute one. */
  readonly delta?: (epsilon: number) => number;
  /** An upper bound of the probability that a report has more than `limit` messages. */
  readonly chanceOfMore?: (limit: number) => number;
  /** Random draws of a report on average, beyond one for each part of each message. */
  readonly draws?: number;
}

export interface Roles {
  /** Of being a carrier, who adds noise; the same for all values. */
  readonly probability: Dyadic;
  /** Minimum number of carriers in a round, honest or not. */
  readonly minimum: number;
  /** The report of whoever is no carrier. */
  own(input: Input): Message[];
}

/** From the parameters of a task; throws a Refusal if they are not those of the protocol. */
export type Reader<I extends Input = number> = (parameters: Json | undefined) => Protocol<I>;
/** The protocols of one file, by the names that tasks use. */
export type Readers = { readonly [name: string]: Reader<Input> };

/** The target for which the parameters of a protocol were chosen. */
export interface Terms { readonly users: number; readonly honest: number; readonly epsilon: number; readonly delta: number }

/** A reader of integers of a range. */
export const from = (least: number, largest?: number) => (value: Json | undefined): number => integer(value, least, largest);

export function text(document: Json | undefined): string {
  check(typeof document === "string", "a string");
  return document;
}

/** `below(n)` if `coin(blanket)`, else x. */
export const response = (draws: Draws, x: bigint, n: bigint, blanket: Dyadic): bigint => (draws.coin(blanket) ? draws.below(n) : x);

const TERMS = { users: from(1, 10 ** 15), epsilon: number, delta: number, honest_fraction: positiveDecimal, calibration: text };

export function readTerms(document: Json | undefined): Terms {
  const { users, epsilon, delta, honest_fraction: share } = fields(document, TERMS);
  const honest = Number((share.numerator * BigInt(users)) / share.denominator);
  check(epsilon >= 0 && epsilon <= 700 && (delta === 0 || (delta >= 1e-300 && delta < 1)), "epsilon and delta of the terms");
  check(share.numerator <= share.denominator && honest >= 1, "honest_fraction");
  return { users, honest, epsilon, delta };
}

type Parameters<R extends FieldReaders, D> = Read<R> & { readonly terms: Terms; readonly domain: D };

/** The parameters of a count. */
export const countParameters = <R extends FieldReaders>(document: Json | undefined, readers: R): Parameters<R, Domain> =>
  ({ ...fields(document, { terms: readTerms, ...readers }), domain: BIT }) as unknown as Parameters<R, Domain>;

/** The parameters of a histogram of fewer than `limit` categories; `k` is their number. */
export function histogramParameters<R extends FieldReaders>(document: Json | undefined, readers: R, limit = 2 ** 53): Parameters<R, Domain> & { readonly k: number } {
  const parameters = fields(document, { terms: readTerms, domain_size: from(1, limit - 1), categories: readNames, ...readers });
  const { domain_size: k, categories: names } = parameters as unknown as { domain_size: number; categories: readonly string[] | null };
  check(names === null || names.length === k, "a name for every category");
  return { ...parameters, k, domain: categories(k, names) } as unknown as Parameters<R, Domain> & { k: number };
}

/** The parameters of a sum. */
export const sumParameters = <R extends FieldReaders>(document: Json | undefined, readers: R): Parameters<R, Interval> =>
  fields(document, { terms: readTerms, domain: readInterval, ...readers }) as unknown as Parameters<R, Interval>;

/** The parameters of quantiles. */
export const quantilesParameters = <R extends FieldReaders>(document: Json | undefined, readers: R): Parameters<R, Bins> =>
  fields(document, { terms: readTerms, domain: readBins, ...readers }) as unknown as Parameters<R, Bins>;
