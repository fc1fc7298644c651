/** The budget of a device: the vectors that Python shares, and the faults that tests must find. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { mkdtemp, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Budget, BudgetRefusal, charged, type Limits } from "../src/budget/budget.ts";
import { POINTS, sampled, Total, type Release } from "../src/budget/curves.ts";
import { fromBytes, toBytes } from "../src/budget/record.ts";
import { type RecordStore } from "../src/record_store.ts";
import { fromBase64, toBase64, utf8, type Bytes } from "../src/bytes.ts";
import { Client, FileOutbox, FileRecord, Refusal, type Charge } from "../src/node.ts";
import { unhex, type Case } from "./vectors.ts";

const vectors: Case = JSON.parse(readFileSync(new URL("../../../vectors/v2/budget.json", import.meta.url), "utf8"));
const releaseOf = ({ samples, epsilon, delta }: Case): Release => ({ deltas: new Float32Array(fromBase64(samples, 4 * POINTS).buffer), epsilon: Number(epsilon), delta: Number(delta) });
const releases: { [name: string]: Release } = Object.fromEntries(vectors.curves.map((curve: Case) => [curve.name, releaseOf(curve)]));
const value = (text: string): number => (text === "inf" ? Infinity : Number(text));
const directory = () => mkdtemp(join(tmpdir(), "shuffledp-"));

/** Whether a total has the numbers of the vectors. */
function agrees({ epsilons, deltas }: Case, total: Total): boolean {
  const near = (found: number, expected: number) => found === expected || Math.abs(found - expected) <= 1e-9 * expected + 1e-13;
  return Object.entries<string>(epsilons).every(([delta, epsilon]) => near(total.epsilonAt(Number(delta)), value(epsilon)))
    && Object.entries<string>(deltas).every(([epsilon, delta]) => near(total.deltaAt(Number(epsilon)), value(delta)));
}

test("totals are those of Python; curves that were rounded down give others", () => {
  const lowered = ({ deltas, ...pair }: Release): Release => ({ ...pair, deltas: deltas.map((x) => x * (1 - 1e-6)) });
  let found = 0;
  for (const total of vectors.totals) {
    const curves: Release[] = total.curves.map((name: string) => releases[name]);
    assert.ok(agrees(total, Total.of(curves)), total.curves.join());
    if (!agrees(total, Total.of(curves.map(lowered)))) found++;
  }
  assert.ok(found >= 4);
});

function limitsOf({ epsilon, delta, window_days, authors }: Case): Limits {
  const own = Object.entries<Case>(authors).map(([id, each]) => [id, { epsilon: each.epsilon === null ? undefined : Number(each.epsilon), series: each.series ?? undefined }]);
  return { epsilon: Number(epsilon), delta: Number(delta), windowDays: window_days, authors: Object.fromEntries(own) };
}

/** The record after a case of the vectors, or the refusal. */
async function outcomeOf({ before, limits, task, author, closes, now, curve }: Case): Promise<string | Refusal> {
  const report = { task, author, closes: new Date(closes), now: Date.parse(now), release: releases[curve]! };
  return fromBytes(utf8(before)).then((record) => charged(record, report, limitsOf(limits))).then(toBytes).then((bytes) => new TextDecoder().decode(bytes), (error: Refusal) => error);
}

test("reports change the record as in Python, byte by byte, or are refused until the same day", async () => {
  for (const change of vectors.charges) {
    const outcome = await outcomeOf(change);
    if (change.after) assert.equal(outcome, change.after, change.name);
    else assert.ok(outcome instanceof BudgetRefusal && outcome.message === change.refused && outcome.possible === change.possible, `${change.name}: ${outcome}`);
  }
});

test("a clock that is believed would free the budget", async () => {
  const ahead = vectors.charges.find(({ name }: Case) => name === "a clock far ahead");
  assert.ok((await outcomeOf(ahead)) instanceof BudgetRefusal);
  assert.equal(typeof (await outcomeOf({ ...ahead, closes: ahead.now })), "string"); // the fault: the day of the clock counts
});

test("a damaged record is refused, not forgotten", async () => {
  for (const { name, content } of vectors.damaged)
    await assert.rejects(fromBytes(utf8(content)), (error) => error instanceof Refusal && error.reason === "budget", name);
});

/** A curve in closed form: randomized response. */
const response = (local: number) => (epsilon: number): number => Math.max(0, (Math.exp(local) - Math.exp(epsilon)) / (1 + Math.exp(local)));

