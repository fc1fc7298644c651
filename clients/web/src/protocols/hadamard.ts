/** Rows of Hadamard matrices: local (histogram/hadamard-response, histogram/bassily-smith), and among uniform ones (histogram/hadamard-blanket). */
import { blanketDelta } from "../accounting/blanket.ts";
import { type Draws } from "../draw.ts";
import { bitLength, dyadic } from "../numbers.ts";
import { check } from "../refusal.ts";
import { addedMessages, maxBlanketMessages, readBlanket } from "./blankets.ts";
import { from, histogramParameters, response, type Reader, type Readers } from "./protocol.ts";
import { localGuarantee, responseEpsilon } from "./local_responses.ts";

/** 1 if a and b have an odd number of ones in common. */
function parity(a: bigint, b: bigint): bigint {
  let ones = 0n;
  for (let common = a & b; common; common >>= 1n) ones ^= common & 1n;
  return ones;
}

/** A uniform integer below `size` that has an even number of ones in common with the row. */
function evenColumn(draws: Draws, size: bigint, row: bigint): bigint {
  const column = draws.below(size);
  return parity(column, row) ? column ^ (row & -row) : column;
}

/** The least power of two above n. */
const powerAbove = (n: number): bigint => 1n << BigInt(bitLength(BigInt(n)));

const hadamardResponse: Reader = (document) => {
  const { terms, domain, k, blanket, blocks } = histogramParameters(document, { blanket: dyadic, blocks: from(1) });
  const width = powerAbove(Math.ceil(k / blocks)), outputs = BigInt(blocks) * width;
  check((BigInt(blocks) & BigInt(blocks - 1)) === 0n && outputs <= 1n << 62n, "a power of two as the number of blocks");
  return {
    domain, terms, maxMessages: 1, format: { bounds: [outputs], flags: 0 }, ...localGuarantee(responseEpsilon(2 * blocks, blanket)),
    randomize(draws, x) {
      const block = BigInt(x) / (width - 1n), row = 1n + (BigInt(x) % (width - 1n));
      return [[response(draws, block * width + evenColumn(draws, width, row), outputs, blanket)]];
    },
  };
};

const bassilySmith: Reader = (document) => {
  const { terms, domain, k, blanket } = histogramParameters(document, { blanket: dyadic }), rows = powerAbove(k);
  return {
    domain, terms, maxMessages: 1, format: { bounds: [rows], flags: 1 }, ...localGuarantee(responseEpsilon(2, blanket)),
    randomize(draws, x) {
      const row = draws.below(rows);
      return [[row, response(draws, parity(row, BigInt(x + 1)), 2n, blanket)]];
    },
  };
};

const hadamardBlanket: Reader = (document) => {
  const { terms, domain, k, blanket, hashes } = histogramParameters(document, { blanket: readBlanket, hashes: from(1, 62) }, 2 ** 32);
  const bounds = Array<bigint>(hashes).fill(powerAbove(k));
  return {
    domain, terms, maxMessages: maxBlanketMessages(blanket), format: { bounds, flags: 0 }, localEpsilon: k === 1 ? 0 : Infinity,
    randomize: (draws, x) => [bounds.map((size) => evenColumn(draws, size, BigInt(x + 1))), ...addedMessages(draws, blanket, bounds)],
    delta: (epsilon) => (k === 1 ? 0 : blanketDelta(blanket, terms.honest, 1n << BigInt(hashes), epsilon)),
  };
};

export const READERS: Readers = { "histogram/bassily-smith": bassilySmith, "histogram/hadamard-blanket": hadamardBlanket, "histogram/hadamard-response": hadamardResponse };
