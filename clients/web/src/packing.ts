/** Messages as bytes: integers below their bounds, then flags, from the most significant bit on. */
import { type Bytes } from "./bytes.ts";
import { bitLength } from "./numbers.ts";
import { Refusal } from "./refusal.ts";

export interface MessageFormat { readonly bounds: readonly bigint[]; readonly flags: number }
/** The integers of a message, then its flags. */
export type Message = readonly bigint[];

const widths = (format: MessageFormat): number[] => [
  ...format.bounds.map((bound) => (bound <= 1n ? 0 : bitLength(bound - 1n))),
  ...Array<number>(format.flags).fill(1),
];

/** Bytes of a packed message; at least one. */
export const packedSize = (format: MessageFormat): number =>
  Math.max(1, Math.ceil((format.bounds.reduce((bits, bound) => bits + (bound <= 1n ? 0 : bitLength(bound - 1n)), 0) + format.flags) / 8));

export function pack(format: MessageFormat, message: Message): Bytes {
  const bytes = new Uint8Array(packedSize(format)), sizes = widths(format);
  if (message.length !== sizes.length) throw new Refusal("outside-domain", "a message has other parts than its format");
  let position = 0;
  sizes.forEach((width, index) => {
    const part = message[index]!;
    if (part < 0n || part >= (format.bounds[index] ?? 2n)) throw new Refusal("outside-domain", "a part is beyond its bound");
    for (let bit = width - 1; bit >= 0; bit--, position++)
      if ((part >> BigInt(bit)) & 1n) bytes[position >> 3]! |= 128 >> (position & 7);
  });
  return bytes;
}

export function unpack(format: MessageFormat, packed: Uint8Array): bigint[] {
  if (packed.length !== packedSize(format)) throw new Refusal("wrong-size", "a packed message has another size than its format");
  let position = 0;
  const next = (): bigint => BigInt((packed[position >> 3]! >> (7 - (position++ & 7))) & 1);
  const message = widths(format).map((width, index) => {
    let part = 0n;
    for (let bit = 0; bit < width; bit++) part = (part << 1n) | next();
    if (part >= (format.bounds[index] ?? 2n)) throw new Refusal("outside-domain", "a part of a message is at or beyond its bound");
    return part;
  });
  while (position < 8 * packed.length) if (next()) throw new Refusal("outside-domain", "a bit is set after the end of a message");
  return message;
}
