/** A device and a series: rounds that are drawn once and before any value is known, cancellations, answers of a hostile server. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { mkdtemp, readdir, readFile, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Budget } from "../src/budget/index.ts";
import { fromBytes as recordOf } from "../src/budget/record.ts";
import { concat, hex, sha256, toBase64, utf8, type Bytes } from "../src/bytes.ts";
import { read, write, type JsonObject } from "../src/canonical.ts";
import { SecureDraws } from "../src/draw.ts";
import { Client, FileOutbox, FileRecord, Refusal } from "../src/node.ts";
import { type RecordStore } from "../src/record_store.ts";
import { drawn, fromBytes, toBytes } from "../src/series/participation.ts";
import { SeriesClient, verifySeries, type Participation, type SeriesOptions } from "../src/series/index.ts";
import { unhex, type Case } from "./vectors.ts";

const vectors: Case = JSON.parse(readFileSync(new URL("../../../vectors/v2/series.json", import.meta.url), "utf8"));
const directory = () => mkdtemp(join(tmpdir(), "shuffledp-")), author = toBase64(unhex(vectors.author.public)), POLICY = { minUsers: 1, maxEpsilon: 5, maxDelta: 0.1 };
const isRefusal = (reason: string) => (error: unknown) => error instanceof Refusal && error.reason === reason;

/** The private key of the vectors: series of other shapes can be signed. */
const signingKey = crypto.subtle.importKey("pkcs8", concat(unhex("302e020100300506032b657004220420"), unhex(vectors.author.private)), { name: "Ed25519" }, false, ["sign"]);

async function signed(name: "series" | "cancel" | "task", document: JsonObject, version = 1): Promise<Bytes> {
  const signature = await crypto.subtle.sign({ name: "Ed25519" }, await signingKey, utf8(`shuffledp ${name} v${version}\n${write(document)}`));
  return utf8(write({ [name]: document, author: vectors.author.key_id, signature: toBase64(new Uint8Array(signature)) }));
}

/** The first series of the vectors with other numbers, and keys for as many rounds. */
async function seriesOf(rounds: number, perDevice: number, changes: JsonObject = {}): Promise<Bytes> {
  const { series } = JSON.parse(vectors.good[0].content), key = async (role: string, i: number) => toBase64(await sha256(utf8(`${role} ${i}`)));
  const column = (role: string) => Promise.all(Array.from({ length: rounds }, (_, i) => key(role, i)));
  return signed("series", { ...series, rounds, rounds_per_device: perDevice, keys: { analyzer: await column("analyzer"), shufflers: [await column("shuffler")] }, ...changes });
}

async function device(content: Bytes, options: Partial<SeriesOptions> = {}): Promise<SeriesClient> {
  return SeriesClient.create(content, { author, policy: POLICY, outbox: options.outbox ?? (await FileOutbox.open(await directory())), ...options });
}

/** Reports to every round that is open, at its end: the rounds that were reported to. */
async function reportAll(client: SeriesClient): Promise<number[]> {
  const { rounds, open, opensAt } = client.series, reported: number[] = [], { categories } = client.series.first;
  for (let round = 0; round < rounds; round++) {
    const now = opensAt(round) + 1000 * open - 1;
    await client.report(categories?.[0] ?? 0, { now }).then((found) => reported.push(found), (error) => assert.ok(error instanceof Refusal, String(error)));
  }
  return reported;
}

const cancellation = (series: string, from_round: number): Promise<Bytes> => signed("cancel", { format: "shuffledp-cancel", version: 1, series, from_round, reason: "Enough." });

test("a device reports to the rounds that it drew, once each, and says so of others", async () => {
  const content = await seriesOf(6, 2), state = await directory(), client = await device(content, { outbox: await FileOutbox.open(state) }), { series, participation } = client;
  assert.equal(participation.rounds.length, 2);
  assert.deepEqual(await reportAll(client), participation.rounds);
  assert.deepEqual(await reportAll(await device(content, { outbox: await FileOutbox.open(state) })), []);
  const other = [0, 1, 2, 3, 4, 5].find((round) => !participation.rounds.includes(round))!;
  assert.deepEqual(client.turn(series.opensAt(other)), { status: "skipped", round: other, next: participation.rounds.find((round) => round > other) ?? null });
  assert.equal(client.roundAt(series.opensAt(other)), null);
  await assert.rejects(client.client(other), isRefusal("not-drawn"));
  await assert.rejects(client.report(0, { now: series.opensAt(other) }), isRefusal("not-drawn"));
});

