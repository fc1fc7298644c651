/** Frequent strings: the hash of a prefix of the scrambled string, on one level, among uniform messages (strings/tree-blanket). */
import { blanketDelta } from "../accounting/blanket.ts";
import { concat, hex, sha256, utf8, type Bytes } from "../bytes.ts";
import { fields } from "../canonical.ts";
import { type Strings } from "../domain.ts";
import { bigInteger } from "../numbers.ts";
import { check, Refusal } from "../refusal.ts";
import { readStrings, type StringDomain, type Word } from "../strings.ts";
import { addedMessages, maxBlanketMessages, readBlanket } from "./blankets.ts";
import { from, readTerms, type Reader, type Readers } from "./protocol.ts";

const MAX_CELLS = 1 << 26, MASK = (1n << 64n) - 1n, GOLDEN = 0x9e3779b97f4a7c15n, ROUNDS = 4;
const LABEL = utf8("shuffledp tree-blanket 1\0");

interface Tree { readonly buckets: number; readonly levels: number; readonly tail: number; readonly first_bits: number; readonly seed: bigint }

const bytesOf = (number: bigint, length: number): Bytes => Uint8Array.from({ length }, (_, i) => Number((number >> BigInt(8 * (length - 1 - i))) & 255n));

/** A permutation of the numbers of `bits` bits: an unbalanced Feistel network. */
async function scrambled(seed: bigint, { length, number }: Word, bits: number): Promise<bigint> {
  const right = BigInt(bits - (bits >> 1)), halves: [bigint, bigint] = [number >> right, number & ((1n << right) - 1n)];
  for (let turn = 0; turn < ROUNDS; turn++) {
    const odd = (turn & 1) as 0 | 1, width = odd ? bits - (bits >> 1) : bits >> 1;
    const digest = await sha256(concat(LABEL, bytesOf(seed, 8), bytesOf(BigInt(length), 2), Uint8Array.of(turn), bytesOf(halves[1 - odd]!, Math.ceil(bits / 8))));
    halves[odd] ^= BigInt(`0x${hex(digest)}`) >> BigInt(256 - width);
  }
  return (halves[0] << right) | halves[1];
}

/** The finalizer of splitmix64 (Steele, Lea and Flood 2014). */
function mixed(z: bigint): bigint {
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return z ^ (z >> 31n);
}

/** The bucket of a string on every level. */
async function cellsOf({ buckets, levels, tail, first_bits: firstBits, seed }: Tree, word: Word, bits: number): Promise<bigint[]> {
  const scramble = await scrambled(seed, word, bits), first = Math.min(bits, firstBits), last = levels - tail - 1;
  return Array.from({ length: levels }, (_, level) => {
    const depth = last === 0 ? bits : first + Math.ceil(((bits - first) * Math.min(level, last)) / last);
    let prefix = scramble >> BigInt(bits - depth), hash = mixed((seed + GOLDEN * BigInt(1 + word.length * levels + level)) & MASK);
    for (let limb = Math.max(1, Math.ceil(bits / 64)); limb > 0; limb--, prefix >>= 64n) hash = mixed(((hash + GOLDEN) & MASK) ^ (prefix & MASK));
    return ((hash >> 32n) * BigInt(buckets)) >> 32n;
  });
}

const domainOf = ({ alphabet, maxLength, other, normalized, word, wordBits }: StringDomain, tree: Tree): Strings => ({
  kind: "strings", alphabet, maxLength, other,
  counted(text) {
    const form = normalized(text);
    return word(form) && form;
  },
  async encode(value) {
    if (typeof value !== "string") throw new Refusal("domain", "not a string");
    const found = word(normalized(value)) ?? (other ? { length: 0, number: 0n } : null);
    if (!found) throw new Refusal("domain", `not a string of at most ${maxLength} ${alphabet === null ? "bytes" : `symbols of ${alphabet}`}`);
    return cellsOf(tree, found, wordBits(found.length));
  },
});

const treeBlanket: Reader<readonly bigint[]> = (document) => {
  const { terms, domain, blanket, ...tree } = fields(document, {
    terms: readTerms, domain: readStrings, blanket: readBlanket,
    buckets: from(2, 2 ** 32 - 1), levels: from(1, 256), tail: from(0), first_bits: from(1, 24), seed: (value) => bigInteger(value, 0n, MASK),
  });
  const { levels, buckets, tail } = tree, bounds = [BigInt(levels), BigInt(buckets)], isOne = domain.maxLength === 0;
  check(tail < levels && levels * buckets <= MAX_CELLS, "levels that fit");
  return {
    domain: domainOf(domain, tree), terms, localEpsilon: isOne ? 0 : Infinity, maxMessages: maxBlanketMessages(blanket),
    format: { bounds, flags: 0 },
    randomize(draws, cells) {
      const level = draws.below(bounds[0]!);
      return [[level, cells[Number(level)]!], ...addedMessages(draws, blanket, bounds)];
    },
    delta: (epsilon) => (isOne ? 0 : blanketDelta(blanket, terms.honest, BigInt(buckets), epsilon)),
  };
};

export const READERS: Readers = { "strings/tree-blanket": treeBlanket };
