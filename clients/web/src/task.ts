/** Signed tasks: accepted only if the pinned key signed them and their claims follow from their parameters. */
import { type Bytes } from "./bytes.ts";
import { object, type Json, type JsonObject } from "./canonical.ts";
import { type Domain, type Input } from "./domain.ts";
import { readKey } from "./keys.ts";
import { integer, number } from "./numbers.ts";
import { packedSize } from "./packing.ts";
import { type Protocol } from "./protocols/protocol.ts";
import { readProtocol } from "./protocols/registry.ts";
import { check, Refusal } from "./refusal.ts";
import { SEALING_BYTES, SUITE } from "./sealing.ts";
import { verifySigned, type Signed } from "./signed.ts";
import { readText } from "./texts.ts";
import { KEYS_OF_VERSION_2, readWire, type Carriers } from "./wire_version_2.ts";

const KEYS = [
  "format", "version", "name", "description", "population", "protocol", "guarantee", "minimum_users", "maximum_users", "opens", "closes",
  "messages_per_report", "message_size", "suite", "analyzer",
];
const MAX_USERS = 10 ** 9, MAX_MESSAGES = 65_536, MAX_DRAWS = 1 << 24;
const VERSIONS = [1, 2] as const;

export type WireVersion = (typeof VERSIONS)[number];

export type Question = "count" | "histogram" | "sum" | "quantiles" | "strings";

/** What a task guarantees; `deltaAt` is an upper bound of delta at another epsilon. */
export interface Guarantee {
  readonly epsilon: number;
  readonly delta: number;
  deltaAt(epsilon: number): number;
  /** The honest users among whom a report is hidden; 1 if the guarantee needs no others. */
  readonly honestUsers: number;
  /** The epsilon that is left if shuffler and analyzer collude; Infinity if there is no guarantee. */
  readonly localEpsilon: number;
  /** Whether no shuffler is needed. */
  readonly local: boolean;
  /** Whether the shuffler adds all noise, and is trusted with it. */
  readonly augmented: boolean;
  /** Whether this client computed it from the parameters, or relies on a pinned task id. */
  readonly how: "recomputed" | "pinned";
}

export interface Task {
  /** 64 hexadecimal digits. */
  readonly id: string;
  /** Of the wire format: with 2 reports have an outer seal, which the shuffler opens while it mixes them. */
  readonly version: WireVersion;
  /** The id of the author's key. */
  readonly author: string;
  readonly name: string;
  readonly description: string;
  readonly population: string;
  readonly question: Question;
  /** Such as histogram/k-rr. */
  readonly protocolName: string;
  readonly domain: Domain;
  /** The names of the categories of a histogram; null if they are numbered, or if the question is not a histogram. */
  readonly categories: readonly string[] | null;
  /** The bounds of a sum or of quantiles, else null. */
  readonly interval: { readonly lower: number; readonly upper: number; readonly whole: boolean } | null;
  readonly guarantee: Guarantee;
  readonly minimumUsers: number;
  readonly maximumUsers: number;
  readonly opens: Date;
  readonly closes: Date;
  readonly messagesPerReport: number;
  /** Bytes of a packed message. */
  readonly messageSize: number;
  /** Bytes of a report. */
  readonly reportSize: number;
  /** The longer reports of carriers; null if all reports have one length. */
  readonly carriers: (Carriers & { readonly reportSize: number }) | null;
  readonly protocol: Protocol<Input>;
  /** Messages are sealed to this key. */
  readonly analyzer: Bytes;
  /** Reports are sealed to the first of these keys, and their messages to the others too: one of each shuffler; none in version 1. */
  readonly roundKeys: readonly Bytes[];
  /** The place of a task that was derived from a series. */
  readonly series?: { readonly id: string; readonly round: number };
}

/** Bytes of a report before its messages: magic, version, task id, report id. */
const REPORT_HEADER_BYTES = 4 + 1 + 32 + 16;

/** The task of these bytes; a Refusal unless `author` signed them and the guarantee holds. One line feed may follow. */
export async function verifyTask(content: Uint8Array, author: Bytes, pins: readonly string[] = []): Promise<Task> {
  return readTask(await verifySigned(content, author, "task", VERSIONS), pins);
}

