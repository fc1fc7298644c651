/** The client in Node: at most one report, the same bytes again, constant sizes, policy, budget, the outbox in files. */
import { Aes128Gcm, CipherSuite, DhkemX25519HkdfSha256, HkdfSha256 } from "@hpke/core";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { chmod, mkdtemp, readdir, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { hex, toBase64, utf8, type Bytes } from "../src/bytes.ts";
import { explain } from "../src/explain.ts";
import { Client, FileOutbox, IndexedDbOutbox, Refusal, type ClientOptions } from "../src/node.ts";
import { outerInfo, sealedReport, sealingInfo } from "../src/report.ts";
import { verifyTask } from "../src/task.ts";
import { unhex } from "./vectors.ts";

const load = (name: string) => JSON.parse(readFileSync(new URL(`../../../vectors/v1/${name}.json`, import.meta.url), "utf8"));
const tasks = load("task"), good = tasks.good.find(({ name }: { name: string }) => name === "histogram/balcer-cheu").content as string;
const author = toBase64(unhex(tasks.author.public));
const directory = () => mkdtemp(join(tmpdir(), "shuffledp-"));
const create = async (options: Partial<ClientOptions> = {}) => Client.create(utf8(good), { author, outbox: options.outbox ?? (await FileOutbox.open(await directory())), ...options });
const isRefusal = (reason: string, final = false) => (error: unknown) => error instanceof Refusal && error.reason === reason && error.final === final;

/** A shuffler that gives these answers, one after the other; the last one again. A status of 0 closes the connection. */
async function shuffler(...answers: { status: number; problem?: string; headers?: { [name: string]: string } }[]): Promise<{ url: string; bodies: string[]; server: Server }> {
  const bodies: string[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk)).on("end", () => {
      const { status, problem, headers = {} } = answers[Math.min(bodies.length, answers.length - 1)]!;
      bodies.push(Buffer.concat(chunks).toString("hex"));
      if (status === 0) return request.socket.destroy();
      response.writeHead(status, problem ? { "Content-Type": "application/problem+json", ...headers } : headers);
      return response.end(problem ? JSON.stringify({ type: `urn:shuffledp:problem:${problem}` }) : "");
    });
  });
  await new Promise<void>((resolve) => { server.listen(0, "127.0.0.1", resolve); });
  return { url: `http://127.0.0.1:${(server.address() as { port: number }).port}`, bodies, server };
}

async function within(task: { opens: Date; closes: Date }): Promise<{ now: number }> {
  return { now: (+task.opens + +task.closes) / 2 };
}

test("a report is stored once and sent with the same bytes until it is answered", async () => {
  const { url, bodies, server } = await shuffler({ status: 0 }, { status: 503, headers: { "Retry-After": "0" } }, { status: 201 });
  const state = await directory(), client = await create({ outbox: await FileOutbox.open(state) }), names = client.task.categories!;
  assert.equal(await client.state(), "none");
  await assert.rejects(client.send(url), isRefusal("nothing-to-send"));
  await client.report(names[0]!, await within(client.task));
  assert.equal(await client.state(), "pending");
  await assert.rejects(client.report(names[1]!, await within(client.task)), isRefusal("already-reported"));
  const again = await create({ outbox: await FileOutbox.open(state) }); // the device starts again
  const pauses: number[] = [];
  assert.equal(await again.send(url, { patience: { firstPause: 0.001 }, onRetry: (seconds) => pauses.push(seconds) }), "delivered");
  assert.equal(bodies.length, 3);
  assert.equal(pauses.length, 2);
  assert.equal(new Set(bodies).size, 1);
  assert.equal(bodies[0]!.length / 2, client.task.reportSize);
  assert.equal(await client.state(), "delivered");
  assert.equal(await client.send(url), "delivered");
  assert.equal(bodies.length, 3);
  await assert.rejects(client.report(names[1]!, await within(client.task)), isRefusal("already-reported"));
  assert.deepEqual(await readdir(state), [`${client.task.id}.delivered`]);
  server.close();
});

