/** Numbers as signed documents write them, and their doubles without a loss of digits. */
import { object, type Json } from "./canonical.ts";
import { check, malformed } from "./refusal.ts";

/** The probability numerator / 2^bits. */
export interface Dyadic { readonly numerator: bigint; readonly bits: number }
/** numerator / denominator, both positive. */
export interface Ratio { readonly numerator: bigint; readonly denominator: bigint }

const LARGEST = 1n << 128n;
const LEAST_NORMAL = 2 ** -1022;

/** The shortest decimal of a double as documents write it, which is that of Python's repr. */
export function shortest(x: number): string {
  const [mantissa, power] = x.toExponential().split("e") as [string, string];
  const exponent = Number(power), sign = x < 0 || Object.is(x, -0) ? "-" : "", digits = mantissa.replace(/[-.]/g, "");
  if (exponent < -4 || exponent >= 16) {
    const rest = digits.length > 1 ? `.${digits.slice(1)}` : "";
    return `${sign}${digits[0]}${rest}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${digits}`;
  return `${sign}${digits.slice(0, exponent + 1).padEnd(exponent + 1, "0")}.${digits.slice(exponent + 1) || "0"}`;
}

/** A finite double, 0 or normal, in its shortest decimal. */
export function number(document: Json | undefined): number {
  check(typeof document === "string" && /^[0-9.e+-]{1,40}$/.test(document), "a number");
  const x = Number(document);
  check(Number.isFinite(x) && (x === 0 || Math.abs(x) >= LEAST_NORMAL) && shortest(x) === document, "a number");
  return x;
}

/** The decimal itself, not the double nearest to it; it must be positive. */
export function positiveDecimal(document: Json | undefined): Ratio {
  check(number(document) > 0, "a number");
  const [, integer, fraction = "", exponent = "0"] = /^([0-9]+)(?:\.([0-9]+))?(?:e([+-][0-9]+))?$/.exec(document as string)!;
  const power = Number(exponent) - fraction.length, digits = BigInt(integer! + fraction);
  return power >= 0 ? { numerator: digits * 10n ** BigInt(power), denominator: 1n } : { numerator: digits, denominator: 10n ** BigInt(-power) };
}

/** An integer of any size up to 2^128: from 2^53 on it is written in hexadecimal. */
export function bigInteger(document: Json | undefined, least = 0n, largest = LARGEST): bigint {
  let value: bigint;
  if (typeof document === "number") value = BigInt(document);
  else if (typeof document === "string" && /^0x[1-9a-f][0-9a-f]{13,32}$/.test(document) && BigInt(document) >= 1n << 53n) value = BigInt(document);
  else throw malformed("an integer");
  check(value >= least && value <= largest, `an integer from ${least} to ${largest}`);
  return value;
}

export function integer(document: Json | undefined, least = 0, largest = Number.MAX_SAFE_INTEGER): number {
  return Number(bigInteger(document, BigInt(least), BigInt(largest)));
}

export const bitLength = (x: bigint): number => (x === 0n ? 0 : x.toString(2).length);

/** A probability of at most 128 bits that is exact as a double, or whose complement is. */
export function dyadic(document: Json | undefined): Dyadic {
  const parts = object(document, ["bits", "numerator"]);
  const bits = integer(parts["bits"], 0, 128), one = 1n << BigInt(bits), numerator = bigInteger(parts["numerator"], 0n, one);
  check(Math.min(significantBits(numerator), significantBits(one - numerator)) <= 53, "a probability");
  return { numerator, bits };
}

/** A probability above 0 and below 1. */
export function properDyadic(document: Json | undefined): Dyadic {
  const p = dyadic(document);
  check(p.numerator > 0n && p.numerator < 1n << BigInt(p.bits), "a probability");
  return p;
}

/** The bits of an integer without the zeros at its end. */
const significantBits = (x: bigint): number => x.toString(2).replace(/0+$/, "").length;

export const toDouble = ({ numerator, bits }: Dyadic): number => Number(numerator) / 2 ** bits;

/** 1 - p, without a loss of digits. */
export const complement = ({ numerator, bits }: Dyadic): Dyadic => ({ numerator: (1n << BigInt(bits)) - numerator, bits });

/** ln(1 - p), without a loss of digits where p is near 0 or 1. */
export function logComplement(p: Dyadic): number {
  const x = toDouble(p);
  return x < 0.5 ? Math.log1p(-x) : Math.log(toDouble(complement(p)));
}

export function gcd(a: bigint, b: bigint): bigint {
  while (b) [a, b] = [b, a % b];
  return a;
}

/** A positive fraction in lowest terms. */
export function fraction(document: Json | undefined): Ratio {
  const match = typeof document === "string" ? /^([1-9][0-9]{0,38})\/([1-9][0-9]{0,38})$/.exec(document) : null;
  if (!match) throw malformed("a fraction");
  const numerator = BigInt(match[1]!), denominator = BigInt(match[2]!);
  check(numerator <= LARGEST && denominator <= LARGEST && gcd(numerator, denominator) === 1n, "a fraction");
  return { numerator, denominator };
}

export const ratioToDouble = ({ numerator, denominator }: Ratio): number => Number(numerator) / Number(denominator);
