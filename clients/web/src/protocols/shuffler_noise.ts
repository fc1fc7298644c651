/** Protocols of an augmented shuffler, which adds dummies: users send their value, sealed (Murakami et al.). */
import { categoriesDelta, countDelta, meanOf, sampledDelta } from "../accounting/shuffler_noise.ts";
import { type Domain } from "../domain.ts";
import { complement, properDyadic, toDouble } from "../numbers.ts";
import { check } from "../refusal.ts";
import { countParameters, from, histogramParameters, type Protocol, type Reader, type Readers, type Terms } from "./protocol.ts";
import { ADDED, SAMPLED } from "../../texts/augmented.ts";

const MAX_DUMMIES = 1 << 24;
const LAPLACE = { ratio: properDyadic, shift: from(1, MAX_DUMMIES) };

/** One message, the value; `dummies` is how many a shuffler adds to a round on average, and `samples` whether it leaves out reports. */
function plain({ terms, domain }: { readonly terms: Terms; readonly domain: Domain }, values: number, dummies: number, samples: boolean, delta: (epsilon: number) => number): Protocol {
  check(dummies <= MAX_DUMMIES, "fewer dummies");
  return {
    domain, terms, delta,
    localEpsilon: Infinity, maxMessages: 1,
    augmented: samples ? 1 : Infinity,
    texts: samples ? SAMPLED : ADDED,
    format: { bounds: [BigInt(values)], flags: 0 },
    randomize: (_, x) => [[BigInt(x)]],
  };
}

const laplaceCount: Reader = (document) => {
  const parameters = countParameters(document, LAPLACE);
  return plain(parameters, 2, 2 * parameters.shift, false, (epsilon) => countDelta(parameters, epsilon));
};

const laplaceHistogram: Reader = (document) => {
  const parameters = histogramParameters(document, LAPLACE);
  return plain(parameters, parameters.k, parameters.k * meanOf(parameters), false, (epsilon) => categoriesDelta(parameters, epsilon));
};

const geometricHistogram: Reader = (document) => {
  const parameters = histogramParameters(document, { keep: properDyadic, ratio: properDyadic }), { k, keep, ratio } = parameters;
  return plain(parameters, k, (k * toDouble(ratio)) / toDouble(complement(ratio)), true, (epsilon) => sampledDelta(keep, ratio, epsilon));
};

export const READERS: Readers = { "count/shuffler-laplace": laplaceCount, "histogram/shuffler-geometric": geometricHistogram, "histogram/shuffler-laplace": laplaceHistogram };
