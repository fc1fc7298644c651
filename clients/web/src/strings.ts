/** Domains of strings: the alphabet, normalization on the device, and the number of a string, as in Python. */
import { utf8 } from "./bytes.ts";
import { fields, type Json } from "./canonical.ts";
import { boolean } from "./domain.ts";
import { bitLength, integer } from "./numbers.ts";
import { check } from "./refusal.ts";

const MAX_LENGTH = 512, MAX_WORD_BITS = 512, MAX_SYMBOLS = 1 << 16, LEAST_RANGE = 3;
/** Words that name an alphabet on the command line; as symbols they are written with a backslash before them. */
const PRESETS = ["lowercase", "hostname", "bytes"];
/** Of str.strip in Python: String.prototype.trim removes other characters. */
const SPACE = /[\t-\r\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/;

/** A string of the domain: its symbols (or bytes) as the digits of a number, and how many there are. */
export interface Word { readonly length: number; readonly number: bigint }

export interface StringDomain {
  /** As tasks write it; null for bytes. */
  readonly alphabet: string | null;
  readonly maxLength: number;
  readonly other: boolean;
  /** The number of bits of the number of a string of this length. */
  wordBits(length: number): number;
  normalized(text: string): string;
  /** Of a normalized string; null if it is outside the domain. */
  word(normalized: string): Word | null;
}

export function readStrings(document: Json | undefined): StringDomain {
  const { alphabet, max_length: maxLength, trim, nfc, case_fold: caseFold, other } = fields(document, {
    alphabet: readAlphabet, max_length: (value) => integer(value, 0, MAX_LENGTH), trim: boolean, nfc: boolean, case_fold: boolean, other: boolean,
  });
  const positions = alphabet && new Map(alphabet.map((symbol, position) => [symbol, BigInt(position)])), radix = BigInt(positions?.size ?? 256);
  const wordBits = (length: number): number => bitLength(radix ** BigInt(length) - 1n);
  check(wordBits(maxLength) <= MAX_WORD_BITS, `strings of at most ${MAX_WORD_BITS} bits`);
  return {
    alphabet: alphabet && patternOf(alphabet), maxLength, other, wordBits,
    normalized(text) {
      const composed = (form: string): string => (nfc ? form.normalize("NFC") : form), trimmed = composed(trim ? stripped(text) : text);
      return caseFold ? composed(folded(trimmed)) : trimmed;
    },
    word(normalized) {
      if (!normalized.isWellFormed()) return null;
      const digits = positions ? Array.from(normalized, (symbol) => positions.get(symbol)) : Array.from(utf8(normalized), BigInt);
      if (digits.length > maxLength || digits.includes(undefined)) return null;
      return { length: digits.length, number: digits.reduce<bigint>((number, digit) => number * radix + digit!, 0n) };
    },
  };
}

/** The symbols of an alphabet such as `a-z0-9\-`, in their order; null for bytes. There is one way to write it. */
function readAlphabet(document: Json | undefined): string[] | null {
  check(typeof document === "string", "an alphabet");
  if (document === "bytes") return null;
  const tokens = document.match(/\\[^]|[^]/gu) ?? [], symbols: string[] = [], last = (token: string) => token.codePointAt(token.length > 1 && token[0] === "\\" ? 1 : 0)!;
  for (let i = 0; i < tokens.length; i++) {
    const start = last(tokens[i]!), isRange = tokens[i + 1] === "-" && i + 2 < tokens.length, end = isRange ? last(tokens[i + 2]!) : start;
    check(end >= start && symbols.length + end - start < MAX_SYMBOLS, `at most ${MAX_SYMBOLS} symbols`);
    for (let point = start; point <= end; point++) symbols.push(String.fromCodePoint(point));
    if (isRange) i += 2;
  }
  check(symbols.length > 0 && new Set(symbols).size === symbols.length && !symbols.some((symbol) => /[\0-\x1f\x7f-\x9f\ud800-\udfff]/u.test(symbol)), "different symbols");
  check(patternOf(symbols) === document, "an alphabet as tasks write it");
  return symbols;
}

/** With ranges of three symbols or more. */
function patternOf(symbols: readonly string[]): string {
  const escaped = (symbol: string) => (symbol === "-" || symbol === "\\" ? `\\${symbol}` : symbol);
  let pattern = "";
  for (let start = 0; start < symbols.length; ) {
    let end = start + 1;
    while (end < symbols.length && symbols[end]!.codePointAt(0) === symbols[end - 1]!.codePointAt(0)! + 1) end++;
    if (end - start < LEAST_RANGE) end = start + 1;
    pattern += escaped(symbols[start]!) + (end - start > 1 ? `-${escaped(symbols[end - 1]!)}` : "");
    start = end;
  }
  return PRESETS.includes(pattern) ? `\\${pattern}` : pattern;
}

function stripped(text: string): string {
  let start = 0, end = text.length;
  while (start < end && SPACE.test(text[start]!)) start++;
  while (end > start && SPACE.test(text[end - 1]!)) end--;
  return text.slice(start, end);
}

/**
 * Unicode's full case folding, which JavaScript lacks. Symbol by symbol (a sigma at the end of a word is no exception) it is the
 * lowercase of the uppercase, but for the dotless i, and for Cherokee, whose letters fold to uppercase.
 */
const folded = (text: string): string =>
  text.replace(/[^]/gu, (symbol) =>
    /[\u0131\u13a0-\u13f5]/.test(symbol) ? symbol
    : /[\u13f8-\u13fd\uab70-\uabbf]/.test(symbol) ? symbol.toUpperCase()
    : symbol.toLowerCase().toUpperCase().toLowerCase(),
  );
