/** Tasks with carriers: what is compared, what a device allows, and the role that a stored report keeps. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { toBase64, utf8, type Bytes } from "../src/bytes.ts";
import { Client, FileOutbox, Refusal, type Outbox, type Policy } from "../src/node.ts";
import { checkPolicy } from "../src/policy.ts";
import { chanceOfFewer } from "../src/protocols/carriers.ts";
import { sealedReport } from "../src/report.ts";
import { verifyTask } from "../src/task.ts";
import { refusing, withFault } from "./altered.ts";
import { unhex } from "./vectors.ts";
import { checkVersion2 } from "./vectors_v2.ts";

const load = (name: string) => JSON.parse(readFileSync(new URL(`../../../vectors/v2/${name}.json`, import.meta.url), "utf8"));
const files = { task: load("task"), report: load("report"), token: load("token"), carriers: load("carriers"), augmented: load("augmented"), series: load("series"), hybrid: load("hybrid") };
const author = unhex(files.carriers.author.public), content = files.carriers.good_tasks[0].content as string;

async function failures(verify: typeof verifyTask): Promise<string[]> {
  const found: string[] = [];
  await checkVersion2(files, (holds, name) => { if (!holds) found.push(name); }, verify);
  return found;
}

const COMPARED = "carriers: carriers?.minimum === roles?.minimum && (!carriers || messagesPerReport === 1),";
const FAULTS = {
  "the minimum is not compared": [{ file: "task.ts", right: COMPARED, faulty: "" }, ["no carriers", "one carrier fewer", "one carrier more"]],
  "a larger minimum is accepted": [{ file: "task.ts", right: COMPARED, faulty: COMPARED.replace("carriers?.minimum === roles?.minimum", "(carriers?.minimum ?? 0) >= (roles?.minimum ?? 0)") }, ["one carrier more"]],
  "the others may send more": [{ file: "task.ts", right: COMPARED, faulty: COMPARED.replace("messagesPerReport === 1", "true") }, ["two messages of others"]],
  "the cap is not charged": [{ file: "task.ts", right: "maximumUsers, ...(carriers ?? { messagesPerReport }) }", faulty: "maximumUsers, messagesPerReport: 65_536 }" }, ["too short reports of carriers", "delta"]],
  "fewer carriers cost nothing": [{ file: "protocols/carriers.ts", right: "delta!(epsilon) + (shortage", faulty: "delta!(epsilon) + 0 * (shortage" }, ["hardly ever a carrier"]],
  "more honest carriers than honest users": [{ file: "protocols/carriers.ts", right: " && needed <= honest", faulty: "" }, ["more honest carriers than honest users"]],
} as const;

test("every bad task is refused for the reason of the vectors", async () => {
  assert.deepEqual(await failures(verifyTask), []);
});

for (const [name, [fault, expected]] of Object.entries(FAULTS))
  test(`found: ${name}`, async () => {
    const found = await withFault(fault, "task.ts", ({ verifyTask: faulty }: { verifyTask: typeof verifyTask }) => failures(refusing(faulty) as typeof verifyTask));
    assert.ok(expected.every((part) => found.some((failure) => failure.includes(part))), `${found}`);
  });

test("a device allows the longer report or refuses, before and without the coin", async () => {
  const task = await verifyTask(utf8(content), author), { carriers } = task, limits: Partial<Policy>[] = [{ maxMessages: carriers!.messagesPerReport - 1 }, { maxReportBytes: carriers!.reportSize - 1 }];
  checkPolicy(task, { maxMessages: carriers!.messagesPerReport, maxReportBytes: carriers!.reportSize });
  for (const policy of limits) {
    assert.throws(() => checkPolicy(task, policy), (error) => error instanceof Refusal && error.reason === "policy");
    await withFault({ file: "policy.ts", right: "task.carriers ?? task", faulty: "task" }, "policy.ts", async ({ checkPolicy: faulty }: { checkPolicy: typeof checkPolicy }) => faulty(task, policy));
  }
});

/** An outbox that keeps no bytes: whenever the report is sent, it is made again. */
function forgetful(outbox: Outbox, again: () => Promise<Bytes>): Outbox {
  return {
    get: async (id) => ({ ...(await outbox.get(id)), report: await again() }),
    add: (id, report) => outbox.add(id, report),
    finish: (...end) => outbox.finish(...end),
    exclusively: (id, action) => outbox.exclusively(id, action),
  };
}

