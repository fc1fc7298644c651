/** A count with correlated noise (count/correlated-noise). */
import { signedDelta, unaryPair } from "../accounting/correlated.ts";
import { oneSided, roundedUp } from "../accounting/divergence.ts";
import { type NoiseDraws } from "../noise.ts";
import { type Message } from "../packing.ts";
import { check } from "../refusal.ts";
import { cellNoise, chanceOfNoise, checkWidth, drawNoise, expectedNoise, readNoise } from "./correlated_noise.ts";
import { countParameters, text, type Reader, type Readers } from "./protocol.ts";

const correlatedCount: Reader = (document) => {
  const { terms, domain, encoding, noise } = readNoise(document, (readers) => countParameters(document, { ...readers, encoding: text }));
  const isSigned = encoding === "signed";
  check(!("clusters" in noise && noise.clusters.singles), "a count without singles");
  check(isSigned || encoding === "unary", "the encoding signed or unary");
  checkWidth(noise);
  return {
    domain, terms, localEpsilon: Infinity, maxMessages: null,
    format: { bounds: [2n], flags: 0 },
    draws: expectedNoise(noise, terms.honest, 1),
    source: drawNoise,
    randomize(draws: NoiseDraws, x, limit) {
      const own: Message[] = isSigned ? [[BigInt(1 - x)]] : x === 1 ? [[0n]] : [];
      const added = cellNoise(draws, noise, terms.honest, [0n], [1n], limit - own.length);
      return added && [...own, ...added];
    },
    delta(epsilon) {
      const E = Math.exp(epsilon);
      if (isSigned) {
        const { sum, leftOut } = signedDelta(noise, E);
        return roundedUp(sum, leftOut);
      }
      const { p, q, leftOut } = unaryPair(noise);
      return roundedUp(Math.max(oneSided(p, q, E), oneSided(q, p, E)), leftOut);
    },
    chanceOfMore: (limit) => chanceOfNoise(noise, terms.honest, 1, limit),
  };
};

export const READERS: Readers = { "count/correlated-noise": correlatedCount };
