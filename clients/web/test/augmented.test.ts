/** Tasks whose shuffler adds all noise: exact guarantees, who must allow them, and what people are told. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { utf8 } from "../src/bytes.ts";
import { explain } from "../src/explain.ts";
import { type Dyadic } from "../src/numbers.ts";
import { checkPolicy } from "../src/policy.ts";
import { categoriesDelta, countDelta, meanOf, sampledDelta } from "../src/accounting/shuffler_noise.ts";
import { Refusal } from "../src/refusal.ts";
import { verifyTask } from "../src/task.ts";
import { refusing, withFault } from "./altered.ts";
import { unhex } from "./vectors.ts";
import { checkVersion2 } from "./vectors_v2.ts";

const load = (name: string) => JSON.parse(readFileSync(new URL(`../../../vectors/v2/${name}.json`, import.meta.url), "utf8"));
const vectors = load("augmented"), author = unhex(vectors.author.public);
const verified = (name: string) => verifyTask(utf8(vectors.good.find((each: { name: string }) => each.name === name).content), author);

/** Exact arithmetic: E is e^epsilon as a fraction over 2^SCALE, rounded to either side; masses are integers over a common total. */
const SCALE = 400n, UNIT = 1n << SCALE;

/** e^x over 2^SCALE by its series, a little too small. */
function growth(x: number): bigint {
  let bits = 0;
  for (; !Number.isInteger(x); bits++) x *= 2;
  const scaled = (BigInt(x) << SCALE) >> BigInt(bits);
  let term = UNIT, sum = 0n;
  for (let i = 1n; term > 0n; i++) {
    sum += term;
    term = ((term * scaled) >> SCALE) / i;
  }
  return sum;
}

const positive = (x: bigint) => (x > 0n ? x : 0n);

/** D2 of docs/collection/randomizers.md term by term, or D if `one`; the lists are integers over `total`. */
function divergence(p: readonly bigint[], q: readonly bigint[], total: bigint, epsilon: number, one = false): number {
  const E = growth(epsilon);
  let sum = 0n;
  for (let i = 0; i < p.length; i++) {
    if (one) sum += positive((p[i]! << SCALE) - E * q[i]!);
    else for (let j = 0; j < p.length; j++) sum += positive(((p[i]! * q[j]!) << SCALE) - E * q[i]! * p[j]!);
  }
  return Number((sum << 200n) / (one ? total : total * total) >> SCALE) / 2 ** 200;
}

/** Masses of z, and of z and one more, as integers: ratio^|k - shift| for k up to `last`. */
function shifted({ numerator, bits }: Dyadic, shift: number, last: number): { p: bigint[]; q: bigint[]; total: bigint } {
  const most = Math.max(shift, last - shift), masses = Array.from({ length: last + 1 }, (_, k) => numerator ** BigInt(Math.abs(k - shift)) * (1n << BigInt(bits * (most - Math.abs(k - shift)))));
  return { p: [0n, ...masses], q: [...masses, 0n], total: masses.reduce((sum, mass) => sum + mass, 0n) };
}

/** Lists end 150 above the shift: 0.75^150 is below this. */
const LEFT_OUT = 1e-18;
const EPSILONS = [0, 0.3, Math.log(4 / 3), 0.9, 2 * Math.log(4 / 3) * (1 - 1e-12), 2 * Math.log(4 / 3) * (1 + 1e-15), 1, 2.5];

test("bounds are at least the exact values, by less than a billionth", () => {
  const ratio = { numerator: 3n, bits: 2 }, near = (found: number, exact: number, what: string) => assert.ok(found >= exact - LEFT_OUT && found <= exact * (1 + 1e-9) + LEFT_OUT, `${what}: ${found} of ${exact}`);
  for (const shift of [1, 2, 7]) {
    for (const epsilon of EPSILONS) {
      const ones = shifted(ratio, shift, 2 * shift), all = shifted(ratio, shift, shift + 150);
      near(countDelta({ ratio, shift }, epsilon), divergence(ones.p, ones.q, ones.total, epsilon, true), `count ${shift} ${epsilon}`);
      near(categoriesDelta({ ratio, shift }, epsilon), divergence(all.p, all.q, all.total, epsilon), `categories ${shift} ${epsilon}`);
    }
    const { q, total } = shifted(ratio, shift, shift + 150), mean = Number((q.reduce((sum, mass, k) => sum + mass * BigInt(k), 0n) << 60n) / total) / 2 ** 60;
    assert.ok(Math.abs(meanOf({ ratio, shift }) - mean) < 1e-9);
  }
  for (const keep of [{ numerator: 1n, bits: 1 }, { numerator: 3n, bits: 3 }]) {
    const whole = 1n << BigInt(keep.bits), geometric = Array.from({ length: 150 }, (_, k) => 3n ** BigInt(k) * 4n ** BigInt(149 - k)), total = geometric.reduce((sum, mass) => sum + mass, 0n) * whole;
    const q = [...geometric, 0n].map((mass) => mass * whole), p = q.map((_, k) => (whole - keep.numerator) * (geometric[k] ?? 0n) + keep.numerator * (geometric[k - 1] ?? 0n));
    for (const epsilon of EPSILONS) near(sampledDelta(keep, ratio, epsilon), divergence(p, q, total, epsilon), `sampled ${epsilon}`);
  }
});

