/** Hashed categories with a shuffler, whose guarantee is better (histogram/solh). */
import { blanketResponseDelta } from "../accounting/shuffled_response.ts";
import { properDyadic } from "../numbers.ts";
import { formatOf, hashedReport, hashesFor, LARGEST } from "./hashing.ts";
import { responseEpsilon } from "./local_responses.ts";
import { from, histogramParameters, type Reader, type Readers } from "./protocol.ts";

const solh: Reader = (document) => {
  const { terms, domain, k, blanket, buckets } = histogramParameters(document, { blanket: properDyadic, buckets: from(2, LARGEST) }, LARGEST), hashes = hashesFor(k, buckets);
  return {
    domain, terms, maxMessages: 1, format: formatOf(hashes), localEpsilon: responseEpsilon(buckets, blanket),
    randomize: (draws, x) => [hashedReport(draws, hashes, x, blanket)],
    delta: (epsilon) => blanketResponseDelta(terms.honest, buckets, blanket, epsilon),
  };
};

export const READERS: Readers = { "histogram/solh": solh };
