/** Bytes: text, hexadecimal, URL-safe base64 in its one form, SHA-256. */
import { malformed } from "./refusal.ts";

export type Bytes = Uint8Array<ArrayBuffer>;

const encoder = new TextEncoder();
export const utf8 = (text: string): Bytes => encoder.encode(text);

export function concat(...parts: readonly Uint8Array[]): Bytes {
  const joined = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let position = 0;
  for (const part of parts) {
    joined.set(part, position);
    position += part.length;
  }
  return joined;
}

export const hex = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

export const toBase64 = (bytes: Uint8Array): string =>
  btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

/** Decodes exactly what `toBase64` writes, of `size` bytes. The value is not quoted in the error: it may be a secret. */
export function fromBase64(value: unknown, size: number): Bytes {
  if (typeof value === "string" && /^[A-Za-z0-9_-]*$/.test(value) && value.length % 4 !== 1) {
    const bytes = Uint8Array.from(atob(value.replaceAll("-", "+").replaceAll("_", "/")), (character) => character.charCodeAt(0));
    if (bytes.length === size && toBase64(bytes) === value) return bytes;
  }
  throw malformed(`${size} bytes in base64url`);
}

export const sha256 = async (bytes: Bytes): Promise<Bytes> => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
