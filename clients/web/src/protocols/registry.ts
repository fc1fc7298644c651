/** The protocols of this client, by the names that tasks use. */
import { object, type Json } from "../canonical.ts";
import { check, Refusal } from "../refusal.ts";
import { balcerCheuCount, balcerCheuHistogram } from "./balcer_cheu.ts";
import { correlatedCount, correlatedHistogram } from "./correlated_noise.ts";
import { type Protocol, type Reader } from "./protocol.ts";
import { kResponse, randomizedResponse } from "./responses.ts";
import { uniformBlanket } from "./uniform_blanket.ts";

const READERS: { readonly [name: string]: Reader } = {
  "count/balcer-cheu": balcerCheuCount,
  "count/correlated-noise": correlatedCount,
  "count/randomized-response": randomizedResponse,
  "histogram/balcer-cheu": balcerCheuHistogram,
  "histogram/correlated-noise": correlatedHistogram,
  "histogram/k-rr": kResponse,
  "histogram/uniform-blanket": uniformBlanket,
};

/** The names of all protocols that this client can randomize for. */
export const PROTOCOLS: readonly string[] = Object.keys(READERS);

export function readProtocol(document: Json | undefined): Protocol & { readonly name: string } {
  const parts = object(document, ["parameters", "protocol", "version"]), name = parts["protocol"];
  if (typeof parts["version"] === "number" && parts["version"] !== 1) throw new Refusal("version", "the protocol has another version than 1");
  check(parts["version"] === 1 && typeof name === "string", "the protocol needs a name and version 1");
  check(/^(count|histogram|sum|quantiles|strings)\/[a-z-]{1,40}$/.test(name), "a protocol has no such name");
  const reader = Object.hasOwn(READERS, name) ? READERS[name] : undefined;
  if (!reader) throw new Refusal("unsupported-protocol", `this client does not have the protocol ${name}`);
  return { name, ...reader(parts["parameters"]) };
}