test("samples are upper bounds, also where a curve is not evaluated, slow, or undefined", () => {
  const isBound = (deltas: Float32Array, curve: (epsilon: number) => number) => deltas.every((delta, i) => delta >= curve(i / 50));
  for (const local of [0.1, 1, 2.9]) {
    const curve = response(local), { deltas } = sampled(curve, local, 0);
    assert.ok(isBound(deltas, curve) && isBound(sampled(curve, local, 0, () => Infinity).deltas, curve));
    assert.ok(!isBound(Float32Array.from({ length: POINTS }, (_, i) => curve(i / 50) * (1 - 1e-7)), curve), "rounding down is found");
    const total = Total.of([{ deltas, epsilon: local, delta: 0 }]).epsilonAt(1e-6);
    assert.ok(total <= local * (1 + 1e-9) && total >= local - 0.02, `${total} of ${local}`);
  }
  assert.ok(sampled(() => NaN, 1, 1e-6).deltas.every((delta) => delta === 1));
});

const charge = (epsilon: number, task = "00".repeat(32)): Charge => ({
  task, population: "city", author: "0123456789abcdef", closes: new Date("2027-01-01"), now: Date.parse("2026-06-01"), epsilon, delta: 0,
  guarantee: { epsilon, delta: 0, deltaAt: response(epsilon), honestUsers: 1, localEpsilon: epsilon, local: true, augmented: false, how: "recomputed" },
});

/** How many of several reports at once fit into a budget that has room for one. */
async function accepted(store: RecordStore): Promise<number> {
  const budgets = await Promise.all(Array.from({ length: 4 }, () => Budget.open({ epsilon: 1.5 }, store)));
  const outcomes = await Promise.allSettled(budgets.map((budget, i) => budget.charge(charge(1, `0${i}`.repeat(32)))));
  for (const outcome of outcomes) if (outcome.status === "rejected") assert.ok(outcome.reason instanceof BudgetRefusal, String(outcome.reason));
  return outcomes.filter(({ status }) => status === "fulfilled").length;
}

test("several reports at once do not share what is left; a store that does not decide is found", async () => {
  const path = await directory();
  assert.equal(await accepted(await FileRecord.open(path)), 1);
  assert.equal((await fromBytes(new Uint8Array(await readFile(join(path, "budget"))))).entries.length, 1);
  let content: Bytes | null = null;
  assert.equal(await accepted({ update: async (change) => { content = await change(content); } }), 4);
});

const load = (name: string): Case => JSON.parse(readFileSync(new URL(`../../../vectors/v2/${name}.json`, import.meta.url), "utf8"));

/** What is durable when the outbox stores the report: entries of the record, if the device stops at that moment. */
async function recordedBeforeStoring(wrapped: (store: RecordStore) => RecordStore): Promise<number> {
  const path = await directory(), outbox = await FileOutbox.open(path), { author, good } = load("task");
  const store = wrapped(await FileRecord.open(path)), entries = async () => readFile(join(path, "budget")).then(async (bytes) => (await fromBytes(new Uint8Array(bytes))).entries.length, () => 0);
  let durable = -1;
  const stopping = Object.assign(Object.create(outbox) as FileOutbox, {
    get: outbox.get.bind(outbox), exclusively: outbox.exclusively.bind(outbox),
    add: async () => { durable = await entries(); throw new Error("the device stops"); },
  });
  const client = await Client.create(utf8(good[0].content), { author: toBase64(unhex(author.public)), outbox: stopping, budget: await Budget.open({}, store) });
  await assert.rejects(client.report(client.task.categories![0]!, { now: +client.task.opens }), /the device stops/);
  return durable;
}

test("a report is charged durably before it is stored; a charge afterwards is found", async () => {
  assert.equal(await recordedBeforeStoring((store) => store), 1);
  const late = (store: RecordStore): RecordStore => ({ update: async (change) => { setTimeout(() => void store.update(change).catch(() => {}), 200); } });
  assert.equal(await recordedBeforeStoring(late), 0);
});

test("limits that make no sense are refused in one line", async () => {
  const wrong: Partial<Limits>[] = [{ epsilon: 0 }, { epsilon: NaN }, { delta: 1 }, { delta: NaN }, { windowDays: 0.5 }, { authors: { someone: {} } }, { authors: { "0123456789abcdef": { series: 0 } } }];
  for (const limits of wrong) await assert.rejects(Budget.open(limits, { update: async () => {} }), RangeError, JSON.stringify(limits));
});
