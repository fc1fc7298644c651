/** Randomized response on two values (count/randomized-response) and on k (histogram/k-rr). */
import { pureDelta } from "../accounting/divergence.ts";
import { object } from "../canonical.ts";
import { BIT, readCategories, type Domain } from "../domain.ts";
import { response } from "../draw.ts";
import { complement, dyadic, toDouble, type Dyadic } from "../numbers.ts";
import { check } from "../refusal.ts";
import { readTerms, type Protocol, type Reader, type Terms } from "./protocol.ts";

/** The epsilon of response(x, n, blanket). */
export const responseEpsilon = (n: number, blanket: Dyadic): number => (n === 1 ? 0 : Math.log1p((n * toDouble(complement(blanket))) / toDouble(blanket)));

function local(domain: Domain, n: number, terms: Terms, blanket: Dyadic): Protocol {
  check(n === 1 || blanket.numerator > 0n, "the blanket must be above 0");
  const localEpsilon = responseEpsilon(n, blanket);
  return {
    domain, terms, localEpsilon, local: true, maxMessages: 1,
    format: { bounds: [BigInt(n)], flags: 0 },
    randomize: (draws, x) => [[response(draws, BigInt(x), BigInt(n), blanket)]],
    delta: (epsilon) => pureDelta(epsilon, localEpsilon),
  };
}

export const randomizedResponse: Reader = (document) => {
  const parameters = object(document, ["terms", "blanket"]);
  return local(BIT, 2, readTerms(parameters["terms"]), dyadic(parameters["blanket"]));
};

export const kResponse: Reader = (document) => {
  const parameters = object(document, ["terms", "blanket", "domain_size", "categories"]), domain = readCategories(parameters);
  return local(domain, domain.size, readTerms(parameters["terms"]), dyadic(parameters["blanket"]));
};
