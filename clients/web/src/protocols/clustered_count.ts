/** A count with correlated noise whose pairs come in clusters (count/correlated-noise, version 2). */
import { clusterFlood } from "../accounting/clusters.ts";
import { type Domain } from "../domain.ts";
import { check } from "../refusal.ts";
import { chanceOfNoise, clusterNoise, expectedNoise, readNoise, type ClusteredNoise } from "./clustered_noise.ts";
import { noisyCount } from "./correlated_count.ts";
import { stayingNoise } from "./correlated_noise.ts";
import { countParameters, text, type Protocol, type Reader, type Readers, type Terms } from "./protocol.ts";

/** A count with the noise of `sharers` users. */
export function clusteredCount(parameters: { readonly terms: Terms; readonly domain: Domain; readonly encoding: string; readonly noise: ClusteredNoise }, sharers: number): Protocol {
  const { noise } = parameters, { ratio, clusters } = noise;
  check(!clusters.singles, "a count without singles");
  return {
    ...noisyCount(parameters, ratio, () => clusterFlood(clusters), (draws, plus, minus, room) => {
      const messages = stayingNoise(draws, ratio, sharers, plus, minus, room);
      const added = messages && clusterNoise(draws, clusters, sharers, 1, () => [plus, minus], room - messages.length);
      return added && [...messages, ...added];
    }),
    draws: expectedNoise(noise, sharers, 1),
    chanceOfMore: (limit) => chanceOfNoise(noise, sharers, 1, limit),
  };
}

const ofAllUsers: Reader = (document) => {
  const parameters = readNoise((readers) => countParameters(document, { ...readers, encoding: text }));
  return clusteredCount(parameters, parameters.terms.honest);
};

export const READERS: Readers = { "count/correlated-noise": ofAllUsers };
