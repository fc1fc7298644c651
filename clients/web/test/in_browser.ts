/** What tests of Python call in a page. */
import { toBase64, utf8 } from "../src/bytes.ts";
import { Budget } from "../src/budget/index.ts";
import { type Json } from "../src/canonical.ts";
import { Client, IndexedDbOutbox, type ClientOptions } from "../src/index.ts";
import { sealedReport } from "../src/report.ts";
import { Sealer } from "../src/sealing.ts";
import { SeriesClient, type SeriesOptions } from "../src/series/index.ts";
import { readStrings } from "../src/strings.ts";
import { verifyTask } from "../src/task.ts";
import { drawnDistributions } from "./drawn.ts";
import { checkVectors, unhex } from "./vectors.ts";

const clientOf = (content: string, author: string, options: Partial<ClientOptions> = {}) => Client.create(utf8(content), { author: toBase64(unhex(author)), ...options });

const seriesOf = (content: string, author: string, options: Partial<SeriesOptions> = {}) => SeriesClient.create(utf8(content), { author: toBase64(unhex(author)), ...options });

/** What became of a promise: its value, or the reason of the refusal. */
const outcome = (promise: Promise<unknown>) => promise.then((value) => value ?? null, (error: { reason?: string }) => error.reason ?? String(error));

/** Milliseconds of one report, of a loop of bare seals of as many messages, and of the same seals all at once, in turn. */
async function timings(content: string, author: string, value: string, rounds: number): Promise<{ report: number[]; loop: number[]; together: number[]; messages: number }> {
  const task = await verifyTask(utf8(content), unhex(author)), report: number[] = [], loop: number[] = [], together: number[] = [];
  const measure = async (work: () => Promise<unknown>): Promise<number> => {
    const start = performance.now();
    await work();
    return performance.now() - start;
  };
  for (let round = 0; round < rounds; round++) {
    report.push(await measure(() => sealedReport(task, value)));
    const sealer = await Sealer.create(task.analyzer, new Uint8Array(0)), contents = Array.from({ length: task.messagesPerReport }, () => new Uint8Array(1 + task.messageSize));
    loop.push(
      await measure(async () => {
        for (const content of contents) await sealer.seal(content);
      }),
    );
    together.push(await measure(() => Promise.all(contents.map((content) => sealer.seal(content)))));
  }
  return { report, loop, together, messages: task.messagesPerReport };
}

/** Strings as a domain normalizes them. */
const normalizedStrings = (domain: Json, texts: string[]) => texts.map(readStrings(domain).normalized);

Object.assign(globalThis, { Budget, checkVectors, clientOf, drawnDistributions, IndexedDbOutbox, normalizedStrings, outcome, seriesOf, timings });
