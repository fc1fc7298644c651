/** Rows of hashed counts with noise in every cell (histogram/count-min). Its guarantee is pinned. */
import { list, type Json } from "../canonical.ts";
import { bigInteger, properDyadic } from "../numbers.ts";
import { type Message } from "../packing.ts";
import { check } from "../refusal.ts";
import { hash, hashesFor } from "./hashing.ts";
import { from, histogramParameters, type Reader, type Readers } from "./protocol.ts";

const countMin: Reader = (document) => {
  const readPairs = (value: Json | undefined) => list(value, 65_536).map((pair) => list(pair, 2).map((number) => bigInteger(number)));
  const { terms, domain, k, gamma, buckets, hashes: rows } = histogramParameters(document, { gamma: properDyadic, buckets: from(2, 2 ** 31), hashes: readPairs }, 2 ** 31);
  const hashes = hashesFor(k, buckets), prime = BigInt(hashes.prime);
  check(rows.length > 0 && rows.every(([u, v]) => u !== undefined && v !== undefined && u < prime - 1n && v < prime), "hashes below the prime");
  return {
    domain, terms, maxMessages: rows.length * (1 + buckets), format: { bounds: [BigInt(rows.length), BigInt(buckets)], flags: 0 }, localEpsilon: Infinity,
    randomize(draws, x) {
      const messages: Message[] = rows.map(([u, v], row) => [BigInt(row), hash(hashes, u!, v!, x)]);
      for (let row = 0n; row < rows.length; row++) for (let bucket = 0n; bucket < buckets; bucket++) if (draws.coin(gamma)) messages.push([row, bucket]);
      return messages;
    },
  };
};

export const READERS: Readers = { "histogram/count-min": countMin };
