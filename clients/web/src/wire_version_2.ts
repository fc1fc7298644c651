/** What a task of wire version 2 states beyond version 1: shufflers with round keys, report sizes, traps, its series. */
import { hex, type Bytes } from "./bytes.ts";
import { list, object, type JsonObject } from "./canonical.ts";
import { readKey } from "./keys.ts";
import { integer } from "./numbers.ts";
import { check } from "./refusal.ts";
import { SUITE } from "./sealing.ts";

export const KEYS_OF_VERSION_2 = ["shufflers", "outer_suite", "carriers", "traps", "series"];
export const HYBRID_SUITE = "MLKEM768-X25519, HKDF-SHA256, AES-128-GCM";
const MAX_SHUFFLERS = 3, MAX_TRAPS = 1024, MAX_ROUNDS = 400;

/** The longer reports of carriers: devices that add the noise of all, chosen by coins that do not depend on their values. */
export interface Carriers {
  readonly messagesPerReport: number;
  /** Minimum number of such reports in a round. */
  readonly minimum: number;
}

export interface Wire {
  /** The keys of the shufflers, in the order in which a report passes them; each destroys its key after the round. */
  readonly roundKeys: readonly Bytes[];
  /** Null if all reports have one length. */
  readonly carriers: Carriers | null;
  /** Whether the task needs a part of the format that this client does not carry out. */
  readonly unsupported: boolean;
}

/** Reads every field, also of parts that are not carried out; `limits` are those of the task. */
export async function readWire(parts: JsonObject, analyzer: Bytes, limits: { messages: number; maxMessages: number; users: number }): Promise<Wire> {
  const { shufflers, outer_suite: suite, series } = parts, hops = list(shufflers, MAX_SHUFFLERS), roundKeys: Bytes[] = [], keys = [analyzer];
  for (const hop of hops) {
    const { signing, sealing } = object(hop, ["signing", "sealing"]);
    roundKeys.push(await readKey(sealing, suite === HYBRID_SUITE ? "hybrid-sealing" : "sealing"));
    keys.push(roundKeys.at(-1)!, await readKey(signing, "signing"));
  }
  check(hops.length > 0 && new Set(keys.map(hex)).size === keys.length, "a key of its own for every role");
  check(suite === SUITE || suite === HYBRID_SUITE, "a suite of version 2");
  integer(parts["traps"], 0, hops.length > 1 ? MAX_TRAPS : 0);
  let carriers: Carriers | null = null;
  if (parts["carriers"] !== null) {
    const { messages_per_report: messages, minimum } = object(parts["carriers"], ["messages_per_report", "minimum"]);
    carriers = { messagesPerReport: integer(messages, limits.messages + 1, limits.maxMessages), minimum: integer(minimum, 1, limits.users) };
  }
  if (series !== null) {
    const { id, round } = object(series, ["id", "round"]);
    check(typeof id === "string" && /^[0-9a-f]{64}$/.test(id), "the id of a series");
    integer(round, 0, MAX_ROUNDS - 1);
  }
  return { roundKeys, carriers, unsupported: (carriers !== null && hops.length > 1) || series !== null || suite !== SUITE };
}
