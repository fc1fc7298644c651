/** One report: randomized, padded with dummies, sealed, in random order. */
import { concat, utf8, type Bytes } from "./bytes.ts";
import { type Input, type Value } from "./domain.ts";
import { SecureDraws, type Draws } from "./draw.ts";
import { pack, type Message } from "./packing.ts";
import { Refusal } from "./refusal.ts";
import { Sealer } from "./sealing.ts";
import { type Task } from "./task.ts";

const MAX_DRAWS = 1000, SEALS_AT_ONCE = 64;
const MAGIC = utf8("SDPR"), MESSAGE = Uint8Array.of(1);

export type Progress = (sealed: number, messages: number) => void;

const idBytes = ({ id }: Pick<Task, "id">): Bytes => Uint8Array.from(id.match(/../g)!, (byte) => parseInt(byte, 16));
/** The beginning of every report of a task. */
const header = (task: Pick<Task, "id" | "version">): Bytes => concat(MAGIC, Uint8Array.of(task.version), idBytes(task));

/** What a sealed message is bound to. */
export const sealingInfo = (task: Pick<Task, "id" | "version">): Bytes => concat(utf8(`shuffledp message v${task.version}\0analyzer\0`), idBytes(task));
/** What the seal of a message for a later shuffler is bound to. */
export const layerInfo = (task: Pick<Task, "id">, hop: number): Bytes => concat(utf8("shuffledp layer v2\0shuffler\0"), Uint8Array.of(hop), idBytes(task));
/** What the outer seal of a report is bound to: everything before it. */
export const outerInfo = (beginning: Bytes): Bytes => concat(utf8("shuffledp report v2\0shuffler\0"), beginning);

/** A fresh report on a value. Call it once per person: a second report on the same value exceeds the guarantee. */
export async function sealedReport(task: Task, value: Value, progress: Progress = () => {}): Promise<Bytes> {
  const input = await task.domain.encode(value), draws = task.protocol.source?.() ?? new SecureDraws(), contents = padded(task, randomized(task, input, draws));
  for (let last = contents.length - 1; last > 0; last--) { // a uniform order, so that positions do not reveal the dummies
    const other = Number(draws.below(BigInt(last + 1)));
    [contents[last], contents[other]] = [contents[other]!, contents[last]!];
  }
  const [roundKey, ...later] = task.roundKeys, sealed: Bytes[] = [];
  const sealers = await Promise.all([Sealer.create(task.analyzer, sealingInfo(task)), ...later.map((key, i) => Sealer.create(key, layerInfo(task, i + 1))).reverse()]);
  const seal = async (content: Bytes): Promise<Bytes> => { // the analyzer's is the innermost, then that of the last shuffler
    for (const sealer of sealers) content = await sealer.seal(content);
    return content;
  };
  while (sealed.length < contents.length) {
    sealed.push(...(await Promise.all(contents.slice(sealed.length, sealed.length + SEALS_AT_ONCE).map(seal))));
    progress(sealed.length, contents.length);
  }
  const beginning = concat(header(task), crypto.getRandomValues(new Uint8Array(16))), messages = concat(...sealed);
  return concat(beginning, roundKey ? await (await Sealer.create(roundKey, outerInfo(beginning))).seal(messages) : messages);
}

/**
 * The messages of a report, drawn again while they are more than fit, and how many it has with dummies. Who is a carrier is drawn once, before
 * and without everything else: a coin that is tossed again with the noise would come out less often, and the length of a report shows it.
 */
export function randomized({ protocol, messagesPerReport, carriers }: Pick<Task, "protocol" | "messagesPerReport" | "carriers">, input: Input, draws: Draws): { messages: Message[]; count: number } {
  const { roles } = protocol, isCarrier = carriers !== null && draws.coin(roles!.probability), count = isCarrier ? carriers.messagesPerReport : messagesPerReport;
  if (carriers && !isCarrier) return { messages: roles!.own(input), count };
  for (let attempt = 0; attempt < MAX_DRAWS; attempt++) {
    const messages = protocol.randomize(draws, input, count);
    if (messages && messages.length <= count) return { messages, count };
  }
  throw new Refusal("policy", "the protocol nearly always sends more messages than a report of this task may have");
}

/** The contents to seal: messages and dummies, of one size and as many whatever the value is. */
function padded(task: Task, { messages, count }: { readonly messages: readonly Message[]; readonly count: number }): Bytes[] {
  const contents = messages.map((message) => concat(MESSAGE, pack(task.protocol.format, message)));
  while (contents.length < count) contents.push(new Uint8Array(1 + task.messageSize));
  return contents;
}

/** Throws unless these are the bytes of a report of the task. */
export function checkReport(task: Task, report: Uint8Array): void {
  if (!(report instanceof Uint8Array) || ![task.reportSize, task.carriers?.reportSize].includes(report.length) || !header(task).every((byte, i) => byte === report[i]))
    throw new Refusal("damaged", "the stored report is damaged and was not sent");
}
