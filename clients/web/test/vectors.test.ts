/** The test vectors in Node. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { checkVectors, type VectorFiles } from "./vectors.ts";

const load = (name: string): unknown => JSON.parse(readFileSync(new URL(`../../../vectors/v1/${name}.json`, import.meta.url), "utf8"));
const files = Object.fromEntries(["task", "randomizers", "report", "sealing"].map((name) => [name, load(name)])) as unknown as VectorFiles;

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