/** The task of a document whose signature was verified; `pins` may name its id. */
export async function readTask({ document, version, author, id }: Signed<WireVersion>, pins: readonly string[]): Promise<Task> {
  if ((document as JsonObject | null)?.["format"] !== "shuffledp-task") throw new Refusal("version", "not a task");
  const stated = (document as JsonObject)["version"];
  if (typeof stated === "number" && stated !== version) throw new Refusal("version", "the task has another version than it was signed as, or an unknown one");
  const parts = object(document, [...KEYS, ...(version === 1 ? ["shuffler"] : KEYS_OF_VERSION_2)]);
  check(stated === version, "version");
  const name = readText(parts["name"], 1), description = readText(parts["description"], 0), population = readText(parts["population"], 1);
  const opens = readTime(parts["opens"]), closes = readTime(parts["closes"]);
  check(opens < closes, "opens before closes");
  const analyzer = await readKey(parts["analyzer"], "sealing");
  const messagesPerReport = integer(parts["messages_per_report"], 1, MAX_MESSAGES);
  for (const key of ["minimum_users", "maximum_users", "message_size"]) check(typeof parts[key] === "number", key);
  const wire = version === 1 ? null : await readWire(parts, analyzer, { messages: messagesPerReport, maxMessages: MAX_MESSAGES, users: integer(parts["maximum_users"], 1, MAX_USERS) });
  if (!wire) await readKey(parts["shuffler"], "signing");
  else if (wire.unsupported) throw new Refusal("unsupported", "this client carries out neither carriers in a chain of shufflers, series nor hybrid seals");
  const roundKeys = wire?.roundKeys ?? [], carriers = wire?.carriers ?? null, protocol = await readProtocol(parts["protocol"]), { terms, augmented, roles } = protocol;
  if (augmented) check(wire !== null && !carriers, "a shuffler that adds dummies");
  if (roundKeys.length > (augmented ?? Infinity)) throw new Refusal("unsupported", "a chain of shufflers cannot sample reports");
  const maximumUsers = integer(parts["maximum_users"], Math.min(terms.users, MAX_USERS + 1), MAX_USERS), messageSize = packedSize(protocol.format);
  check(protocol.maxMessages === null || protocol.maxMessages <= MAX_MESSAGES, "fewer messages");
  check(expectedDraws(protocol) <= MAX_DRAWS, "fewer random draws");
  const claim = object(parts["guarantee"], ["epsilon", "delta", "honest_users", "local_epsilon"]);
  const epsilon = number(claim["epsilon"]), delta = number(claim["delta"]);
  check(epsilon >= 1e-12 && epsilon <= 700 && (delta >= 1e-300 || (wire !== null && delta === 0)) && delta < 1, "epsilon and delta");
  const localEpsilon = claim["local_epsilon"] === null ? Infinity : number(claim["local_epsilon"]), honestUsers = protocol.local || augmented ? 1 : terms.honest;
  const consistent = {
    minimum_users: parts["minimum_users"] === terms.users,
    messages_per_report: protocol.maxMessages === null || protocol.maxMessages === messagesPerReport,
    carriers: carriers?.minimum === roles?.minimum && (!carriers || messagesPerReport === 1),
    message_size: parts["message_size"] === messageSize,
    suite: parts["suite"] === SUITE,
    honest_users: claim["honest_users"] === honestUsers,
    local_epsilon: isClose(localEpsilon, protocol.localEpsilon),
  };
  for (const [key, holds] of Object.entries(consistent)) if (!holds) throw new Refusal("inconsistent", `${key} does not follow from the protocol`);
  const deltaAt = checkedGuarantee(protocol, { epsilon, delta, maximumUsers, ...(carriers ?? { messagesPerReport }) }, pins.includes(id));
  const { domain } = protocol, sizeOf = (messages: number) => REPORT_HEADER_BYTES + messages * (1 + messageSize + SEALING_BYTES * (roundKeys.length || 1)) + (wire ? SEALING_BYTES : 0);
  return {
    id, version, author, name, description, population, domain, protocol, analyzer, opens, closes, maximumUsers, messagesPerReport, messageSize,
    question: protocol.name.split("/")[0] as Question,
    protocolName: protocol.name,
    categories: domain.kind === "categories" ? domain.names : null,
    interval: domain.kind === "interval" ? domain : domain.kind === "bins" ? { lower: domain.lower, upper: domain.upper, whole: false } : null,
    minimumUsers: terms.users,
    roundKeys,
    reportSize: sizeOf(messagesPerReport),
    carriers: carriers && { ...carriers, reportSize: sizeOf(carriers.messagesPerReport) },
    guarantee: { epsilon, delta, deltaAt, honestUsers, localEpsilon: protocol.localEpsilon, local: protocol.local ?? false, augmented: !!augmented, how: protocol.delta ? "recomputed" : "pinned" },
  };
}

/** Random draws of a report: one for each part of each message. */
const expectedDraws = ({ format, maxMessages, draws = 0 }: Protocol<Input>): number => draws + (maxMessages ?? 1) * (format.bounds.length + format.flags);

/** Checks the claim and the terms; returns an upper bound of delta at any epsilon. */
function checkedGuarantee(
  protocol: Protocol<Input> & { name: string },
  claim: { epsilon: number; delta: number; messagesPerReport: number; maximumUsers: number },
  isPinned: boolean,
): (epsilon: number) => number {
  const { terms, delta } = protocol;
  if (!delta) {
    if (isPinned) return (epsilon) => (epsilon >= claim.epsilon ? claim.delta : 1); // delta falls with epsilon
    throw new Refusal("unsupported-protocol", `the guarantee of ${protocol.name} cannot be computed here, and the task is not pinned`);
  }
  const termsHold = protocol.local ? protocol.localEpsilon <= terms.epsilon : delta(terms.epsilon) <= terms.delta;
  if (!termsHold) throw new Refusal("bad-guarantee", "the terms do not hold");
  const chance = protocol.chanceOfMore?.(claim.messagesPerReport) ?? 0;
  const deltaAt = (epsilon: number) => delta(epsilon) + (chance && (1 + Math.exp(epsilon)) * claim.maximumUsers * chance);
  const found = deltaAt(claim.epsilon);
  if (!(found <= claim.delta)) // also if it is NaN
    throw new Refusal("bad-guarantee", `the parameters give delta = ${found} at epsilon = ${claim.epsilon}, not ${claim.delta}`);
  // delta falls as epsilon grows, although the term for capped reports grows
  return (epsilon) => Math.min(deltaAt(epsilon), epsilon >= claim.epsilon ? found : 1);
}

/** Infinity is close to itself alone. */
const isClose = (a: number, b: number): boolean => a === b || (Number.isFinite(a) && Number.isFinite(b) && Math.abs(a - b) <= 1e-9 * Math.max(1, Math.abs(a), Math.abs(b)));

function readTime(document: Json | undefined): Date {
  check(typeof document === "string", "a time");
  const time = new Date(document);
  check(Number.isFinite(+time) && /^[1-9]/.test(document) && time.toISOString() === document.replace("Z", ".000Z"), "a time"); // a year of four digits
  return time;
}
