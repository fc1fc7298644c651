/** Hashed categories: local (histogram/local-hashing), and in the clear among uniform ones (histogram/hashed-blanket). */
import { hashedBlanketDelta } from "../accounting/blanket.ts";
import { fields } from "../canonical.ts";
import { type Draws } from "../draw.ts";
import { dyadic, type Dyadic } from "../numbers.ts";
import { type Message } from "../packing.ts";
import { check } from "../refusal.ts";
import { addedMessages, maxBlanketMessages, readBlanket } from "./blankets.ts";
import { from, histogramParameters, response, type Reader, type Readers } from "./protocol.ts";
import { localGuarantee, responseEpsilon } from "./local_responses.ts";

export const LARGEST = 2 ** 31;

/** The functions x -> (((u + 1) x + v) mod prime) mod buckets. */
export interface Hashes { readonly prime: number; readonly buckets: number }

export const hash = ({ prime, buckets }: Hashes, u: bigint, v: bigint, x: number): bigint => (((u + 1n) * BigInt(x) + v) % BigInt(prime)) % BigInt(buckets);

export function hashesFor(k: number, buckets: number): Hashes {
  let prime = Math.max(3, k, buckets);
  while (!isPrime(prime)) prime++;
  check(prime < LARGEST, "fewer than 2^31 values");
  return { prime, buckets };
}

function isPrime(n: number): boolean {
  for (let divisor = 2; divisor * divisor <= n; divisor++) if (n % divisor === 0) return false;
  return true;
}

/** The probability that two values have the same hash, as numerator and denominator. */
function collision({ prime, buckets }: Hashes): [bigint, bigint] {
  const [p, b] = [BigInt(prime), BigInt(buckets)];
  return [(p / b) * ((p % b) + p - b), p * (p - 1n)];
}

export const formatOf = ({ prime, buckets }: Hashes) => ({ bounds: [BigInt(prime - 1), BigInt(prime), BigInt(buckets)], flags: 0 });

export function hashedReport(draws: Draws, hashes: Hashes, x: number, blanket?: Dyadic): Message {
  const u = draws.below(BigInt(hashes.prime - 1)), v = draws.below(BigInt(hashes.prime)), bucket = hash(hashes, u, v, x);
  return [u, v, blanket ? response(draws, bucket, BigInt(hashes.buckets), blanket) : bucket];
}

const localHashing: Reader = (document) => {
  const readHashes = (value: Parameters<Reader>[0]) => fields(value, { prime: from(2, LARGEST - 1), buckets: from(2) });
  const { terms, domain, k, blanket, hashes } = histogramParameters(document, { blanket: dyadic, hashes: readHashes });
  check(hashes.buckets <= hashes.prime && k <= hashes.prime && isPrime(hashes.prime), "a prime that is not below the domain and the buckets");
  return {
    domain, terms, maxMessages: 1, format: formatOf(hashes), ...localGuarantee(responseEpsilon(hashes.buckets, blanket)),
    randomize: (draws, x) => [hashedReport(draws, hashes, x, blanket)],
  };
};

const hashedBlanket: Reader = (document) => {
  const { terms, domain, k, blanket, buckets } = histogramParameters(document, { blanket: readBlanket, buckets: from(2, LARGEST) }, LARGEST);
  const hashes = hashesFor(k, buckets), format = formatOf(hashes);
  return {
    domain, terms, format, maxMessages: maxBlanketMessages(blanket), localEpsilon: Infinity,
    randomize: (draws, x) => [hashedReport(draws, hashes, x), ...addedMessages(draws, blanket, format.bounds)],
    delta: (epsilon) => hashedBlanketDelta(blanket, terms.honest, BigInt(buckets), ...collision(hashes), epsilon),
  };
};

export const READERS: Readers = { "histogram/hashed-blanket": hashedBlanket, "histogram/local-hashing": localHashing };
