/** One report: randomized, padded with dummies, sealed, in random order. */
import { concat, utf8, type Bytes } from "./bytes.ts";
import { type Input, type Value } from "./domain.ts";
import { SecureDraws, type Draws } from "./draw.ts";
import { pack, type Message } from "./packing.ts";
import { Refusal } from "./refusal.ts";
import { Sealer } from "./sealing.ts";
import { REPORT_HEADER_BYTES, type Task } from "./task.ts";

const MAX_DRAWS = 1000, SEALS_AT_ONCE = 64;
const MAGIC = utf8("SDPR"), VERSION = Uint8Array.of(1), MESSAGE = Uint8Array.of(1);

export type Progress = (sealed: number, messages: number) => void;

const idBytes = (task: Task): Bytes => Uint8Array.from(task.id.match(/../g)!, (byte) => parseInt(byte, 16));

/** What a sealed message is bound to. */
export const sealingInfo = (taskId: Uint8Array): Bytes => concat(utf8("shuffledp message v1\0analyzer\0"), taskId);

/** A fresh report on a value. Call it once per person: a second report on the same value exceeds the guarantee. */
export async function sealedReport(task: Task, value: Value, progress: Progress = () => {}): Promise<Bytes> {
  const input = await task.domain.encode(value), draws = task.protocol.source?.() ?? new SecureDraws(), contents = padded(task, randomized(task, input, draws));
  for (let last = contents.length - 1; last > 0; last--) { // a uniform order, so that positions do not reveal the dummies
    const other = Number(draws.below(BigInt(last + 1)));
    [contents[last], contents[other]] = [contents[other]!, contents[last]!];
  }
  const id = idBytes(task), sealer = await Sealer.create(task.analyzer, sealingInfo(id)), sealed: Bytes[] = [];
  while (sealed.length < contents.length) {
    sealed.push(...(await Promise.all(contents.slice(sealed.length, sealed.length + SEALS_AT_ONCE).map((content) => sealer.seal(content)))));
    progress(sealed.length, contents.length);
  }
  return concat(MAGIC, VERSION, id, crypto.getRandomValues(new Uint8Array(16)), ...sealed);
}

/** The messages of a report, drawn again while they are more than fit. */
export function randomized(task: Pick<Task, "protocol" | "messagesPerReport">, input: Input, draws: Draws): Message[] {
  for (let attempt = 0; attempt < MAX_DRAWS; attempt++) {
    const messages = task.protocol.randomize(draws, input, task.messagesPerReport);
    if (messages && messages.length <= task.messagesPerReport) return messages;
  }
  throw new Refusal("policy", "the protocol nearly always sends more messages than a report of this task may have");
}

/** The contents to seal: messages and dummies, always as many and of one size. */
function padded(task: Task, messages: readonly Message[]): Bytes[] {
  const contents = messages.map((message) => concat(MESSAGE, pack(task.protocol.format, message)));
  while (contents.length < task.messagesPerReport) contents.push(new Uint8Array(1 + task.messageSize));
  return contents;
}

/** Throws unless these are the bytes of a report of the task. */
export function checkReport(task: Task, report: Uint8Array): void {
  const header = concat(MAGIC, VERSION, idBytes(task));
  if (!(report instanceof Uint8Array) || report.length !== task.reportSize || report.length < REPORT_HEADER_BYTES || !header.every((byte, i) => byte === report[i]))
    throw new Refusal("damaged", "the stored report is damaged and was not sent");
}
