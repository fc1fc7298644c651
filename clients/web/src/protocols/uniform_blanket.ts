/** The value in the clear among uniform messages (histogram/uniform-blanket). */
import { blanketDelta, type Blanket } from "../accounting/blanket.ts";
import { object, type Json } from "../canonical.ts";
import { readCategories } from "../domain.ts";
import { type Draws } from "../draw.ts";
import { dyadic, integer } from "../numbers.ts";
import { type Message } from "../packing.ts";
import { readTerms, type Reader } from "./protocol.ts";

export function readBlanket(document: Json | undefined): Blanket {
  const parts = object(document, ["whole", "rest"]);
  return { whole: integer(parts["whole"], 0, 10 ** 9), rest: dyadic(parts["rest"]) };
}

/** The maximum number of messages, with a user's own. */
export const maxBlanketMessages = ({ whole, rest }: Blanket): number => 1 + whole + (rest.numerator ? 1 : 0);

/** As many messages as a user adds. */
export function addedMessages(draws: Draws, { whole, rest }: Blanket, uniform: () => Message): Message[] {
  return Array.from({ length: whole + (draws.coin(rest) ? 1 : 0) }, uniform);
}

export const uniformBlanket: Reader = (document) => {
  const parameters = object(document, ["terms", "blanket", "domain_size", "categories"]);
  const terms = readTerms(parameters["terms"]), blanket = readBlanket(parameters["blanket"]), domain = readCategories(parameters), k = BigInt(domain.size);
  return {
    domain, terms, localEpsilon: k === 1n ? 0 : Infinity, maxMessages: maxBlanketMessages(blanket),
    format: { bounds: [k], flags: 0 },
    randomize: (draws, x) => [[BigInt(x)], ...addedMessages(draws, blanket, () => [draws.below(k)])],
    delta: (epsilon) => blanketDelta(blanket, terms.honest, k, epsilon),
  };
};
