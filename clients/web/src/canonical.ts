/** Canonical JSON: the reader accepts exactly the bytes that the writer writes. */
import { Refusal } from "./refusal.ts";

export type Json = null | boolean | number | string | Json[] | JsonObject;
export type JsonObject = { [key: string]: Json };

const DEEPEST = 32;
const ESCAPES: { [character: string]: string } = { '"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t" };

const bad = (message: string) => new Refusal("not-canonical", message);

const quoted = (text: string): string =>
  `"${text.replace(/["\\\u0000-\u001f]/g, (c) => ESCAPES[c] ?? `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`)}"`;

/** The one form of a document; `around` counts the containers around it. */
export function write(document: Json, around = 0): string {
  if (around > DEEPEST) throw bad("the document is nested too deeply");
  if (typeof document === "string") {
    if (!document.isWellFormed()) throw bad("a string is not valid Unicode");
    return quoted(document);
  }
  if (typeof document === "number") {
    if (!Number.isSafeInteger(document) || Object.is(document, -0)) throw bad("a number is not an integer below 2^53");
    return String(document);
  }
  if (typeof document === "boolean" || document === null) return String(document);
  if (Array.isArray(document)) return `[${document.map((part) => write(part, around + 1)).join(",")}]`;
  const keys = Object.keys(document).sort();
  if (keys.some((key) => /[^\x00-\x7f]/.test(key))) throw bad("a key is not ASCII");
  return `{${keys.map((key) => `${quoted(key)}:${write(document[key]!, around + 1)}`).join(",")}}`;
}

/** Writing the document again and comparing also finds what JSON.parse repairs: repeated keys, white space, `1.0`, `-0`. */
export function read(content: Uint8Array): Json {
  let text: string, document: Json;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
    document = JSON.parse(text) as Json;
  } catch {
    throw bad("the bytes are not JSON in UTF-8");
  }
  if (write(document) !== text) throw bad("the bytes are not in canonical form");
  return document;
}

/** The object, if it has just these keys. */
export function object(document: Json | undefined, keys: readonly string[]): JsonObject {
  if (typeof document !== "object" || document === null || Array.isArray(document)) throw new Refusal("malformed", "an object is missing");
  const missing = keys.filter((key) => !Object.hasOwn(document, key));
  if (missing.length || Object.keys(document).length !== keys.length)
    throw new Refusal("malformed", `an object needs just the keys ${keys.join(", ")}, not ${Object.keys(document).join(", ").slice(0, 200)}`);
  return document;
}
