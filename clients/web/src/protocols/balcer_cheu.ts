/** Balcer and Cheu: a noise token for every category with a fixed probability (count/balcer-cheu, histogram/balcer-cheu). */
import { binomialWindow } from "../accounting/binomial.ts";
import { oneSided, roundedUp, twoSided } from "../accounting/divergence.ts";
import { object, type Json, type JsonObject } from "../canonical.ts";
import { boolean } from "../domain.ts";
import { complement, properDyadic, toDouble, type Dyadic } from "../numbers.ts";
import { type Message } from "../packing.ts";
import { check } from "../refusal.ts";
import { countParameters, histogramParameters, readTerms, type Reader, type Readers } from "./protocol.ts";

/** The parameters with `noise` taken apart: its terms, and the probability of leaving out a noise token. */
function withTerms(document: Json | undefined): JsonObject {
  const { noise, ...rest } = document as JsonObject, { absence, ...terms } = object(noise, ["users", "epsilon", "delta", "honest_fraction", "calibration", "absence"]);
  check(readTerms(terms).users >= 2, "two users");
  return { ...rest, terms, absence: absence! };
}

/** The bound for this many users holds for all larger numbers, since more users hide more. */
const MAX_HONEST = 1 << 28;

/** The tokens of one category, with a user's own (p) and without (q). */
function pair(honest: number, absence: Dyadic): [Float64Array, Float64Array] {
  const { masses } = binomialWindow(Math.min(honest, MAX_HONEST), toDouble(absence), toDouble(complement(absence)));
  const p = new Float64Array(masses.length + 1), q = new Float64Array(masses.length + 1);
  p.set(masses, 1);
  q.set(masses);
  return [p, q];
}

const balcerCheuCount: Reader = (document) => {
  const { terms, domain, absence, padded } = countParameters(withTerms(document), { absence: properDyadic, padded: boolean });
  return {
    domain, terms, localEpsilon: Infinity, maxMessages: 2,
    format: { bounds: [2n], flags: 0 },
    randomize(draws, x) {
      const tokens = x + (draws.coin(absence) ? 0 : 1);
      return [...Array<Message>(tokens).fill([1n]), ...Array<Message>(padded ? 2 - tokens : 0).fill([0n])];
    },
    delta(epsilon) {
      const [p, q] = pair(terms.honest, absence), E = Math.exp(epsilon);
      return roundedUp(Math.max(oneSided(p, q, E), oneSided(q, p, E)));
    },
  };
};

const balcerCheuHistogram: Reader = (document) => {
  const { terms, domain, k, absence, padded } = histogramParameters(withTerms(document), { absence: properDyadic, padded: boolean });
  return {
    domain, terms, localEpsilon: Infinity, maxMessages: k + 1,
    format: { bounds: [BigInt(k + (padded ? 1 : 0))], flags: 0 },
    randomize(draws, x) {
      const messages: Message[] = [[BigInt(x)]];
      for (let category = 0; category < k; category++) {
        if (!draws.coin(absence)) messages.push([BigInt(category)]);
        else if (padded) messages.push([BigInt(k)]);
      }
      return messages;
    },
    delta: (epsilon) => roundedUp(twoSided(...pair(terms.honest, absence), Math.exp(epsilon))),
  };
};

export const READERS: Readers = { "count/balcer-cheu": balcerCheuCount, "histogram/balcer-cheu": balcerCheuHistogram };
