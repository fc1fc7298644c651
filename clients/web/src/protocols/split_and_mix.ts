/** A noisy value split into shares that are mixed (sum/split-and-mix). One device can spoil the result. */
import { splitAndMixDelta } from "../accounting/split_and_mix.ts";
import { type Json } from "../canonical.ts";
import { level } from "../levels.ts";
import { type NoiseDraws } from "../noise.ts";
import { bigInteger, type Ratio } from "../numbers.ts";
import { type Message } from "../packing.ts";
import { check } from "../refusal.ts";
import { drawable, drawNoise } from "./correlated_noise.ts";
import { from, sumParameters, type Reader, type Readers } from "./protocol.ts";

const splitAndMix: Reader = (document) => {
  const readModulus = (value: Json | undefined) => bigInteger(value, 2n, 1n << 62n);
  const { terms, domain, levels, ratio, messages: count, modulus } = sumParameters(document, { levels: from(1), ratio: drawable, messages: from(2), modulus: readModulus });
  check((modulus & (modulus - 1n)) === 0n, "a power of two as the modulus");
  const share: Ratio = { numerator: 1n, denominator: BigInt(terms.honest) };
  return {
    domain, terms, maxMessages: count, format: { bounds: [modulus], flags: 0 }, localEpsilon: Infinity,
    source: drawNoise,
    randomize(draws: NoiseDraws, x) {
      const noise = draws.sharesModulo(share, ratio, modulus) - draws.sharesModulo(share, ratio, modulus), messages: Message[] = [];
      let rest = BigInt(level(draws, domain, x, levels)) + noise;
      while (messages.length < count - 1) {
        const sent = draws.below(modulus);
        messages.push([sent]);
        rest -= sent;
      }
      return [...messages, [BigInt.asUintN(64, rest) % modulus]]; // a power of two: also right where the rest is negative
    },
    delta: (epsilon) => splitAndMixDelta({ honest: terms.honest, levels, ratio, messages: count, modulus }, epsilon),
  };
};

export const READERS: Readers = { "sum/split-and-mix": splitAndMix };
