/** What this client derives from signed series in a file, or why it refuses them: one line of JSON each, read by tests/browser/test_series.py. */
import { readFileSync } from "node:fs";
import { fromBase64, hex, sha256, utf8 } from "../src/bytes.ts";
import { Refusal } from "../src/refusal.ts";
import { verifySeries } from "../src/series/index.ts";

interface Case { readonly name: string; readonly content: string; readonly moments: number[] }
const { author, cases } = JSON.parse(readFileSync(process.argv[2]!, "utf8")) as { author: string; cases: Case[] };

for (const { name, content, moments } of cases) {
  const start = performance.now();
  let verdict: object;
  try {
    const series = await verifySeries(Buffer.from(content, "base64"), fromBase64(author, 32)), rounds = [...Array(series.rounds).keys()];
    const tasks = await Promise.all(rounds.map(async (round) => [(await series.task(round)).id, hex(await sha256(utf8(series.document(round))))]));
    const { epsilon, delta } = series.first.guarantee, { id, roundsPerDevice, replaces, first } = series;
    verdict = { reason: null, id, tasks, roundsPerDevice, replaces, epsilon, delta, size: first.reportSize, open: moments.map((moment) => series.roundAt(moment)) };
  } catch (error) {
    verdict = { reason: error instanceof Refusal ? error.reason : String(error) };
  }
  console.log(JSON.stringify({ name, ...verdict, milliseconds: performance.now() - start }));
}
