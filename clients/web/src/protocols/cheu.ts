/** Cheu et al.: every bit flipped with a fixed probability (count/cheu, histogram/cheu, sum/cheu). Their guarantees are pinned. */
import { type Draws } from "../draw.ts";
import { level } from "../levels.ts";
import { properDyadic, type Dyadic } from "../numbers.ts";
import { isBelow } from "../ratios.ts";
import { check } from "../refusal.ts";
import { HALF, logit } from "./bits.ts";
import { countParameters, from, histogramParameters, sumParameters, text, type Reader, type Readers } from "./protocol.ts";

const flipped = (draws: Draws, isOne: boolean, flip: Dyadic): bigint => (isOne !== draws.coin(flip) ? 1n : 0n);

const cheuCount: Reader = (document) => {
  const { terms, domain, flip } = countParameters(document, { flip: properDyadic });
  check(!isBelow(HALF, flip), "flip up to 1/2");
  return { domain, terms, maxMessages: 1, format: { bounds: [2n], flags: 0 }, localEpsilon: logit(flip), randomize: (draws, x) => [[flipped(draws, x === 1, flip)]] };
};

const cheuHistogram: Reader = (document) => {
  const { terms, domain, k, flip, form } = histogramParameters(document, { flip: properDyadic, form: text }), sendsBits = form === "bits";
  check(isBelow(flip, HALF) && (sendsBits || form === "ones"), "flip below 1/2, and the form ones or bits");
  return {
    domain, terms, maxMessages: k, format: { bounds: [BigInt(k)], flags: sendsBits ? 1 : 0 }, localEpsilon: 2 * logit(flip),
    randomize(draws, x) {
      const bits = Array.from({ length: k }, (_, category) => [BigInt(category), flipped(draws, category === x, flip)] as const);
      return sendsBits ? bits : bits.filter(([, bit]) => bit).map(([category]) => [category]);
    },
  };
};

const cheuSum: Reader = (document) => {
  const { terms, domain, bits, flip } = sumParameters(document, { bits: from(1, 1 << 20), flip: properDyadic });
  check(isBelow(flip, HALF), "flip below 1/2");
  return {
    domain, terms, maxMessages: bits, format: { bounds: [2n], flags: 0 }, localEpsilon: bits * logit(flip),
    randomize(draws, x) {
      const ones = level(draws, domain, x, bits);
      return Array.from({ length: bits }, (_, i) => [flipped(draws, i < ones, flip)]);
    },
  };
};

export const READERS: Readers = { "count/cheu": cheuCount, "histogram/cheu": cheuHistogram, "sum/cheu": cheuSum };
