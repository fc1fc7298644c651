/** The verdicts of this client on tasks in a file: one line of JSON for each, read by tests/browser/test_differential.py. */
import { readFileSync } from "node:fs";
import { fromBase64 } from "../src/bytes.ts";
import { Refusal } from "../src/refusal.ts";
import { verifyTask } from "../src/task.ts";

interface Case { readonly name: string; readonly content: string; readonly pins: string[]; readonly epsilons: number[] }
const { author, cases } = JSON.parse(readFileSync(process.argv[2]!, "utf8")) as { author: string; cases: Case[] };

for (const { name, content, pins, epsilons } of cases) {
  const start = performance.now();
  let verdict: object;
  try {
    const { id, guarantee, messagesPerReport } = await verifyTask(Buffer.from(content, "base64"), fromBase64(author, 32), pins);
    const { how, localEpsilon, honestUsers } = guarantee;
    verdict = { reason: null, id, how, honestUsers, messagesPerReport, localEpsilon: Number.isFinite(localEpsilon) ? localEpsilon : null };
    Object.assign(verdict, { milliseconds: performance.now() - start, deltas: epsilons.map((epsilon) => guarantee.deltaAt(epsilon)) });
  } catch (error) {
    verdict = { reason: error instanceof Refusal ? error.reason : String(error), milliseconds: performance.now() - start };
  }
  console.log(JSON.stringify({ name, ...verdict }));
}
