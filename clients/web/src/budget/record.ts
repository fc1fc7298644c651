/** The record of what a device has spent, in the form of the Python client: one privacy curve per report, and a checksum. */
import { concat, fromBase64, hex, sha256, toBase64, utf8, type Bytes } from "../bytes.ts";
import { list, object, read, write, type Json } from "../canonical.ts";
import { number, shortest } from "../numbers.ts";
import { check, Refusal } from "../refusal.ts";
import { hmac } from "../sealing.ts";
import { POINTS, type Release } from "./curves.ts";

const KEY_BYTES = 32;
export const MAX_ENTRIES = 4000, MAX_BYTES = 1 << 23;

/** One report: its day in UTC, keyed hashes of the author and of the series, and its curve. */
export interface Entry {
  /** Such as 2027-03-02. */
  readonly day: string;
  readonly author: string;
  readonly series: string;
  readonly release: Release;
}

/** All entries, oldest first, the latest day that was recorded, and the key of the hashes. */
export interface Record {
  readonly key: Bytes;
  readonly day: string;
  readonly entries: readonly Entry[];
}

export const emptyRecord = (): Record => ({ key: crypto.getRandomValues(new Uint8Array(KEY_BYTES)), day: "0001-01-01", entries: [] });

/** The keyed hash of an author or a series. */
export const tag = async ({ key }: Record, kind: "author" | "series", name: Uint8Array): Promise<string> => toBase64(await hmac(key, concat(utf8(`${kind}\0`), name)));

export async function toBytes({ key, day, entries }: Record): Promise<Bytes> {
  const document = {
    format: "shuffledp-budget", version: 1, key: toBase64(key), day,
    entries: entries.map(({ day, author, series, release: { epsilon, delta, deltas } }) => ({ day, author, series, epsilon: shortest(epsilon), delta: shortest(delta), curve: toBase64(littleEndian(deltas)) })),
  };
  return utf8(write({ ...document, checksum: hex(await sha256(utf8(write(document)))) }));
}

/** The record of these bytes; a Refusal if they are damaged, so that nothing that was spent is forgotten. */
export async function fromBytes(content: Uint8Array): Promise<Record> {
  try {
    check(content.length <= MAX_BYTES, "a record that is not too long");
    const { checksum, ...document } = object(read(content), ["format", "version", "key", "day", "entries", "checksum"]);
    check(document["format"] === "shuffledp-budget" && document["version"] === 1, "version 1");
    check(checksum === hex(await sha256(utf8(write(document)))), "the right checksum");
    const entries = list(document["entries"], MAX_ENTRIES).map(readEntry), day = readDay(document["day"]), days = [...entries.map((entry) => entry.day), day];
    check(days.every((each, i) => i === 0 || each >= days[i - 1]!), "days in order");
    return { key: fromBase64(document["key"], KEY_BYTES), day, entries };
  } catch (error) {
    throw new Refusal("budget", `the record of what this device has spent is damaged; nothing is sent (${(error as Error).message})`);
  }
}

function readEntry(document: Json): Entry {
  const parts = object(document, ["day", "author", "series", "epsilon", "delta", "curve"]), epsilon = number(parts["epsilon"]), delta = number(parts["delta"]);
  const bytes = fromBase64(parts["curve"], 4 * POINTS), view = new DataView(bytes.buffer), deltas = Float32Array.from({ length: POINTS }, (_, i) => view.getFloat32(4 * i, true));
  check(deltas.every((x) => x >= 0 && x <= 1) && epsilon >= 0 && delta >= 0 && delta <= 1, "probabilities"); // false for NaN too
  const [author, series] = (["author", "series"] as const).map((key) => toBase64(fromBase64(parts[key], KEY_BYTES))) as [string, string];
  return { day: readDay(parts["day"]), author, series, release: { deltas, epsilon, delta } };
}

function readDay(document: Json | undefined): string {
  check(typeof document === "string" && /^[0-9]{4}-[0-9]{2}-[0-9]{2}$/.test(document) && Number.isFinite(Date.parse(document)), "a day");
  return document;
}

function littleEndian(deltas: Float32Array): Bytes {
  const bytes = new Uint8Array(4 * deltas.length), view = new DataView(bytes.buffer);
  deltas.forEach((x, i) => view.setFloat32(4 * i, x, true));
  return bytes;
}