test("two processes that report at the same moment make one report", async () => {
  const state = await directory(), clients = await Promise.all(Array.from({ length: 6 }, async () => create({ outbox: await FileOutbox.open(state) })));
  const outcomes = await Promise.allSettled(clients.map(async (client, i) => client.report(client.task.categories![i % 3]!, await within(client.task))));
  assert.equal(outcomes.filter(({ status }) => status === "fulfilled").length, 1);
  for (const outcome of outcomes) if (outcome.status === "rejected") assert.ok(isRefusal("already-reported")(outcome.reason));
  assert.equal((await readdir(state)).length, 1);
});

test("a refusal is final only if the shuffler itself says so", async () => {
  for (const [answer, final, state] of [
    [{ status: 410, problem: "round-closed" }, true, "closed"], [{ status: 422, problem: "wrong-size" }, true, "refused"],
    [{ status: 410 }, false, "pending"], [{ status: 403, problem: "token-spent" }, false, "pending"],
  ] as const) {
    const { url, server } = await shuffler(answer), client = await create();
    await client.report(client.task.categories![0]!, await within(client.task));
    await assert.rejects(client.send(url), isRefusal("refused", final));
    assert.equal(await client.state(), state);
    server.close();
  }
});

test("sending gives up, and can be stopped", async () => {
  const { url, server } = await shuffler({ status: 503 }), client = await create();
  await client.report(client.task.categories![0]!, await within(client.task));
  await assert.rejects(client.send(url, { patience: { attempts: 2, firstPause: 0.001 } }), isRefusal("unreachable"));
  const controller = new AbortController(), sending = client.send(url, { signal: controller.signal, onRetry: () => controller.abort() });
  await assert.rejects(sending, isRefusal("aborted"));
  for (const address of ["http://shuffler.example", "https://user:password@shuffler.example", "ftp://127.0.0.1", "shuffler"])
    await assert.rejects(client.send(address), isRefusal("unreachable"));
  assert.equal(await client.state(), "pending");
  server.close();
});

test("what a device refuses", async () => {
  const client = await create(), now = await within(client.task);
  await assert.rejects(client.report("no such category", now), isRefusal("domain"));
  await assert.rejects(client.report(0, now), isRefusal("domain"));
  await assert.rejects(client.report(client.task.categories![0]!, { now: +client.task.closes }), isRefusal("not-open"));
  await assert.rejects(client.report(client.task.categories![0]!, { now: +client.task.opens - 1 }), isRefusal("not-open"));
  for (const policy of [{ maxEpsilon: 0.1 }, { maxDelta: 1e-12 }, { minUsers: 1001 }, { maxMessages: 3 }, { maxReportBytes: 100 }]) await assert.rejects(create({ policy }), isRefusal("policy"));
  await assert.rejects(create({ author: toBase64(new Uint8Array(32)) }), isRefusal("unknown-author"));
  assert.equal(await client.state(), "none");
});

test("a budget is charged before the report is stored, and can refuse", async () => {
  const charges: unknown[] = [], now = await within((await create()).task);
  const spent = await create({ budget: { charge: () => { throw new Refusal("budget", "nothing is left this month"); } } });
  await assert.rejects(spent.report(spent.task.categories![0]!, now), isRefusal("budget"));
  assert.equal(await spent.state(), "none");
  const client = await create({ budget: { charge: ({ task, population, epsilon, delta }) => void charges.push({ task, population, epsilon, delta }) } });
  await client.report(client.task.categories![0]!, now);
  assert.deepEqual(charges, [{ task: client.task.id, population: client.task.population, epsilon: client.guarantee.epsilon, delta: client.guarantee.delta }]);
});