/** The bytes of two attempts of each of several devices: at most `devices`, until both roles were seen. */
async function attempts(devices: number, keeping: (outbox: Outbox, client: () => Client) => Outbox): Promise<[Bytes, Bytes][]> {
  const pairs: [Bytes, Bytes][] = [], sent: Bytes[] = [], fetched = globalThis.fetch;
  globalThis.fetch = async (_, options) => {
    sent.push(new Uint8Array(options!.body as ArrayBuffer));
    throw new TypeError("no answer");
  };
  try {
    while (pairs.length < devices && new Set(pairs.flat().map(({ length }) => length)).size < 2) {
      let client: Client;
      const outbox = keeping(await FileOutbox.open(await mkdtemp(join(tmpdir(), "shuffledp-"))), () => client);
      client = await Client.create(utf8(content), { author: toBase64(author), outbox });
      await client.report(pairs.length % 2 === 0, { now: (+client.task.opens + +client.task.closes) / 2 });
      for (let attempt = 0; attempt < 2; attempt++) await assert.rejects(client.send("http://127.0.0.1:9", { patience: { attempts: 1 } }));
      pairs.push(sent.splice(0) as [Bytes, Bytes]);
    }
  } finally {
    globalThis.fetch = fetched;
  }
  return pairs;
}

const areTheSame = ([first, second]: [Bytes, Bytes]) => Buffer.compare(first, second) === 0;

test("a stored report keeps its role: the same bytes again, of one of two lengths", async () => {
  const { report_size: short, carrier_report_size: long } = files.carriers.good_tasks[0], pairs = await attempts(60, (outbox) => outbox); // one in four carries: 3e-8 that none does
  assert.ok(pairs.every(areTheSame));
  assert.deepEqual(new Set(pairs.map(([{ length }]) => length)), new Set([short, long]));
});

test("found: an outbox that makes the report again at every attempt draws roles anew", async () => {
  const pairs = await attempts(60, (outbox, client) => forgetful(outbox, () => sealedReport(client().task, true)));
  assert.ok(!pairs.some(areTheSame));
});

test("the probability of fewer carriers is an upper bound, by less than a billionth, up to a billion users", () => {
  const half = { numerator: 1n, bits: 1 }, choose = (n: number, k: number) => { let c = 1n; for (let i = 0n; i < k; i++) c = (c * (BigInt(n) - i)) / (i + 1n); return c; };
  for (const [n, needed] of [[10, 1], [60, 20], [500, 200], [500, 251], [500, 500], [900, 300]] as const) {
    let sum = 0n;
    for (let k = 0; k < needed; k++) sum += choose(n, k);
    const exact = Number((sum << 1000n) / (1n << BigInt(n))) / 2 ** 1000, found = chanceOfFewer(n, half, needed);
    assert.ok(found >= exact && found <= exact * (1 + 1e-9), `${n}, ${needed}: ${found} of ${exact}`);
  }
  const rare = { numerator: 1n, bits: 20 }, start = process.cpuUsage();
  for (const [needed, least, most] of [[1, 0, 1e-200], [700, 1e-20, 1e-10], [954, 0.4, 0.6], [2000, 1 - 1e-12, 1 + 1e-9], [10 ** 9, 1, 1 + 1e-9]] as const) {
    const found = chanceOfFewer(10 ** 9, rare, needed);
    assert.ok(found >= least && found <= most, `${needed}: ${found}`);
  }
  assert.ok(chanceOfFewer(10 ** 9, half, 5 * 10 ** 8 - 10 ** 5) < 1e-8 && process.cpuUsage(start).user < 3e6);
});
