/** The test vectors in Node. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { utf8 } from "../src/bytes.ts";
import { verifyTask } from "../src/task.ts";
import { checkVectors, unhex, type VectorFiles } from "./vectors.ts";

const load = (name: string): unknown => JSON.parse(readFileSync(new URL(`../../../vectors/v1/${name}.json`, import.meta.url), "utf8"));
const files = Object.fromEntries(["task", "randomizers", "clusters", "report", "sealing"].map((name) => [name, load(name)])) as unknown as VectorFiles;

test("vectors", async (context) => {
  const { passed, failures, skipped } = await checkVectors(files);
  context.diagnostic(`${passed} checks passed, ${skipped.length} protocols skipped`);
  assert.deepEqual(failures, []);
  assert.ok(passed > 1400, `only ${passed} checks`);
});

test("an altered vector is found", async () => {
  const altered = structuredClone(files), { law } = altered.randomizers.randomizers[0].reports[0];
  law[Object.keys(law)[0]!] = "1/7";
  assert.equal((await checkVectors(altered)).failures.length, 1);
});

test("a reader that trims its input is found by the edge cases", async () => {
  const trimmed: typeof verifyTask = (content, author) => verifyTask(utf8(new TextDecoder().decode(content).trim()), author);
  const { failures } = await checkVectors({ ...files, randomizers: { randomizers: [] }, clusters: { randomizers: [] } }, trimmed);
  assert.ok(failures.length >= 5 && failures.every((failure) => failure.includes("not-canonical")), failures.join("; "));
});

test("hostile parameters are refused in bounded time", async () => {
  const author = unhex(files.task.author.public), cases = files.task.edge_cases.filter(({ name }: { name: string }) => /too wide|users at most|128 bits|1,000,000,000,000/.test(name));
  assert.ok(cases.length >= 6);
  for (const { name, content } of cases) {
    const start = performance.now();
    await verifyTask(utf8(content), author).catch(() => {});
    assert.ok(performance.now() - start < 5000, name);
  }
});
