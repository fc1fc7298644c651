/** Signed documents: an envelope of the document, the id of its author's key and the signature, verified before anything in it is used. */
import { fromBase64, hex, sha256, utf8, type Bytes } from "./bytes.ts";
import { object, read, write, type Json } from "./canonical.ts";
import { keyId, littleEndian } from "./keys.ts";
import { Refusal } from "./refusal.ts";

const MAX_BYTES = 1 << 24;

/** A document whose signature is valid. */
export interface Signed<Version> {
  readonly document: Json;
  /** The version that it was signed as. */
  readonly version: Version;
  /** The id of the author's key. */
  readonly author: string;
  /** Of what was signed: SHA-256 in hexadecimal. */
  readonly id: string;
}

/** The document with this name, such as "task"; a Refusal unless `author` signed it as one of these versions. One line feed may follow. */
export async function verifySigned<Version>(content: Uint8Array, author: Bytes, name: string, versions: readonly Version[]): Promise<Signed<Version>> {
  if (content.length > MAX_BYTES + 1) throw new Refusal("not-canonical", `the ${name} is too long`);
  const envelope = object(read(content.at(-1) === 10 ? content.subarray(0, -1) : content), ["author", "signature", name]);
  const signature = fromBase64(envelope["signature"], 64), document = envelope[name]!, id = await keyId("signing", author);
  if (envelope["author"] !== id) throw new Refusal("unknown-author", `another author signed the ${name}`);
  for (const version of versions) {
    const signed = utf8(`shuffledp ${name} v${version}\n${write(document)}`);
    if (await isSigned(author, signature, signed)) return { document, version, author: id, id: hex(await sha256(signed)) };
  }
  throw new Refusal("bad-signature", `the signature of the ${name} is not valid`);
}

async function isSigned(author: Bytes, signature: Bytes, signed: Bytes): Promise<boolean> {
  let key: CryptoKey;
  try {
    key = await crypto.subtle.importKey("raw", author, { name: "Ed25519" }, false, ["verify"]);
  } catch {
    throw new Refusal("no-x25519", "this browser is too old to check a signature: it lacks Ed25519");
  }
  // some engines accept a second half above the group order, by which anyone can turn a signature into another valid one
  return littleEndian(signature.subarray(32)) < GROUP_ORDER && crypto.subtle.verify({ name: "Ed25519" }, key, signature, signed);
}

const GROUP_ORDER = (1n << 252n) + 27742317777372353535851937790883648493n;
