/** Randomized response without a shuffler (count/randomized-response, histogram/k-rr, sum/duchi). */
import { pureDelta } from "../accounting/divergence.ts";
import { type Domain } from "../domain.ts";
import { type Draws } from "../draw.ts";
import { level } from "../levels.ts";
import { complement, dyadic, type Dyadic } from "../numbers.ts";
import { logRatioAbove } from "../ratios.ts";
import { check } from "../refusal.ts";
import { countParameters, histogramParameters, response, sumParameters, type Protocol, type Reader, type Readers, type Terms } from "./protocol.ts";

/** The epsilon of response(x, n, blanket). */
export function responseEpsilon(n: number, blanket: Dyadic): number {
  check(n === 1 || blanket.numerator > 0n, "a blanket above 0");
  return n === 1 ? 0 : logRatioAbove(blanket.numerator + BigInt(n) * complement(blanket).numerator, blanket.numerator);
}

/** What makes a protocol local: delta follows from its epsilon. */
export const localGuarantee = (localEpsilon: number): Pick<Protocol, "local" | "localEpsilon" | "delta"> => ({ localEpsilon, local: true, delta: (epsilon) => pureDelta(epsilon, localEpsilon) });

const oneOf = (n: number) => ({ maxMessages: 1, format: { bounds: [BigInt(n)], flags: 0 } });

export function answers({ domain, terms, blanket }: { domain: Domain; terms: Terms; blanket: Dyadic }, n: number, owned: (draws: Draws, x: number) => number = (_, x) => x): Protocol {
  return { domain, terms, ...oneOf(n), ...localGuarantee(responseEpsilon(n, blanket)), randomize: (draws, x) => [[response(draws, BigInt(owned(draws, x)), BigInt(n), blanket)]] };
}

const randomizedResponse: Reader = (document) => answers(countParameters(document, { blanket: dyadic }), 2);

const kResponse: Reader = (document) => {
  const parameters = histogramParameters(document, { blanket: dyadic });
  return answers(parameters, parameters.k);
};

const duchi: Reader = (document) => {
  const parameters = sumParameters(document, { blanket: dyadic });
  return answers(parameters, 2, (draws, x) => level(draws, parameters.domain, x, 1));
};

export const READERS: Readers = { "count/randomized-response": randomizedResponse, "histogram/k-rr": kResponse, "sum/duchi": duchi };
