/** Strings that people read: fixed lists of code points, so that a task is valid on every device or on none. */
import { type Json } from "./canonical.ts";
import { check } from "./refusal.ts";

const LONGEST_TEXT = 2000;

// docs/collection/task.md, "Characters that are refused"
const REFUSED =
  /[\u0000-\u001f\u007f-\u00a0\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u2064\u2066-\u206f\u3000\ud800-\uf8ff\ufeff\ufff9-\ufffb\u{110bd}\u{110cd}\u{13430}-\u{1343f}\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0001}\u{e0020}-\u{e007f}\u{f0000}-\u{ffffd}\u{100000}-\u{10fffd}]/u;

export function checkString(text: Json | undefined, least: number, longest: number): asserts text is string {
  check(typeof text === "string", "a string");
  const length = text.length > 2 * longest ? text.length : [...text].length;
  check(length >= least && length <= longest, `${least} to ${longest} characters`);
  check(!REFUSED.test(text), "visible characters");
}

export function readText(text: Json | undefined, least: number): string {
  checkString(text, least, LONGEST_TEXT);
  return text;
}
