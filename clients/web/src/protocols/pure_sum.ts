/** A count that is private with delta 0 (count/pure-sum). Its guarantee is pinned. */
import { list, type Json } from "../canonical.ts";
import { bigInteger, complement, properDyadic, toDouble } from "../numbers.ts";
import { check } from "../refusal.ts";
import { countParameters, from, type Reader, type Readers } from "./protocol.ts";

const pureSum: Reader = (document) => {
  const readWeights = (value: Json | undefined) => list(value, 1 << 17).map((weight) => bigInteger(weight, 1n));
  const { terms, domain, weights, mix, certified_users: certified } = countParameters(document, { weights: readWeights, mix: properDyadic, certified_users: from(2) });
  const m = weights.length - 1, middle = weights[weights.length >> 1]!;
  check(m > 0 && m % 2 === 1 && weights.every((weight, i) => weight === weights[m - i]), "weights that are symmetric and of even number");
  check(weights.reduce((sum, weight) => sum + weight, 0n) === 1n << 64n && certified <= terms.honest, "weights that add up to 2^64");
  return {
    domain, terms, maxMessages: m, format: { bounds: [2n], flags: 0 }, localEpsilon: Math.log1p((2 ** 64 * toDouble(complement(mix))) / (toDouble(mix) * Number(middle))),
    randomize(draws, x) {
      const ones = draws.coin(mix) ? draws.choose(weights) : (m - 1) / 2 + x;
      return Array.from({ length: m }, (_, i) => [i < ones ? 1n : 0n]);
    },
  };
};

export const READERS: Readers = { "count/pure-sum": pureSum };
