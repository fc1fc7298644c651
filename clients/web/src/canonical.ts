/** Canonical JSON: the reader accepts exactly the bytes that the writer writes. */
import { malformed, Refusal } from "./refusal.ts";

export type Json = null | boolean | number | string | Json[] | JsonObject;
export type JsonObject = { [key: string]: Json };

const DEEPEST = 32;
const ESCAPES: { [character: string]: string } = { '"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t" };

const bad = (what: string) => new Refusal("not-canonical", `the task is not in canonical form: ${what}`);

const quoted = (text: string): string =>
  `"${text.replace(/["\\\u0000-\u001f]/g, (c) => ESCAPES[c] ?? `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`)}"`;

/** The one form of a document; `around` counts the containers around it. */
export function write(document: Json, around = 0): string {
  if (around > DEEPEST) throw bad("depth");
  if (typeof document === "string") {
    if (!document.isWellFormed()) throw bad("Unicode");
    return quoted(document);
  }
  if (typeof document === "number") {
    if (!Number.isSafeInteger(document) || Object.is(document, -0)) throw bad("numbers");
    return String(document);
  }
  if (typeof document === "boolean" || document === null) return String(document);
  if (Array.isArray(document)) return `[${document.map((part) => write(part, around + 1)).join(",")}]`;
  const keys = Object.keys(document).sort();
  if (keys.some((key) => /[^\x00-\x7f]/.test(key))) throw bad("keys");
  return `{${keys.map((key) => `${quoted(key)}:${write(document[key]!, around + 1)}`).join(",")}}`;
}

/** Writing the document again and comparing also finds what JSON.parse repairs: repeated keys, white space, `1.0`, `-0`. */
export function read(content: Uint8Array): Json {
  let text: string, document: Json;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
    document = JSON.parse(text) as Json;
  } catch {
    throw bad("JSON");
  }
  if (write(document) !== text) throw bad("form");
  return document;
}

/** The object, if it has just these keys. */
export function object(document: Json | undefined, keys: readonly string[]): JsonObject {
  const isObject = typeof document === "object" && document !== null && !Array.isArray(document);
  if (!isObject || Object.keys(document).length !== keys.length || !keys.every((key) => Object.hasOwn(document, key)))
    throw malformed(`the keys ${keys}`);
  return document;
}

/** The list, if it has at most `longest` entries. */
export function list(document: Json | undefined, longest: number): Json[] {
  if (!Array.isArray(document) || document.length > longest) throw malformed("a list");
  return document;
}

export type FieldReaders = { readonly [key: string]: (value: Json | undefined) => unknown };
/** What these functions read. */
export type Read<R extends FieldReaders> = { readonly [key in keyof R]: ReturnType<R[key]> };

/** An object whose values are read by these functions; it has just their keys. */
export function fields<R extends FieldReaders>(document: Json | undefined, readers: R): Read<R> {
  const parts = object(document, Object.keys(readers));
  return Object.fromEntries(Object.entries(readers).map(([key, read]) => [key, read(parts[key])])) as Read<R>;
}
