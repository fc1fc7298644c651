/** Randomized response with a shuffler, whose guarantee is better (histogram/shuffled-k-rr, sum/privacy-blanket). */
import { responseDelta } from "../accounting/shuffled_response.ts";
import { level } from "../levels.ts";
import { dyadic, properDyadic, type Dyadic } from "../numbers.ts";
import { answers } from "./local_responses.ts";
import { from, histogramParameters, sumParameters, type Protocol, type Reader, type Readers } from "./protocol.ts";

const shuffled = ({ local: _, ...protocol }: Protocol, n: number, blanket: Dyadic): Protocol => ({
  ...protocol,
  delta: (epsilon) => responseDelta(protocol.terms.honest, n, blanket, epsilon),
});

const shuffledKResponse: Reader = (document) => {
  const parameters = histogramParameters(document, { blanket: dyadic });
  return shuffled(answers(parameters, parameters.k), parameters.k, parameters.blanket);
};

const privacyBlanket: Reader = (document) => {
  const parameters = sumParameters(document, { levels: from(1, 1 << 16), blanket: properDyadic }), { domain, levels, blanket } = parameters;
  return shuffled(answers(parameters, levels + 1, (draws, x) => level(draws, domain, x, levels)), levels + 1, blanket);
};

export const READERS: Readers = { "histogram/shuffled-k-rr": shuffledKResponse, "sum/privacy-blanket": privacyBlanket };
