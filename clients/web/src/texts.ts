/** Strings that people read: fixed lists of code points, so that a task is valid on every device or on none. */
import { type Json } from "./canonical.ts";
import { check } from "./refusal.ts";

const LONGEST_TEXT = 2000, LONGEST_NAME = 200;

// docs/collection/task.md, "Characters that are refused" and "Names that look the same"
const REFUSED =
  /[\u0000-\u001f\u007f-\u00a0\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u2064\u2066-\u206f\u3000\ud800-\uf8ff\ufeff\ufff9-\ufffb\u{110bd}\u{110cd}\u{13430}-\u{1343f}\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0001}\u{e0020}-\u{e007f}\u{f0000}-\u{ffffd}\u{100000}-\u{10fffd}]/u;
const NORMALIZED =
  /[\u0000-\u0377\u037a-\u037f\u0384-\u038a\u038c\u038e-\u03a1\u03a3-\u052f\u0591-\u05c7\u05d0-\u05ea\u0600-\u070d\u0898-\u0983\u1100-\u11ff\u1d00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fc4\u1fc6-\u1fd3\u1fd6-\u1fdb\u1fdd-\u1fef\u1ff2-\u1ff4\u1ff6-\u1ffe\u20d0-\u20f0\u2100-\u218b\u2190-\u2426\u3041-\u3096\u3099-\u30ff\uac00-\ud7a3\uf900-\ufa6d\ufa70-\ufad9]+/gu;

function checkString(text: Json | undefined, least: number, longest: number): asserts text is string {
  check(typeof text === "string", "a string");
  const length = text.length > 2 * longest ? text.length : [...text].length;
  check(length >= least && length <= longest, `${least} to ${longest} characters`);
  check(!REFUSED.test(text), "visible characters");
}

export function readText(text: Json | undefined, least: number): string {
  checkString(text, least, LONGEST_TEXT);
  return text;
}

/** Names of categories: people must be able to tell them apart. */
export function checkNames(names: readonly Json[]): asserts names is string[] {
  const seen = new Set<string>();
  for (const name of names) {
    checkString(name, 1, LONGEST_NAME);
    seen.add(name.replace(NORMALIZED, (run) => run.normalize("NFC")));
  }
  check(seen.size === names.length, "different categories");
}
