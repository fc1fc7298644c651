/** A count with correlated noise that carriers add (count/correlated-noise, version 3). */
import { check } from "../refusal.ts";
import { carried, ROLES } from "./carriers.ts";
import { clusteredCount } from "./clustered_count.ts";
import { readNoise } from "./clustered_noise.ts";
import { countParameters, text, type Reader, type Readers } from "./protocol.ts";

const carriedCount: Reader = (document) => {
  const parameters = readNoise((readers) => countParameters(document, { ...readers, encoding: text, ...ROLES }));
  check(parameters.encoding === "signed", "the encoding signed, in which everybody sends a message");
  return carried(parameters, clusteredCount(parameters, parameters.honest_carriers), (x) => [[BigInt(1 - x)]]);
};

export const READERS: Readers = { "count/correlated-noise": carriedCount };