test("delta of sampled reports is 0 from the exact epsilon on, and not before", () => {
  const keep = { numerator: 1n, bits: 1 }, ratio = { numerator: 1n, bits: 2 }, exact = Math.log(5); // 1/2 + 2 over 1/2
  assert.equal(sampledDelta(keep, ratio, exact * (1 + 1e-12)), 0);
  assert.ok(sampledDelta(keep, ratio, exact * (1 - 1e-12)) > 0);
  for (const epsilon of [NaN, Infinity, 1e300, -1]) for (const found of [countDelta({ ratio, shift: 3 }, epsilon), categoriesDelta({ ratio, shift: 3 }, epsilon)]) assert.ok(found >= 0 && found < 3, String(found));
});

test("hostile dummies are accounted for in bounded time", () => {
  const start = process.cpuUsage();
  for (const ratio of [{ numerator: 1n, bits: 128 }, { numerator: (1n << 128n) - 1n, bits: 128 }, { numerator: (1n << 53n) - 1n, bits: 53 }])
    for (const shift of [1, 1 << 24])
      for (const epsilon of [1e-300, 1, 700]) {
        for (const found of [countDelta({ ratio, shift }, epsilon), categoriesDelta({ ratio, shift }, epsilon), sampledDelta(ratio, ratio, epsilon)]) assert.ok(found >= 0 && found <= 1 + 1e-9, `${ratio.numerator} ${shift} ${epsilon}: ${found}`);
        assert.ok(meanOf({ ratio, shift }) >= shift);
      }
  assert.ok(process.cpuUsage(start).user < 2e6);
});

async function failures(verify: typeof verifyTask): Promise<string[]> {
  const found: string[] = [], files = { task: load("task"), report: load("report"), token: load("token"), carriers: load("carriers"), augmented: vectors, series: load("series"), hybrid: load("hybrid") };
  await checkVersion2(files, (holds, name) => { if (!holds) found.push(name); }, verify);
  return found;
}

const ADDS = 'if (augmented) check(wire !== null && !carriers, "a shuffler that adds dummies");';
const FAULTS = {
  "any version and carriers": [{ file: "task.ts", right: ADDS, faulty: "" }, ["augmented carriers", "augmented version 1"]],
  "any number of dummies": [{ file: "protocols/shuffler_noise.ts", right: 'check(dummies <= MAX_DUMMIES, "fewer dummies");', faulty: "" }, ["more dummies than a shuffler seals"]],
  "what is above the shift is forgotten": [{ file: "accounting/shuffler_noise.ts", right: "return roundedUp((least + below * excess(", faulty: "return roundedUp((0 * least + below * excess(" }, ["too few dummies of a count"]],
} as const;

for (const [name, [fault, expected]] of Object.entries(FAULTS))
  test(`found: ${name}`, async () => {
    const found = await withFault(fault, "task.ts", ({ verifyTask: faulty }: { verifyTask: typeof verifyTask }) => failures(refusing(faulty) as typeof verifyTask));
    assert.ok(expected.every((part) => found.some((failure) => failure.includes(part))), `${found}`);
  });

test("a device answers only if its owner allows it", async () => {
  for (const { name } of vectors.good) {
    const task = await verified(name);
    assert.throws(() => checkPolicy(task, {}), (error) => error instanceof Refusal && error.reason === "policy" && error.message.includes("trusts the shuffler to add all noise"));
    checkPolicy(task, { allowAugmented: true, minUsers: 10 ** 6 });
    assert.throws(() => checkPolicy(task, { allowAugmented: true, maxEpsilon: 0.9 }), (error) => error instanceof Refusal && error.reason === "policy" && error.message.includes("delta"));
  }
});

test("people are told whom they trust, and what that party learns", async () => {
  for (const [name, learned] of [["histogram/shuffler-laplace", "how many people gave each answer"], ["count/shuffler-laplace", "how many people gave each answer"], ["histogram/shuffler-geometric", "among the envelopes that were not left out"]] as const) {
    const task = await verified(name), sentences = await explain(task, "en"), textOf = (topic: string) => sentences.find((each) => each.topic === topic)!.text;
    assert.deepEqual(sentences.map(({ topic }) => topic), ["sent", "result", "trust", "participation", "once", "checked"]);
    assert.match(textOf("sent"), /adds sealed envelopes with invented answers.*If these two work together, they can learn your answer/);
    assert.match(textOf("trust"), new RegExp(`in the hands of who mixes.*nobody else notices.*${learned}`));
    assert.doesNotMatch(textOf("result"), /people take part honestly/);
    assert.equal(/1 in 1,000,000/.test(textOf("result")), task.guarantee.delta > 0);
    const german = await explain(task, "de");
    assert.deepEqual(german.map(({ topic }) => topic), sentences.map(({ topic }) => topic));
    assert.match(german[2]!.text, /in der Hand, wer die Umschläge mischt.*aus dem veröffentlichten Ergebnis genau berechnen/);
    for (const { text } of [...german, ...sentences]) assert.doesNotMatch(text, /[{}]|undefined|NaN|Infinity/);
  }
  const task = await verified("histogram/shuffler-laplace"), chained = { ...task, roundKeys: [task.roundKeys[0]!, task.roundKeys[0]!] };
  assert.match((await explain(chained, "en"))[2]!.text, /it holds if one of the parties adds them as agreed.*All these parties together/);
  assert.match((await explain(chained, "de"))[2]!.text, /er gilt, wenn eine der Stellen.*Alle diese Stellen zusammen/);
});
