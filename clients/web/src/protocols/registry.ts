/** The protocols of this client, by the names that tasks use. */
import { object, type Json } from "../canonical.ts";
import { check, Refusal } from "../refusal.ts";
import { balcerCheuCount, balcerCheuHistogram } from "./balcer_cheu.ts";
import { uniformBlanket } from "./blankets.ts";
import { duchi, kResponse, randomizedResponse } from "./local_responses.ts";
import { type Protocol, type Reader } from "./protocol.ts";

type Readers = { readonly [name: string]: Reader };

const READERS: Readers = {
  "count/balcer-cheu": balcerCheuCount,
  "count/randomized-response": randomizedResponse,
  "histogram/balcer-cheu": balcerCheuHistogram,
  "histogram/k-rr": kResponse,
  "histogram/uniform-blanket": uniformBlanket,
  "sum/duchi": duchi,
};

/** The protocols of more.ts, which is loaded when a task names one of them. */
const MORE = [
  "count/cheu", "count/correlated-noise", "count/pure-sum", "histogram/bassily-smith", "histogram/cheu", "histogram/correlated-noise", "histogram/count-min", "histogram/fake-users",
  "histogram/hadamard-blanket", "histogram/hadamard-response", "histogram/hashed-blanket", "histogram/local-hashing", "histogram/shuffled-k-rr",
  "histogram/solh", "histogram/unary", "quantiles/correlated-noise", "quantiles/uniform-blanket", "sum/cheu", "sum/local-laplace", "sum/piecewise",
  "sum/privacy-blanket", "sum/split-and-mix",
];

/** The names of all protocols that this client can randomize for. */
export const PROTOCOLS: readonly string[] = [...Object.keys(READERS), ...MORE].sort();

export async function readProtocol(document: Json | undefined): Promise<Protocol & { readonly name: string }> {
  const parts = object(document, ["parameters", "protocol", "version"]), name = parts["protocol"];
  if (typeof parts["version"] === "number" && parts["version"] !== 1) throw new Refusal("version", "version of the protocol");
  check(parts["version"] === 1 && typeof name === "string" && /^(count|histogram|sum|quantiles|strings)\/[a-z-]{1,40}$/.test(name), "protocol");
  if (!PROTOCOLS.includes(name)) throw new Refusal("unsupported-protocol", `this client does not have the protocol ${name}`);
  const reader = READERS[name] ?? (await import("./more.ts")).READERS[name]!;
  return { name, ...reader(parts["parameters"]) };
}
