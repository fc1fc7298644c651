/** A count with correlated noise whose pairs come in clusters (count/correlated-noise, version 2). */
import { clusterFlood } from "../accounting/clusters.ts";
import { check } from "../refusal.ts";
import { chanceOfNoise, clusterNoise, expectedNoise, readNoise } from "./clustered_noise.ts";
import { noisyCount } from "./correlated_count.ts";
import { stayingNoise } from "./correlated_noise.ts";
import { countParameters, text, type Reader, type Readers } from "./protocol.ts";

const clusteredCount: Reader = (document) => {
  const parameters = readNoise((readers) => countParameters(document, { ...readers, encoding: text })), { terms, noise } = parameters, { ratio, clusters } = noise;
  check(!clusters.singles, "a count without singles");
  return {
    ...noisyCount(parameters, ratio, () => clusterFlood(clusters), (draws, plus, minus, room) => {
      const messages = stayingNoise(draws, ratio, terms.honest, plus, minus, room);
      const added = messages && clusterNoise(draws, clusters, terms.honest, 1, () => [plus, minus], room - messages.length);
      return added && [...messages, ...added];
    }),
    draws: expectedNoise(noise, terms.honest, 1),
    chanceOfMore: (limit) => chanceOfNoise(noise, terms.honest, 1, limit),
  };
};

export const READERS: Readers = { "count/correlated-noise": clusteredCount };
