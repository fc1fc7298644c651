/** Correlated noise that carriers add (histogram/correlated-noise, version 3). */
import { clusterFlood } from "../accounting/clusters.ts";
import { unaryPair } from "../accounting/correlated.ts";
import { carried, ROLES } from "./carriers.ts";
import { noisyHistogram, readNoise } from "./clustered_noise.ts";
import { histogramParameters, type Reader, type Readers } from "./protocol.ts";

const carriedHistogram: Reader = (document) => {
  const parameters = readNoise((readers) => histogramParameters(document, { ...readers, ...ROLES })), { noise, honest_carriers: sharers } = parameters;
  return carried(parameters, noisyHistogram(parameters, sharers, () => unaryPair(noise.ratio, clusterFlood(noise.clusters))), (x) => [[BigInt(x), 0n]]);
};

export const READERS: Readers = { "histogram/correlated-noise": carriedHistogram };
