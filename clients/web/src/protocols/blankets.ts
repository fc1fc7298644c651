/** The value in the clear among uniform messages (histogram/uniform-blanket). */
import { blanketDelta, type Blanket } from "../accounting/blanket.ts";
import { fields, type Json } from "../canonical.ts";
import { type Draws } from "../draw.ts";
import { dyadic } from "../numbers.ts";
import { type Message } from "../packing.ts";
import { from, histogramParameters, type Reader, type Readers } from "./protocol.ts";

export const readBlanket = (document: Json | undefined): Blanket => fields(document, { whole: from(0, 10 ** 9), rest: dyadic });

/** The maximum number of messages, with a user's own. */
export const maxBlanketMessages = ({ whole, rest }: Blanket): number => 1 + whole + (rest.numerator ? 1 : 0);

/** The messages that a user adds, uniform below the bounds. */
export const addedMessages = (draws: Draws, { whole, rest }: Blanket, bounds: readonly bigint[]): Message[] =>
  Array.from({ length: whole + (draws.coin(rest) ? 1 : 0) }, () => bounds.map((bound) => draws.below(bound)));

const uniformBlanket: Reader = (document) => {
  const { terms, domain, k, blanket } = histogramParameters(document, { blanket: readBlanket }), bounds = [BigInt(k)];
  return {
    domain, terms, localEpsilon: k === 1 ? 0 : Infinity, maxMessages: maxBlanketMessages(blanket),
    format: { bounds, flags: 0 },
    randomize: (draws, x) => [[BigInt(x)], ...addedMessages(draws, blanket, bounds)],
    delta: (epsilon) => blanketDelta(blanket, terms.honest, BigInt(k), epsilon),
  };
};

export const READERS: Readers = { "histogram/uniform-blanket": uniformBlanket };