test("the directory must be private, and a damaged report is not sent", async () => {
  const open = await directory();
  await chmod(open, 0o755);
  await assert.rejects(FileOutbox.open(open), isRefusal("no-storage"));
  const state = await directory(), client = await create({ outbox: await FileOutbox.open(state) });
  await writeFile(join(state, `${client.task.id}.report`), "too short");
  await assert.rejects(client.send("http://127.0.0.1:9"), isRefusal("damaged"));
});

test("an answer that never ends is not read to its end", async () => {
  const server = createServer((request, response) => {
    request.resume().on("end", () => {
      response.writeHead(422, { "Content-Type": "application/problem+json" });
      const more = () => { while (!response.destroyed && response.write("x".repeat(1 << 14))); };
      response.on("drain", more).on("error", () => {});
      more();
    });
  });
  await new Promise<void>((resolve) => { server.listen(0, "127.0.0.1", resolve); });
  const client = await create(), late = new Promise<string>((resolve) => { setTimeout(resolve, 20_000, "late").unref(); });
  await client.report(client.task.categories![0]!, await within(client.task));
  const sending = client.send(`http://127.0.0.1:${(server.address() as { port: number }).port}`).catch((error: Refusal) => error.reason);
  assert.equal(await Promise.race([sending, late]), "refused");
  assert.equal(await client.state(), "pending");
  server.closeAllConnections();
  server.close();
});

test("a report that was not stored is never taken for one that was", async () => {
  const outbox = await FileOutbox.open(await directory());
  outbox.add = async () => false; // and what was there is gone
  const client = await create({ outbox });
  await assert.rejects(client.report(client.task.categories![0]!, await within(client.task)), isRefusal("already-reported"));
});

test("the lock of a process that has ended is removed, also if it had the same id", async () => {
  const { url, server } = await shuffler({ status: 201 });
  for (const holder of [process.pid, 2 ** 22 + 1]) { // ids end at 2^22
    const state = await directory(), client = await create({ outbox: await FileOutbox.open(state) });
    await client.report(client.task.categories![0]!, await within(client.task));
    await writeFile(join(state, `${client.task.id}.sending`), String(holder));
    const late = new Promise<string>((resolve) => { setTimeout(resolve, 20_000, "late").unref(); });
    assert.equal(await Promise.race([client.send(url), late]), "delivered");
    assert.deepEqual(await readdir(state), [`${client.task.id}.delivered`]);
  }
  const client = await create(), order: number[] = [], outbox = await FileOutbox.open(await directory());
  await Promise.all(Array.from({ length: 12 }, (_, i) => outbox.exclusively(client.task.id, async () => {
    order.push(i);
    await new Promise((resolve) => { setTimeout(resolve, 5); });
    order.push(i);
  })));
  for (let i = 0; i < 24; i += 2) assert.equal(order[i], order[i + 1], String(order)); // one after the other
  server.close();
});

test("opening the outbox of a browser does not wait for a person who is asked about storage", async () => {
  const asks = { storage: { persist: () => new Promise(() => {}) }, locks: {} };
  Object.defineProperty(globalThis, "navigator", { value: asks, configurable: true });
  const late = new Promise<string>((resolve) => { setTimeout(resolve, 5_000, "late").unref(); });
  const opened = IndexedDbOutbox.open().catch((error: Refusal) => error.reason); // Node has no IndexedDB
  assert.equal(await Promise.race([opened, late]), "no-storage");
});

test("every value makes reports of one size, whose messages another HPKE opens", async () => {
  const { analyzer } = load("sealing"), document = JSON.parse(good).task;
  const suite = new CipherSuite({ kem: new DhkemX25519HkdfSha256(), kdf: new HkdfSha256(), aead: new Aes128Gcm() });
  const task = { ...(await verifyTask(utf8(good), unhex(tasks.author.public))), analyzer: unhex(analyzer.public) };
  const key = await suite.kem.importKey("raw", unhex(analyzer.private).buffer as ArrayBuffer, false), info = sealingInfo(task).buffer;
  for (const name of document.protocol.parameters.categories) {
    const report = await sealedReport(task, name);
    assert.equal(report.length, task.reportSize);
    const size = 49 + task.messageSize, kinds = new Set<number>();
    for (let at = report.length - task.messagesPerReport * size; at < report.length; at += size) {
      const content = new Uint8Array(await suite.open({ recipientKey: key, enc: report.slice(at, at + 32).buffer, info }, report.slice(at + 32, at + size).buffer));
      assert.equal(content.length, 1 + task.messageSize);
      kinds.add(content[0]!);
      if (content[0] === 0) assert.equal(hex(content), "00".repeat(content.length));
    }
    assert.ok(kinds.has(1));
  }
});

