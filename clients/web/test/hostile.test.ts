/** Hostile parameters that are correctly signed: noise at the edge of doubles is drawn as it is accounted. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { SecureNoise } from "../src/noise.ts";
import { type Json } from "../src/canonical.ts";
import { readProtocol } from "../src/protocols/registry.ts";
import { Shares } from "../src/real_bounds.ts";

const terms = { users: 1000, epsilon: "1.0", delta: "1e-06", honest_fraction: "1.0", calibration: "" };
/** A task whose users add pairs of messages that cancel: a Poisson number of them, but for the ratio. */
const flooded = (pairs: bigint, numerator: number, bits: number): Promise<Awaited<ReturnType<typeof readProtocol>>> => {
  const shape = `${(pairs * 1000n << BigInt(bits)) / BigInt(numerator)}/1`;
  return readProtocol({ protocol: "histogram/correlated-noise", version: 1, parameters: { terms, domain_size: 4, categories: null, ratio: { bits: 10, numerator: 700 }, flood_shape: shape, flood_ratio: { bits, numerator } } } as Json);
};

test("pairs of a ratio that is lost in 1 - ratio are drawn", async () => {
  const protocol = await flooded(200n, 1, 60), draws = new SecureNoise();
  for (let i = 0; i < 5; i++) {
    const length = protocol.randomize(draws, 0, 40_000)!.length; // mean 1,601, standard deviation 57
    assert.ok(Math.abs(length - 1601) < 8 * 57, String(length));
  }
  assert.throws(() => new Shares({ numerator: 1n << 68n, denominator: 1n }, { numerator: 1n, bits: 60 }), RangeError); // weights that underflow
});

test("the chance of too long reports does not depend on how 1 - ratio is rounded", async () => {
  const chances = await Promise.all(([[1, 20], [1, 53], [3, 54], [1, 54], [1, 60], [5, 100]] as const).map(async ([numerator, bits]) => (await flooded(450n, numerator, bits)).chanceOfMore!(3700)));
  for (const chance of chances) assert.ok(Math.abs(chance / chances[0]! - 1) < 0.01 && chance > 0.1 && chance < 0.2, String(chances));
});

test("a tiny epsilon of a local protocol is never rounded down", async () => {
  const other = Math.floor(0.3 * 2 ** 53);
  for (const more of [3, 9007, 9_007_199]) {
    const parameters = { terms, domain_size: 3, categories: null, own_one: { bits: 53, numerator: other + more }, other_one: { bits: 53, numerator: other } };
    const { localEpsilon, delta } = await readProtocol({ protocol: "histogram/unary", version: 1, parameters } as Json);
    const epsilon = Math.log1p(more / 2 ** 53 / ((other / 2 ** 53) * (1 - (other + more) / 2 ** 53))); // own - other over other (1 - own)
    assert.ok(localEpsilon >= epsilon && localEpsilon < epsilon * (1 + 1e-13) + 2e-15, `${localEpsilon} is below ${epsilon}`);
    assert.ok(delta!(epsilon / 2) >= 0.24 * epsilon && delta!(epsilon / 2) < 0.26 * epsilon + 1e-15);
  }
});
