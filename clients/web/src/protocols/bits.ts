/** One bit per category: local (histogram/unary), and with rows of fake users (histogram/fake-users). */
import { binomialWindow } from "../accounting/binomial.ts";
import { roundedUp, twoSided } from "../accounting/divergence.ts";
import { complement, dyadic, properDyadic, toDouble, type Dyadic } from "../numbers.ts";
import { isBelow, logRatioAbove } from "../ratios.ts";
import { type Message } from "../packing.ts";
import { check } from "../refusal.ts";
import { from, histogramParameters, type Reader, type Readers } from "./protocol.ts";
import { localGuarantee } from "./local_responses.ts";

export const HALF: Dyadic = { numerator: 1n, bits: 1 };
/** The bound for this many rows holds for all larger numbers, since more rows hide more. */
const MAX_ROWS = 1 << 28;
const bit = (isOne: boolean): bigint => (isOne ? 1n : 0n);

/** ln((1 - p) / p) */
export const logit = (p: Dyadic): number => Math.log(toDouble(complement(p)) / toDouble(p));

const unary: Reader = (document) => {
  const { terms, domain, k, own_one: own, other_one: other } = histogramParameters(document, { own_one: properDyadic, other_one: properDyadic });
  check(isBelow(other, own), "own_one above other_one");
  return {
    domain, terms, maxMessages: 1, format: { bounds: [], flags: k }, ...localGuarantee(logRatioAbove(own.numerator * complement(other).numerator, other.numerator * complement(own).numerator)),
    randomize: (draws, x) => [Array.from({ length: k }, (_, category) => bit(draws.coin(category === x ? own : other)))],
  };
};

const fakeUsers: Reader = (document) => {
  const { terms, domain, k, flip, fake_rows: rows } = histogramParameters(document, { flip: dyadic, fake_rows: from(1) });
  check((k === 1 || flip.numerator > 0n) && isBelow(flip, HALF), "flip above 0 and below 1/2");
  return {
    domain, terms, maxMessages: 1 + rows, format: { bounds: [], flags: k }, localEpsilon: k === 1 ? 0 : 2 * logit(flip),
    randomize: (draws, x) => Array.from({ length: 1 + rows }, (_, row): Message => Array.from({ length: k }, (_, category) => bit((row === 0 && category === x) !== draws.coin(flip)))),
    delta(epsilon) {
      if (k === 1) return 0;
      // the other bits of a category: Bin(honest rows, flip), and one more that is 1 with probability 1 - flip (p) or flip (q)
      const [one, zero] = [toDouble(flip), toDouble(complement(flip))], { masses } = binomialWindow(Math.min(terms.honest * rows, MAX_ROWS), one, zero);
      const p = new Float64Array(masses.length + 1), q = new Float64Array(masses.length + 1);
      for (let i = 0; i <= masses.length; i++) {
        const before = masses[i - 1] ?? 0, here = masses[i] ?? 0;
        p[i] = zero * before + one * here;
        q[i] = one * before + zero * here;
      }
      return roundedUp(twoSided(p, q, Math.exp(epsilon)));
    },
  };
};

export const READERS: Readers = { "histogram/fake-users": fakeUsers, "histogram/unary": unary };