test("a report of version 2 opens with the round key alone, and only under its own header", async () => {
  const v2 = (name: string) => JSON.parse(readFileSync(new URL(`../../../vectors/v2/${name}.json`, import.meta.url), "utf8")), { round_key: keys, task: name } = v2("report"), { good: tasksOfV2, author: by } = v2("task");
  const suite = new CipherSuite({ kem: new DhkemX25519HkdfSha256(), kdf: new HkdfSha256(), aead: new Aes128Gcm() });
  const task = await verifyTask(utf8(tasksOfV2.find((each: { name: string }) => each.name === name).content), unhex(by.public));
  const report = await sealedReport(task, task.categories![0]!), recipientKey = await suite.kem.importKey("raw", unhex(keys.private).buffer as ArrayBuffer, false);
  const opened = (beginning: Bytes) => suite.open({ recipientKey, enc: report.slice(53, 85).buffer, info: outerInfo(beginning).buffer }, report.slice(85).buffer);
  assert.equal(report.length, task.reportSize);
  assert.equal((await opened(report.slice(0, 53))).byteLength, task.messagesPerReport * (49 + task.messageSize));
  await assert.rejects(opened(report.slice(0, 53).fill(0, 37))); // moved to another id
});

test("sentences for people state the numbers of the task, rounded so that they stay true", async () => {
  const client = await create(), [sent, result] = await client.explain("en"), numbers = (text: string) => [...text.matchAll(/[0-9][0-9.,]*[0-9]|[0-9]/g)].map(([number]) => Number(number.replaceAll(",", "")));
  assert.deepEqual(numbers(sent!.text), [client.task.messagesPerReport - 1]);
  const [factor, one, odds, users] = numbers(result!.text) as [number, number, number, number];
  assert.ok(factor >= Math.exp(client.guarantee.epsilon) * (1 - 1e-12) && factor < 1.01 * Math.exp(client.guarantee.epsilon));
  assert.equal(one, 1);
  assert.ok(1 / odds >= client.guarantee.delta * (1 - 1e-11) && 1 / odds < 1.02 * client.guarantee.delta);
  assert.equal(users, client.guarantee.honestUsers);
  assert.match(sent!.text, /If these two work together, they can learn your answer/);
  const topics = async (language: "de" | "en") => (await client.explain(language)).map(({ topic }) => topic);
  assert.deepEqual(await topics("de"), await topics("en"));
  for (const { text } of await client.explain("de")) assert.doesNotMatch(text, /[{}]|undefined|NaN/);
});

test("sentences stay readable and true for extreme numbers", async () => {
  const { task } = await create();
  const explained = async (changes: object) => (await explain({ ...task, guarantee: { ...task.guarantee, ...changes } }, "en")).map(({ text }) => text) as [string, string];
  assert.match((await explained({ localEpsilon: 13.8 }))[0], /by a factor of at most 985,000\./);
  assert.match((await explained({ localEpsilon: 13.9 }))[0], /they may still learn it/);
  assert.doesNotMatch((await explained({ localEpsilon: 700 }))[0], /[0-9]/);
  assert.match((await explained({ delta: 1e-300 }))[1], /a probability of 1 in 1,000,000,000,000, /);
  assert.match((await explained({ delta: 0.4 }))[1], /a probability of 1 in 2\.5, /);
});
