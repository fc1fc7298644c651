/** Signed parameters can be hostile: whatever they are, a verdict comes in bounded time, and a bound is never NaN. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { SecureDraws } from "../src/draw.ts";
import { type Json } from "../src/canonical.ts";
import { readProtocol } from "../src/protocols/registry.ts";
import { Refusal } from "../src/refusal.ts";

const terms = (users: number) => ({ users, epsilon: "1.0", delta: "0.5", honest_fraction: "1.0", calibration: "hostile" });
const half = { bits: 1, numerator: 1 }, tiny = { bits: 128, numerator: 1 }, nearOne = { bits: 18, numerator: 2 ** 18 - 1 }, wide = { bits: 16, numerator: 2 ** 16 - 1 };
const categories = (domain_size: number) => ({ domain_size, categories: null }), domain = { lower: "0.0", upper: "1.0", whole: false };
const most = 10 ** 9;
const strings = (words: { alphabet: string; max_length: number }, blanket: Json, buckets: number, levels: number): Json => ({
  terms: terms(most), blanket, buckets, levels, tail: levels - 1, first_bits: 24, seed: "0xffffffffffffffff", domain: { ...words, trim: true, nfc: true, case_fold: true, other: true },
});

const CASES: { [name: string]: [string, Json] } = {
  "a wide blanket": ["histogram/uniform-blanket", { terms: terms(most), blanket: { whole: 60_000, rest: half }, ...categories(4) }],
  "two wide blankets": ["histogram/uniform-blanket", { terms: terms(most), blanket: { whole: 1, rest: half }, ...categories(3) }],
  "a rare blanket": ["histogram/uniform-blanket", { terms: terms(most), blanket: { whole: 0, rest: tiny }, ...categories(2) }],
  "half of all users": ["histogram/shuffled-k-rr", { terms: terms(most), blanket: half, ...categories(3) }],
  "hashes of half of all users": ["histogram/solh", { terms: terms(most), blanket: half, buckets: 2, ...categories(3) }],
  "hashes to many buckets": ["histogram/solh", { terms: terms(most), blanket: half, buckets: 1000, ...categories(2 ** 30) }],
  "hardly any blanket": ["histogram/solh", { terms: terms(most), blanket: tiny, buckets: 2, ...categories(3) }],
  "levels of half of all users": ["sum/privacy-blanket", { terms: terms(most), levels: 65_536, blanket: half, domain }],
  "tokens of half of all users": ["histogram/balcer-cheu", { noise: { ...terms(most), absence: half }, padded: false, ...categories(2) }],
  "hardly any tokens": ["histogram/balcer-cheu", { noise: { ...terms(most), absence: tiny }, padded: false, ...categories(2) }],
  "rows of fake users": ["histogram/fake-users", { terms: terms(most), flip: { bits: 2, numerator: 1 }, fake_rows: 60_000, ...categories(2) }],
  "wide noise": ["histogram/correlated-noise", { terms: terms(most), ratio: wide, flood_shape: "1/1", flood_ratio: half, ...categories(2) }],
  "wide noise of hardly any shape": ["count/correlated-noise", { terms: terms(2), ratio: half, flood_shape: `1/${10n ** 38n}`, flood_ratio: nearOne, encoding: "unary" }],
  "noise of a large shape": ["histogram/correlated-noise", { terms: terms(2), ratio: half, flood_shape: "900000/1", flood_ratio: half, ...categories(2) }],
  "noise of a huge shape and a tiny ratio": ["count/correlated-noise", { terms: terms(1), ratio: half, flood_shape: `${10n ** 38n}/1`, flood_ratio: tiny, encoding: "signed" }],
  "clusters of all sizes": ["histogram/correlated-noise", { terms: terms(2), ratio: half, cluster_rate: "700/1", clusters: [[1, 2 ** 14, 1]], singles: "0/1", ...categories(2) }],
  "many singles": ["histogram/correlated-noise", { terms: terms(2), ratio: half, cluster_rate: "3/1", clusters: [[1, 3, 2 ** 32]], singles: "1000000/1", ...categories(2) }],
  "a large table": ["histogram/correlated-noise", { terms: terms(2), ratio: { bits: 8, numerator: 250 }, cluster_rate: "40/1", clusters: [[1, 1, 1], [12, 12, 1]], singles: "90/1", ...categories(2) }],
  "clusters of many sizes in a count": ["count/correlated-noise", { terms: terms(2), ratio: wide, cluster_rate: "700/1", clusters: [[300, 900, 1]], singles: "0/1", encoding: "signed" }],
  "hardly any clusters": ["count/correlated-noise", { terms: terms(most), ratio: tiny, cluster_rate: `1/${2n ** 64n}`, clusters: [[1, 1, 1]], singles: "0/1", encoding: "unary" }],
  "many levels": ["sum/split-and-mix", { terms: terms(most), levels: 2 ** 40, ratio: nearOne, messages: 4, modulus: "0x4000000000000000", domain }],
  "noise of many digits": ["sum/local-laplace", { terms: terms(2), levels: 1 << 20, ratio: { bits: 23, numerator: 2 ** 23 - 1 }, margin: 2 ** 40, domain }],
  "a large prime": ["histogram/local-hashing", { terms: terms(2), blanket: half, hashes: { prime: 2 ** 31 - 1, buckets: 2 }, ...categories(2) }],
  "levels at the limit of the work": ["sum/privacy-blanket", { terms: terms(10 ** 7), levels: 15, blanket: { bits: 20, numerator: 7000 }, domain }],
  "strings in many cells": ["strings/tree-blanket", strings({ alphabet: "a-z", max_length: 108 }, { whole: 60_000, rest: half }, 2 ** 18, 256)],
  "strings of one symbol": ["strings/tree-blanket", strings({ alphabet: "a", max_length: 512 }, { whole: 0, rest: tiny }, 2, 1)],
  "strings of many symbols": ["strings/tree-blanket", strings({ alphabet: "\u4e00-\u9fff\u{20000}-\u{2a6d6}", max_length: 32 }, { whole: 1, rest: half }, 2 ** 26, 1)],
  "many bins": ["quantiles/uniform-blanket", { terms: terms(most), domain: { lower: "0.0", upper: "1.0", bins: 2 ** 20 }, branching: [2 ** 20], blankets: [{ whole: 60_000, rest: half }] }],
};

for (const [name, [protocol, parameters]] of Object.entries(CASES))
  test(name, async (context) => {
    const start = process.cpuUsage(), { delta, chanceOfMore, randomize, source, maxMessages, domain: values } = await readProtocol({ parameters, protocol, version: Object.hasOwn(parameters as object, "clusters") ? 2 : 1 });
    for (const epsilon of [1e-12, 1, 700]) {
      const bound = delta!(epsilon);
      assert.ok(bound >= 0 && bound < Infinity, `delta at ${epsilon} is ${bound}`);
    }
    for (const limit of [1, 65_536]) if (chanceOfMore) assert.ok(chanceOfMore(limit) >= 0 && chanceOfMore(limit) < Infinity);
    const computed = process.cpuUsage(start).user / 1e3, value = { bit: true, categories: 1, interval: 0.5, bins: 0.5, strings: "\u00e9".repeat(2000) }[values.kind];
    if ((maxMessages ?? 0) <= 65_536) randomize(source?.() ?? new SecureDraws(), await values.encode(value), 65_536);
    const milliseconds = process.cpuUsage(start).user / 1e3;
    context.diagnostic(`${computed.toFixed(0)} ms, then ${(milliseconds - computed).toFixed(0)} ms to draw`);
    assert.ok(milliseconds < 6000); // of processor time, for three bounds
  });

test("clusters that are out of range, or of another version, are refused", async () => {
  const good = { terms: terms(1000), ratio: half, cluster_rate: "16/1", clusters: [[2, 5, 1], [7, 7, 3]], singles: "0/1", encoding: "signed" };
  const reasonOf = async (changed: object, version = 2, protocol = "count/correlated-noise") =>
    readProtocol({ parameters: { ...good, ...changed } as Json, protocol, version }).then(() => null, (error) => (error instanceof Refusal ? error.reason : String(error)));
  assert.equal(await reasonOf({}), null);
  assert.equal(await reasonOf({}, 1), "version");
  assert.equal(await reasonOf({}, 3), "version");
  assert.equal(await reasonOf({}, 2, "sum/cheu"), "version");
  const wrong = [[], [[5, 2, 1]], [[2, 5, 1], [5, 7, 1]], [[7, 7, 1], [2, 5, 1]], [[0, 5, 1]], [[2, 5, 0]], [[2, 5, 2 ** 33]], [[2, 5]], [[2, 5, 1, 1]], [[2, 2 ** 14 + 1, 1]], Array.from({ length: 65 }, (_, i) => [i + 1, i + 1, 1]), null, "2-5"];
  for (const clusters of wrong) assert.equal(await reasonOf({ clusters }), "malformed", JSON.stringify(clusters));
  for (const rate of ["0/1", "701/1", "-1/1", `1/${2n ** 65n}`, "1e3", 16]) assert.equal(await reasonOf({ cluster_rate: rate }), "malformed", String(rate));
  for (const singles of ["1/1", "-1/1", 0, "0"]) assert.equal(await reasonOf({ singles }), "malformed", String(singles));
});

test("noise that is too wide to draw is refused", async () => {
  const parameters = { terms: terms(1000), ratio: { bits: 19, numerator: 2 ** 19 - 1 }, flood_shape: "1/1", flood_ratio: half, encoding: "signed" };
  await assert.rejects(readProtocol({ parameters, protocol: "count/correlated-noise", version: 1 }), (error) => error instanceof Refusal && error.reason === "malformed");
});

test("noise of too many categories is refused before it is drawn", async () => {
  const parameters = { terms: terms(most), ratio: half, flood_shape: "1/1", flood_ratio: half, ...categories(2 ** 40) };
  await assert.rejects(readProtocol({ parameters, protocol: "histogram/correlated-noise", version: 1 }), (error) => error instanceof Refusal && error.reason === "policy");
});
