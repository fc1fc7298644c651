/** A count with correlated noise (count/correlated-noise, version 1). */
import { signedDelta, unaryPair, type Flood } from "../accounting/correlated.ts";
import { oneSided, roundedUp } from "../accounting/divergence.ts";
import { type Json } from "../canonical.ts";
import { type Domain } from "../domain.ts";
import { type NoiseDraws } from "../noise.ts";
import { type Dyadic } from "../numbers.ts";
import { type Message } from "../packing.ts";
import { check } from "../refusal.ts";
import { cellNoise, chanceOfNoise, drawNoise, expectedNoise, floodOf, readNoise } from "./correlated_noise.ts";
import { countParameters, text, type Protocol, type Reader, type Readers, type Terms } from "./protocol.ts";

/** What counts of both versions have in common; `noiseOf` draws the noise, or null if it is more than `room` messages. */
export function noisyCount(
  { terms, domain, encoding }: { readonly terms: Terms; readonly domain: Domain; readonly encoding: string },
  ratio: Dyadic,
  floodOf: () => Flood,
  noiseOf: (draws: NoiseDraws, plus: Message, minus: Message, room: number) => Message[] | null,
): Omit<Protocol, "draws" | "chanceOfMore"> {
  const isSigned = encoding === "signed";
  check(isSigned || encoding === "unary", "the encoding signed or unary");
  return {
    domain, terms, localEpsilon: Infinity, maxMessages: null,
    format: { bounds: [2n], flags: 0 },
    source: drawNoise,
    randomize(draws: NoiseDraws, x, limit) {
      const own: Message[] = isSigned ? [[BigInt(1 - x)]] : x === 1 ? [[0n]] : [], added = noiseOf(draws, [0n], [1n], limit - own.length);
      return added && [...own, ...added];
    },
    delta(epsilon) {
      const E = Math.exp(epsilon);
      if (isSigned) {
        const { sum, leftOut } = signedDelta(ratio, floodOf(), E);
        return roundedUp(sum, leftOut);
      }
      const { p, q, leftOut } = unaryPair(ratio, floodOf());
      return roundedUp(Math.max(oneSided(p, q, E), oneSided(q, p, E)), leftOut);
    },
  };
}

const correlatedCount: Reader = (document: Json | undefined) => {
  const parameters = readNoise((readers) => countParameters(document, { ...readers, encoding: text })), { terms, noise } = parameters;
  return {
    ...noisyCount(parameters, noise.ratio, () => floodOf(noise), (draws, ...cell) => cellNoise(draws, noise, terms.honest, ...cell)),
    draws: expectedNoise(noise, terms.honest, 1),
    chanceOfMore: (limit) => chanceOfNoise(noise, terms.honest, 1, limit),
  };
};

export const READERS: Readers = { "count/correlated-noise": correlatedCount };
