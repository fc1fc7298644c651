/** What a device must know about a protocol, and the parts that the documents of several protocols share. */
import { object, type Json } from "../canonical.ts";
import { type Domain } from "../domain.ts";
import { type Draws } from "../draw.ts";
import { integer, number, positiveDecimal } from "../numbers.ts";
import { type Message, type MessageFormat } from "../packing.ts";
import { check } from "../refusal.ts";

export interface Protocol {
  readonly domain: Domain;
  readonly terms: Terms;
  readonly format: MessageFormat;
  /** The maximum number of messages of a report; null if the noise has none, and a task needs a cap. */
  readonly maxMessages: number | null;
  /** What is left if shuffler and analyzer collude; Infinity for nothing. */
  readonly localEpsilon: number;
  /** Whether the guarantee needs no shuffler. */
  readonly local?: true;
  /** The messages of a report, or null if they are more than `limit`: then everything is drawn again. */
  randomize(draws: Draws, input: number, limit: number): Message[] | null;
  /** An upper bound of delta at epsilon, without a cap; missing if this client cannot compute one. */
  readonly delta?: (epsilon: number) => number;
  /** An upper bound of the probability that a report has more than `limit` messages. */
  readonly chanceOfMore?: (limit: number) => number;
  /** Random draws of a report on average, beyond one for each part of a message. */
  readonly draws?: number;
}

/** From the parameters of a task; throws a Refusal if they are not those of the protocol. */
export type Reader = (parameters: Json | undefined) => Protocol;

/** The target for which the parameters of a protocol were chosen. */
export interface Terms { readonly users: number; readonly honest: number; readonly epsilon: number; readonly delta: number }

const TERMS = ["users", "epsilon", "delta", "honest_fraction", "calibration"];
const MAX_USERS = 10 ** 15;

export function readTerms(document: Json | undefined, more: readonly string[] = []): Terms {
  const parts = object(document, [...TERMS, ...more]);
  const users = integer(parts["users"], 1, MAX_USERS), epsilon = number(parts["epsilon"]), delta = number(parts["delta"]);
  check(epsilon >= 0 && epsilon <= 700, "the epsilon of the terms must be from 0 to 700");
  check(delta === 0 || (delta >= 1e-300 && delta < 1), "the delta of the terms must be 0, or from 1e-300 to below 1");
  check(typeof parts["calibration"] === "string", "the calibration is missing");
  const { numerator, denominator } = positiveDecimal(parts["honest_fraction"]);
  const honest = Number((numerator * BigInt(users)) / denominator);
  check(numerator <= denominator && honest >= 1, "honest_fraction must be at most 1, and at least one user honest");
  return { users, honest, epsilon, delta };
}

