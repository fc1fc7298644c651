/** Public keys in documents, and their ids. */
import { concat, fromBase64, hex, sha256, utf8, type Bytes } from "./bytes.ts";
import { object, type Json } from "./canonical.ts";
import { check } from "./refusal.ts";

export const keyId = async (kind: string, raw: Bytes): Promise<string> => hex(await sha256(concat(utf8(`shuffledp ${kind} key\n`), raw))).slice(0, 16);

const SIZES = { signing: 32, sealing: 32, "hybrid-sealing": 1216 };

/** The bytes of a key of this kind; keys for sealing whose point of X25519, at their end, has low order are refused. */
export async function readKey(document: Json | undefined, kind: keyof typeof SIZES): Promise<Bytes> {
  const parts = object(document, ["kind", "id", "public"]), raw = fromBase64(parts["public"], SIZES[kind]);
  check(parts["kind"] === kind && parts["id"] === (await keyId(kind, raw)) && !(kind !== "signing" && isOfLowOrder(raw.slice(-32))), `a ${kind} key`);
  return raw;
}

export const littleEndian = (bytes: Bytes): bigint => BigInt(`0x${hex(bytes.toReversed())}`);

/** X25519 with a point of order 8 or less gives a secret that everybody knows. */
function isOfLowOrder(key: Bytes): boolean {
  const field = (1n << 255n) - 19n, x = (littleEndian(key) & ((1n << 255n) - 1n)) % field;
  return LOW_ORDER.includes(x) || x === field - 1n;
}
const LOW_ORDER = [
  0n, 1n, 325606250916557431795983626356110631294008115727848805560023387167927233504n,
  39382357235489614581723060781553021112529911719440698176882885853963445705823n,
];
