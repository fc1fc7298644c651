/** The test vectors in Node. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { utf8 } from "../src/bytes.ts";
import { verifyTask } from "../src/task.ts";
import { checkVectors, unhex, type VectorFiles } from "./vectors.ts";
import { checkVersion2 } from "./vectors_v2.ts";

const load = (version: string, ...names: string[]): object =>
  Object.fromEntries(names.map((name) => [name, JSON.parse(readFileSync(new URL(`../../../vectors/${version}/${name}.json`, import.meta.url), "utf8"))]));
const files = { ...load("v1", "task", "randomizers", "clusters", "report", "sealing"), v2: load("v2", "task", "report", "token", "carriers", "augmented", "series", "hybrid") } as VectorFiles;

test("vectors", async (context) => {
  const { passed, failures, skipped } = await checkVectors(files);
  context.diagnostic(`${passed} checks passed, ${skipped.length} protocols skipped`);
  assert.deepEqual(failures, []);
  assert.ok(passed > 1400, `only ${passed} checks`);
});

test("an altered vector is found", async () => {
  const altered = { ...structuredClone({ ...files, randomizers: { ...files.randomizers, randomizers: files.randomizers.randomizers.slice(0, 1) } }), clusters: { randomizers: [] } };
  const { law } = altered.randomizers.randomizers[0].reports[0];
  law[Object.keys(law)[0]!] = "1/7";
  assert.equal((await checkVectors(altered)).failures.length, 1);
});

test("altered vectors of version 2 are found", async () => {
  const changes: { [part: string]: (v2: VectorFiles["v2"]) => void } = {
    "id and size": ({ task }) => { task.good[0].report_size -= 48; }, // as in version 1
    "outer seal": ({ report }) => { report.good[0].ephemeral = report.good[0].ephemeral.replace(/..$/, "00"); },
    token: ({ token }) => { token.good[0].authorization = `Bearer ${token.good[0].token}`; },
    ": unsupported": ({ task }) => { task.optional.push(task.good[0]); },
    "round 1": ({ series }) => { series.good[0].tasks[1].id = series.good[0].tasks[2].id; }, // round i with the keys of j
    "unknown-author": ({ series }) => { series.bad_cancellations.find(({ name }: { name: string }) => name === "by somebody else").reason = "bad-signature"; },
    "not version": ({ task }) => { task.bad = [{ ...task.bad.find(({ name }: { name: string }) => name === "no shuffler"), reason: "version" }]; },
  };
  for (const [part, change] of Object.entries(changes)) {
    const altered = structuredClone(files.v2), outcome: string[] = [];
    change(altered);
    await checkVersion2(altered, (holds, name) => { if (!holds) outcome.push(name); });
    assert.ok(outcome.length === 1 && outcome[0]!.includes(part), `${part}: ${outcome}`);
  }
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
