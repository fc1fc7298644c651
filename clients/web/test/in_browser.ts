/** What tests of Python call in a page. */
import { toBase64, utf8 } from "../src/bytes.ts";
import { Client, IndexedDbOutbox, type ClientOptions } from "../src/index.ts";
import { sealedReport } from "../src/report.ts";
import { Sealer } from "../src/sealing.ts";
import { verifyTask } from "../src/task.ts";
import { drawnDistributions } from "./drawn.ts";
import { checkVectors, unhex } from "./vectors.ts";

const clientOf = (content: string, author: string, options: Partial<ClientOptions> = {}) => Client.create(utf8(content), { author: toBase64(unhex(author)), ...options });

/** What became of a promise: its value, or the reason of the refusal. */
const outcome = (promise: Promise<unknown>) => promise.then((value) => value ?? null, (error: { reason?: string }) => error.reason ?? String(error));

/** Milliseconds of one report, and of a loop of bare seals of as many messages, in turn. */
async function timings(content: string, author: string, value: string, rounds: number): Promise<{ report: number[]; bare: number[]; messages: number }> {
  const task = await verifyTask(utf8(content), unhex(author)), report: number[] = [], bare: number[] = [];
  const measure = async (work: () => Promise<unknown>): Promise<number> => {
    const start = performance.now();
    await work();
    return performance.now() - start;
  };
  for (let round = 0; round < rounds; round++) {
    report.push(await measure(() => sealedReport(task, value)));
    bare.push(
      await measure(async () => {
        const sealer = await Sealer.create(task.analyzer, new Uint8Array(0));
        for (let message = 0; message < task.messagesPerReport; message++) await sealer.seal(new Uint8Array(1 + task.messageSize));
      }),
    );
  }
  return { report, bare, messages: task.messagesPerReport };
}

Object.assign(globalThis, { checkVectors, clientOf, drawnDistributions, IndexedDbOutbox, outcome, timings });
