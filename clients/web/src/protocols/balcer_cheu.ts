/** Balcer and Cheu: a noise token for every category with a fixed probability (count/balcer-cheu, histogram/balcer-cheu). */
import { binomialWindow, OUTSIDE } from "../accounting/binomial.ts";
import { oneSided, roundedUp, twoSided } from "../accounting/divergence.ts";
import { object, type Json, type JsonObject } from "../canonical.ts";
import { BIT, readCategories } from "../domain.ts";
import { boolean, complement, properDyadic, toDouble, type Dyadic } from "../numbers.ts";
import { type Message } from "../packing.ts";
import { check } from "../refusal.ts";
import { readTerms, type Reader, type Terms } from "./protocol.ts";

function readNoise(document: Json | undefined): { terms: Terms; absence: Dyadic } {
  const terms = readTerms(document, ["absence"]);
  check(terms.users >= 2, "the noise needs two users");
  return { terms, absence: properDyadic((document as JsonObject)["absence"]) };
}

/** The tokens of one category, with a user's own (p) and without (q). */
function pair(honest: number, absence: Dyadic): [Float64Array, Float64Array] {
  const { masses } = binomialWindow(honest, toDouble(absence), toDouble(complement(absence)));
  const p = new Float64Array(masses.length + 1), q = new Float64Array(masses.length + 1);
  p.set(masses, 1);
  q.set(masses);
  return [p, q];
}

export const balcerCheuCount: Reader = (document) => {
  const parameters = object(document, ["noise", "padded"]), { terms, absence } = readNoise(parameters["noise"]), padded = boolean(parameters["padded"]);
  return {
    domain: BIT, terms, localEpsilon: Infinity, maxMessages: 2,
    format: { bounds: [2n], flags: 0 },
    randomize(draws, x) {
      const tokens = x + (draws.coin(absence) ? 0 : 1);
      return [...Array<Message>(tokens).fill([1n]), ...Array<Message>(padded ? 2 - tokens : 0).fill([0n])];
    },
    delta(epsilon) {
      const [p, q] = pair(terms.honest, absence), E = Math.exp(epsilon);
      return roundedUp(Math.max(oneSided(p, q, E), oneSided(q, p, E)), 2 * OUTSIDE);
    },
  };
};

export const balcerCheuHistogram: Reader = (document) => {
  const parameters = object(document, ["noise", "domain_size", "categories", "padded"]);
  const { terms, absence } = readNoise(parameters["noise"]), domain = readCategories(parameters), padded = boolean(parameters["padded"]);
  return {
    domain, terms, localEpsilon: Infinity, maxMessages: domain.size + 1,
    format: { bounds: [BigInt(domain.size + (padded ? 1 : 0))], flags: 0 },
    randomize(draws, x) {
      const messages: Message[] = [[BigInt(x)]];
      for (let category = 0; category < domain.size; category++) {
        if (!draws.coin(absence)) messages.push([BigInt(category)]);
        else if (padded) messages.push([BigInt(domain.size)]);
      }
      return messages;
    },
    delta: (epsilon) => roundedUp(twoSided(...pair(terms.honest, absence), Math.exp(epsilon)), 4 * OUTSIDE),
  };
};
