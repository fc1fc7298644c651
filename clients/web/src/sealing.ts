/** Sealing of messages: HPKE of RFC 9180 in base mode by WebCrypto alone, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM. */
import { concat, utf8, type Bytes } from "./bytes.ts";
import { Refusal } from "./refusal.ts";

export const SUITE = "DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM";
/** Bytes that sealing adds to a content: the encapsulated key and the tag. */
export const SEALING_BYTES = 48;

const VERSION = utf8("HPKE-v1"), EMPTY = new Uint8Array(0);
const KEM = concat(utf8("KEM"), Uint8Array.of(0, 0x20)), HPKE = concat(utf8("HPKE"), Uint8Array.of(0, 0x20, 0, 1, 0, 1));

export async function hmac(key: Bytes, content: Bytes): Promise<Bytes> {
  // WebCrypto imports no empty key; by RFC 2104 zeros are the same key
  const imported = await crypto.subtle.importKey("raw", key.length ? key : new Uint8Array(32), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", imported, content));
}

const extract = (suite: Bytes, salt: Bytes, label: string, secret: Bytes): Promise<Bytes> => hmac(salt, concat(VERSION, suite, utf8(label), secret));

/** At most 32 bytes: one block of HKDF. */
async function expand(suite: Bytes, key: Bytes, label: string, info: Bytes, size: number): Promise<Bytes> {
  return (await hmac(key, concat(Uint8Array.of(0, size), VERSION, suite, utf8(label), info, Uint8Array.of(1)))).slice(0, size);
}

/** Seals messages to one key, for one purpose. */
export class Sealer {
  readonly #raw: Bytes;
  readonly #key: CryptoKey;
  /** The part of the key schedule that is the same for all messages. */
  readonly #context: Bytes;

  private constructor(raw: Bytes, key: CryptoKey, context: Bytes) {
    this.#raw = raw;
    this.#key = key;
    this.#context = context;
  }

  static async create(recipient: Bytes, info: Bytes): Promise<Sealer> {
    let key: CryptoKey;
    try {
      key = await crypto.subtle.importKey("raw", recipient, { name: "X25519" }, true, []);
    } catch {
      throw new Refusal("no-x25519", "this browser is too old to seal an answer: it lacks X25519");
    }
    const hashes = await Promise.all([extract(HPKE, EMPTY, "psk_id_hash", EMPTY), extract(HPKE, EMPTY, "info_hash", info)]);
    return new Sealer(recipient, key, concat(Uint8Array.of(0), ...hashes));
  }

  /** The encapsulated key, the encrypted content and the tag. A given `ephemeral` key is for test vectors only. */
  async seal(content: Bytes, ephemeral?: CryptoKeyPair): Promise<Bytes> {
    const pair = ephemeral ?? ((await crypto.subtle.generateKey({ name: "X25519" }, false, ["deriveBits"])) as CryptoKeyPair);
    const [encapsulated, exchanged] = await Promise.all([
      crypto.subtle.exportKey("raw", pair.publicKey).then((key) => new Uint8Array(key)),
      crypto.subtle.deriveBits({ name: "X25519", public: this.#key }, pair.privateKey, 256).then((key) => new Uint8Array(key)),
    ]);
    const shared = await expand(KEM, await extract(KEM, EMPTY, "eae_prk", exchanged), "shared_secret", concat(encapsulated, this.#raw), 32);
    const secret = await extract(HPKE, shared, "secret", EMPTY);
    const [key, iv] = await Promise.all([expand(HPKE, secret, "key", this.#context, 16), expand(HPKE, secret, "base_nonce", this.#context, 12)]);
    const cipher = await crypto.subtle.importKey("raw", key, "AES-GCM", false, ["encrypt"]);
    return concat(encapsulated, new Uint8Array(await crypto.subtle.encrypt({ name: "AES-GCM", iv }, cipher, content)));
  }
}