test("the draw is made once: six at the same moment, and every later start, have the same; the fault draws at every start", async () => {
  const content = await seriesOf(9, 3), state = await directory(), outbox = await FileOutbox.open(state);
  const first = await Promise.all(Array.from({ length: 6 }, () => device(content, { outbox }))), again = await device(content, { outbox: await FileOutbox.open(state) });
  const shown = ({ participation }: SeriesClient): string => JSON.stringify(participation);
  assert.equal(new Set([...first, again].map(shown)).size, 1);
  const name = `${again.series.id}.series`;
  assert.deepEqual(await readdir(state), [name]);
  assert.deepEqual(await fromBytes(new Uint8Array(await readFile(join(state, name))), again.series), again.participation);
  const forgetting = (): RecordStore => ({ update: async (change) => { await change(null); } }), seen = new Set<number>();
  for (let start = 0; start < 20; start++) for (const round of (await device(content, { outbox, draws: forgetting })).participation.rounds) seen.add(round);
  assert.ok(seen.size > 3);
});

test("a draw that is damaged is neither used nor made again", async () => {
  const content = await seriesOf(5, 2), state = await directory(), client = await device(content, { outbox: await FileOutbox.open(state) }), path = join(state, `${client.series.id}.series`);
  const whole = await readFile(path), good: Participation = client.participation, text = (change: Partial<Participation>) => toBytes({ ...good, ...change });
  const bad = [
    utf8(""), utf8("null"), whole.subarray(0, whole.length - 9), Buffer.from(whole.toString().replace(/"checksum":"./, '"checksum":"x')),
    await text({ rounds: [0, 1, 2], delays: [1, 1, 1] }), await text({ rounds: [1, 1], delays: [0, 0] }), await text({ rounds: [0, 5] }), await text({ delays: [1] }), await text({ rounds: [-1, 2] }),
  ];
  for (const damaged of bad) {
    await writeFile(path, damaged);
    await assert.rejects(device(content, { outbox: await FileOutbox.open(state) }), isRefusal("damaged"));
    assert.deepEqual(await readFile(path), Buffer.from(damaged));
  }
});

/** The statistic of chi-square over equally probable cells. */
function chiSquare(counts: readonly number[]): number {
  const expected = counts.reduce((sum, count) => sum + count, 0) / counts.length;
  return counts.reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
}

test("the draw is uniform over pairs of rounds, its moments over the first nine tenths: chi-square, alpha 1e-7; both faults are seen", () => {
  const shape = { rounds: 5, roundsPerDevice: 2, open: 1000 }, DRAWS = 6000, LIMIT = 52; // 9 degrees of freedom: P(chi2 > 52) = 4.5e-8, twice
  const statistics = (draw: () => Participation): [number, number] => {
    const pairs: { [pair: string]: number } = {}, moments = new Array<number>(10).fill(0);
    for (let i = 0; i < 5; i++) for (let j = i + 1; j < 5; j++) pairs[`${i},${j}`] = 0;
    for (let draws = 0; draws < DRAWS; draws++) {
      const { rounds, delays } = draw();
      pairs[String(rounds)]!++;
      for (const delay of delays) {
        assert.ok(delay >= 0 && delay < 900);
        moments[Math.floor(delay / 90)]!++;
      }
    }
    return [chiSquare(Object.values(pairs)), chiSquare(moments)];
  };
  for (const statistic of statistics(() => drawn(shape))) assert.ok(statistic < LIMIT, String(statistic));
  const biased = new SecureDraws(), { below } = SecureDraws.prototype;
  biased.below = (n) => { const [a, b] = [below.call(biased, n), below.call(biased, n)]; return a < b ? a : b; };
  for (const statistic of statistics(() => drawn(shape, biased))) assert.ok(statistic > LIMIT, String(statistic));
});

test("it reports from the moment on that it drew, and only while a round is open", async () => {
  const client = await device(await seriesOf(4, 4, { first_opens: "2026-01-31T06:00:00Z" })), { series, participation } = client;
  for (const round of participation.rounds) {
    const moment = client.moment(round);
    assert.equal(moment, series.opensAt(round) + 1000 * participation.delays[round]!);
    if (moment > series.opensAt(round)) await assert.rejects(client.report(0, { now: moment - 1 }), isRefusal("not-open"));
    await assert.rejects(client.report(0, { now: series.opensAt(round) + 1000 * series.open }), isRefusal("not-open"));
  }
  assert.equal(await client.report(client.series.first.categories?.[0] ?? 0, { now: client.moment(2) }), 2);
  assert.deepEqual(client.turn(series.opensAt(0) - 1), { status: "pause", round: 0, next: 0 });
  assert.deepEqual(client.turn(series.opensAt(0) + 1000 * series.open), { status: "pause", round: 1, next: 1 });
  assert.deepEqual(client.turn(series.opensAt(3) + 1000 * series.open), { status: "over", round: 3, next: null });
  for (const now of [NaN, Infinity, -Infinity, -1, 8.64e15]) {
    assert.equal(client.roundAt(now), null);
    await assert.rejects(client.report(0, { now }), isRefusal("not-open"));
  }
});

test("a clock that jumps backward gives no second report, and no further round", async () => {
  const client = await device(await seriesOf(6, 2)), { rounds } = client.participation, { open, opensAt } = client.series, value = client.series.first.categories?.[0] ?? 0;
  const at = (round: number) => ({ now: opensAt(round) + 1000 * open - 1 });
  await client.report(value, at(rounds[1]!));
  await client.report(value, at(rounds[0]!));
  for (const round of [...rounds].reverse()) await assert.rejects(client.report(value, at(round)), isRefusal("already-reported"));
  assert.deepEqual(await reportAll(client), []);
});

test("the earliest of several cancellations counts, also after a restart; those of others are refused", async () => {
  const content = await seriesOf(6, 6), state = await directory(), client = await device(content, { outbox: await FileOutbox.open(state) }), { series } = client, { id, opensAt } = series;
  await client.cancel(await cancellation(id, 4));
  await client.cancel(await cancellation(id, 2));
  await client.cancel(await cancellation(id, 5));
  for (const each of [client, await device(content, { outbox: await FileOutbox.open(state) })]) {
    assert.equal(each.participation.cancelledFrom, 2);
    assert.equal(each.roundAt(opensAt(1)), 1);
    assert.deepEqual(each.turn(opensAt(2)), { status: "cancelled", round: 2, next: null });
    assert.deepEqual(each.turn(opensAt(2) - 1), { status: "cancelled", round: 2, next: null });
    await assert.rejects(each.report(0, { now: opensAt(3) }), isRefusal("cancelled"));
    assert.deepEqual(each.participation.rounds, [0, 1, 2, 3, 4, 5]);
  }
  const fresh = await device(content);
  await assert.rejects(fresh.cancel(await cancellation("0".repeat(64), 0)), isRefusal("malformed"));
  for (const { content: bad, reason } of vectors.bad_cancellations) await assert.rejects(fresh.cancel(utf8(bad)), isRefusal(reason));
  assert.equal(fresh.participation.cancelledFrom, null);
});

/** A server that gives one answer to every request. */
async function serving(status: number, content: Uint8Array, endless = false): Promise<{ url: string; server: Server; paths: string[] }> {
  const paths: string[] = [], server = createServer((request, response) => {
    paths.push(request.url!);
    response.writeHead(status, { "Content-Type": "application/json" });
    response.write(content);
    const more = endless && setInterval(() => { response.write(new Uint8Array(1 << 20)); }, 1);
    response.on("close", () => clearInterval(more || undefined));
    if (!endless) response.end();
  });
  await new Promise<void>((resolve) => { server.listen(0, "127.0.0.1", resolve); });
  return { url: `http://127.0.0.1:${(server.address() as { port: number }).port}`, server, paths };
}

test("the server's word is not taken for a cancellation", async () => {
  const content = await seriesOf(6, 6), { id } = await verifySeries(content, unhex(vectors.author.public)), document = read(content), own = read(await cancellation(id, 3)) as JsonObject;
  const answer = (cancellation: unknown, more: JsonObject = {}) => utf8(write({ series: document, cancellation: cancellation as JsonObject, round: null, task: null, ...more })), other = read(utf8(vectors.good_cancellations[0].content));
  const cases: [string | null, number | null, Bytes, number?, boolean?][] = [
    [null, null, answer(null)],
    [null, 3, answer(own)],
    [null, 3, answer(own, { series: null, round: 77, task: "x" })], // what is not signed is not read
    ["malformed", null, answer(other)], // of another series
    ["bad-signature", null, answer({ ...own, cancel: { ...(own["cancel"] as JsonObject), from_round: 0 } })],
    ["unknown-author", null, answer({ ...own, author: "0123456789abcdef" })],
    ["malformed", null, answer({ cancel: own["cancel"]! })],
    ["malformed", null, answer("no")],
    ["not-canonical", null, answer({ ...own, cancel: { ...(own["cancel"] as JsonObject), reason: "x".repeat(20_000) } })],
    ["refused", null, utf8(write({ series: document }))],
    ["refused", null, utf8("null")],
    ["refused", null, utf8("[]")],
    ["refused", null, utf8('{"cancellation": null}')], // not canonical
    ["refused", null, utf8('{"cancellation":null,"round":NaN}')],
    ["refused", null, utf8("")],
    ["refused", null, answer(own), 404],
    ["unreachable", null, answer(own), 302],
    ["unreachable", null, answer(null, { task: "x".repeat(1 << 20) })], // too long
    ["unreachable", null, utf8(" "), 200, true], // without an end
  ];
  for (const [reason, from, bytes, status, endless] of cases) {
    const client = await device(content), { url, server, paths } = await serving(status ?? 200, bytes, endless);
    const found = await client.update(url).then(() => null, (error: Refusal) => error.reason ?? String(error));
    assert.equal(found, reason, new TextDecoder().decode(bytes.subarray(0, 300)));
    assert.equal(client.participation.cancelledFrom, from);
    assert.deepEqual(paths, [`/v2/series/${id}`]);
    server.closeAllConnections();
    server.close();
  }
  await assert.rejects((await device(content)).update("http://127.0.0.1:9"), isRefusal("unreachable"));
  await assert.rejects((await device(content)).update("http://shuffler.example"), isRefusal("unreachable")); // not https
});

test("a task that claims to be a round is refused without the series", async () => {
  const series = await verifySeries(await seriesOf(3, 1), unhex(vectors.author.public)), document = read(utf8(series.document(1))) as JsonObject;
  assert.equal(hex(await sha256(utf8(`shuffledp task v2\n${write(document)}`))), (await series.task(1)).id);
  const options = { author, policy: POLICY, outbox: await FileOutbox.open(await directory()) };
  await assert.rejects(Client.create(await signed("task", document, 2), options), isRefusal("unsupported"));
  await Client.create(await signed("task", { ...document, series: null }, 2), options); // the same task alone is good
  assert.throws(() => series.document(3), RangeError);
});

test("keys that are shown to one device alone give a task that no server knows", async () => {
  const own = await verifySeries(await seriesOf(3, 1), unhex(vectors.author.public)), parts = (JSON.parse(new TextDecoder().decode(await seriesOf(3, 1))) as JsonObject)["series"] as JsonObject;
  const { analyzer, shufflers } = parts["keys"] as { analyzer: string[]; shufflers: string[][] }, swapped = [analyzer[0]!, analyzer[2]!, analyzer[1]!];
  const other = await verifySeries(await signed("series", { ...parts, keys: { analyzer: swapped, shufflers } }), unhex(vectors.author.public));
  assert.notEqual(other.id, own.id);
  for (const round of [0, 1, 2]) assert.notEqual((await other.task(round)).id, (await own.task(round)).id);
  assert.deepEqual((await other.task(1)).analyzer, (await own.task(2)).analyzer);
});

test("the rounds of a device are one series of its budget, of which each is charged", async () => {
  const state = await directory(), outbox = await FileOutbox.open(state), content = await seriesOf(5, 3), limits = { epsilon: 20, delta: 0.5, windowDays: 36_500, authors: { [vectors.author.key_id as string]: { series: 1 } } };
  const client = await device(content, { outbox, budget: await Budget.open(limits, await FileRecord.open(state)) });
  assert.equal((await reportAll(client)).length, 3);
  const entries = async () => (await recordOf(new Uint8Array(await readFile(join(state, "budget"))))).entries;
  assert.deepEqual([(await entries()).length, new Set((await entries()).map(({ series }) => series)).size], [3, 1]);
  const { series } = JSON.parse(vectors.good[0].content), later = await signed("series", { ...series, period: series.period + 1 });
  assert.deepEqual(await reportAll(await device(later, { outbox, budget: await Budget.open(limits, await FileRecord.open(state)) })), []); // a second series of the author
  assert.equal((await entries()).length, 3);
});
