/** Signed series: rounds at regular times, from whose one document everybody derives the same tasks; and how they end early. */
import { fromBase64, hex, sha256, utf8, type Bytes } from "../bytes.ts";
import { list, object, write, type Json, type JsonObject } from "../canonical.ts";
import { keyId, readKey } from "../keys.ts";
import { integer } from "../numbers.ts";
import { check, Refusal } from "../refusal.ts";
import { verifySigned } from "../signed.ts";
import { readTask, type Task } from "../task.ts";
import { readText } from "../texts.ts";
import { HYBRID_SUITE } from "../wire_version_2.ts";

const MAX_ROUNDS = 400, MAX_SHUFFLERS = 3, MAX_CANCEL_BYTES = 1 << 14, LONGEST_PERIOD = 366 * 86_400;
/** 9999-12-31T23:59:59Z, in milliseconds. */
const LAST_TIME = 253_402_300_799_000;
const KEYS = ["format", "version", "template", "first_opens", "period", "open", "rounds", "rounds_per_device", "keys", "replaces"];
/** The keys of a task that a template lacks. */
const OF_A_ROUND = ["opens", "closes", "analyzer", "series"];

export interface Series {
  /** 64 hexadecimal digits. */
  readonly id: string;
  /** The first round; all rounds have the same question and guarantee. */
  readonly first: Task;
  readonly rounds: number;
  /** How many rounds one device takes part in at most; it draws them before it knows any value. */
  readonly roundsPerDevice: number;
  /** Seconds from the opening of one round to that of the next. */
  readonly period: number;
  /** Seconds that a round is open. */
  readonly open: number;
  /** The id of a cancelled series that this one continues. */
  readonly replaces: string | null;
  /** When a round opens, numbered from 0, in milliseconds. */
  opensAt(round: number): number;
  /** The canonical document of the task of a round. */
  document(round: number): string;
  task(round: number): Promise<Task>;
  /** The round that is open at a time in milliseconds, or null. */
  roundAt(now: number): number | null;
}

/** The end of a series before its last round. */
export interface Cancellation {
  readonly series: string;
  /** The first round that does not take place. */
  readonly fromRound: number;
  readonly reason: string;
}

/** The series of these bytes; a Refusal unless `author` signed it and the guarantee of its rounds holds. `pins` may name its id. */
export async function verifySeries(content: Uint8Array, author: Bytes, pins: readonly string[] = []): Promise<Series> {
  const { document, id, author: signer } = await verifySigned(content, author, "series", [1]), parts = ofFormat(document, "shuffledp-series", KEYS);
  const rounds = integer(parts["rounds"], 1, MAX_ROUNDS), roundsPerDevice = integer(parts["rounds_per_device"], 1, rounds);
  const open = integer(parts["open"], 1, LONGEST_PERIOD), period = integer(parts["period"], open, LONGEST_PERIOD);
  const { first_opens: firstOpens, template, replaces } = parts, start = Date.parse(String(firstOpens));
  check(start + 1000 * ((rounds - 1) * period + open) <= LAST_TIME, "rounds before the year 10000"); // false for NaN too
  if (replaces !== null) readId(replaces);
  check(isObject(template) && template["version"] === 2 && !OF_A_ROUND.some((key) => Object.hasOwn(template, key)), "a template");
  if (template["outer_suite"] === HYBRID_SUITE) throw new Refusal("unsupported", "this client does not carry out hybrid seals");
  const columns = readColumns(parts["keys"], rounds), signing = list(template["shufflers"], MAX_SHUFFLERS).map((hop) => object(hop, ["signing"])["signing"]);
  check(signing.length === columns.length - 1, "keys of every shuffler");
  const [analyzer, ...hops] = (await Promise.all(columns.map((column) => Promise.all(column.map(sealingKey))))) as [JsonObject[], ...JsonObject[][]];
  const used = [...columns.flat(), ...signing.map((key) => isObject(key) && key["public"])];
  check(new Set(used).size === used.length, "a key of its own for every round and role");
  const opensAt = (round: number): number => start + 1000 * round * period, closesAt = (round: number): number => opensAt(round) + 1000 * open;
  const documentOf = (round: number, series: Json): JsonObject => ({
    ...template, series, opens: time(opensAt(round)), closes: time(closesAt(round)), analyzer: analyzer[round]!,
    shufflers: hops.map((keys, hop) => ({ signing: signing[hop]!, sealing: keys[round]! })),
  });
  check(time(start) === firstOpens, "a time");
  const first = await readTask({ document: documentOf(0, null), version: 2, author: signer, id }, pins);
  const raw = (key: JsonObject): Bytes => fromBase64(key["public"], 32), written = (round: number): string => {
    if (!(round in analyzer)) throw new RangeError(`there is no round ${round}`);
    return write(documentOf(round, { id, round }));
  };
  const task = async (round: number): Promise<Task> => ({
    ...first, id: hex(await sha256(utf8(`shuffledp task v2\n${written(round)}`))), series: { id, round },
    opens: new Date(opensAt(round)), closes: new Date(closesAt(round)), analyzer: raw(analyzer[round]!), roundKeys: hops.map((keys) => raw(keys[round]!)),
  });
  return {
    id, rounds, roundsPerDevice, period, open, replaces: replaces as string | null, opensAt, document: written, task, first: await task(0),
    roundAt(now) {
      const round = Math.floor((now - start) / (1000 * period));
      return round >= 0 && round < rounds && now < closesAt(round) ? round : null; // null for NaN too
    },
  };
}

/** The cancellation of these bytes; a Refusal unless `author` signed it. Which series it is about must be compared. */
export async function verifyCancellation(content: Uint8Array, author: Bytes): Promise<Cancellation> {
  if (content.length > MAX_CANCEL_BYTES + 1) throw new Refusal("not-canonical", "the cancellation is too long");
  const { document } = await verifySigned(content, author, "cancel", [1]);
  const { series, from_round: fromRound, reason } = ofFormat(document, "shuffledp-cancel", ["format", "version", "series", "from_round", "reason"]);
  return { series: readId(series), fromRound: integer(fromRound, 0, MAX_ROUNDS - 1), reason: readText(reason, 1) };
}

const isObject = (document: Json | undefined): document is JsonObject => typeof document === "object" && document !== null && !Array.isArray(document);

/** The object, if it has this format in version 1, and these keys. */
function ofFormat(document: Json, format: string, keys: readonly string[]): JsonObject {
  if (!isObject(document) || document["format"] !== format || document["version"] !== 1) throw new Refusal("version", `not a ${format} of version 1`);
  return object(document, keys);
}

function readId(document: Json | undefined): string {
  check(typeof document === "string" && /^[0-9a-f]{64}$/.test(document), "the id of a series");
  return document;
}

/** The raw keys of every round: a list for the analyzer, and one for each shuffler. */
function readColumns(document: Json | undefined, rounds: number): Json[][] {
  const { analyzer, shufflers } = object(document, ["analyzer", "shufflers"]), columns = [analyzer, ...list(shufflers, MAX_SHUFFLERS)].map((column) => list(column, rounds));
  check(columns.every(({ length }) => length === rounds), "a key of every role for every round");
  return columns;
}

/** The object of a raw key, as tasks have it. */
async function sealingKey(document: Json): Promise<JsonObject> {
  const key = { kind: "sealing", id: await keyId("sealing", fromBase64(document, 32)), public: document };
  await readKey(key, "sealing"); // refuses keys of low order
  return key;
}

const time = (milliseconds: number): string => new Date(milliseconds).toISOString().replace(".000Z", "Z");
