/** Drawn distributions in Node, each with the fault that it must find. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { SecureGeometric } from "../src/geometric.ts";
import { SecureNoise } from "../src/noise.ts";
import { type Dyadic } from "../src/numbers.ts";
import { Shares } from "../src/real_bounds.ts";
import { withFault } from "./altered.ts";
import { drawnDistributions, drawnRoles, FaultyCoin, FirstLevel, LARGEST_Z, withoutRedraw, withRedraw } from "./drawn.ts";

const randomizers = ["randomizers", "clusters"].flatMap((name) => JSON.parse(readFileSync(new URL(`../../../vectors/v1/${name}.json`, import.meta.url), "utf8")).randomizers);
/** Reports per distribution; make test-slow draws more. */
const REPORTS = Number(process.env["SHUFFLEDP_DRAWS"] ?? 3000);
const isBad = ({ z, impossible }: { z: number; impossible: number }) => !(z <= LARGEST_Z && impossible === 0);

test("reports are drawn from the distributions of the vectors", async (context) => {
  const drawn = await drawnDistributions(randomizers, REPORTS);
  context.diagnostic(`${drawn.length} distributions, largest z ${Math.max(...drawn.map(({ z }) => z)).toFixed(2)}`);
  assert.ok(drawn.length > 100);
  assert.deepEqual(drawn.filter(isBad), []);
});

const carriers = JSON.parse(readFileSync(new URL("../../../vectors/v2/carriers.json", import.meta.url), "utf8")).randomizers.filter(({ reports }: { reports: unknown[] }) => reports.length);

test("reports are drawn with the role of carriers, which depends on neither the value nor the noise", async (context) => {
  const drawn = await drawnRoles(carriers, REPORTS);
  context.diagnostic(`${drawn.length} distributions, largest z ${Math.max(...drawn.map(({ z }) => z)).toFixed(2)}`);
  assert.equal(drawn.length, 4);
  assert.deepEqual(drawn.filter(isBad), []);
});

const COIN = "draws.coin(roles!.probability)", IN_ROLE = "const messages = protocol.randomize(draws, input, count);";
const FAULTS_OF_ROLES = {
  "the role is drawn anew when the noise does not fit": { file: "report.ts", right: `${IN_ROLE}\n    if (messages`, faulty: `${IN_ROLE}\n    if (!messages && carriers) return randomized({ protocol, messagesPerReport, carriers }, input, draws);\n    if (messages` },
  "the role depends on the value": { file: "report.ts", right: COIN, faulty: `(${COIN} || (input === 1 && ${COIN}))` },
  "the coin is the opposite": { file: "report.ts", right: COIN, faulty: `!${COIN}` },
  "who is no carrier sends another value": { file: "report.ts", right: "roles!.own(input)", faulty: "roles!.own(1 - (input as number))" },
} as const;

for (const [name, fault] of Object.entries(FAULTS_OF_ROLES))
  test(`carriers: found if ${name}`, async () => {
    const drawn = await withFault(fault, "report.ts", ({ randomized }: typeof import("../src/report.ts")) => drawnRoles(carriers, 3000, randomized));
    assert.ok(drawn.filter(isBad).length >= 2, JSON.stringify(drawn));
  });

test("a coin with <= is found", async () => {
  const coarse = randomizers.filter(({ name }: { name: string }) => /balcer-cheu, padded|randomized-response, half|k-rr, three/.test(name));
  assert.ok((await drawnDistributions(coarse, 3000, new FaultyCoin())).filter(isBad).length >= 4);
});

test("a missing redraw is found", async () => {
  const capped = randomizers.filter(({ capped, reports }: { capped: boolean; reports: unknown[] }) => capped && reports?.length);
  assert.ok((await drawnDistributions(capped, 3000, undefined, withoutRedraw)).filter(isBad).length >= 4);
});

test("strings: a level that is not drawn, and the cell of another level, are found", async () => {
  const ofLevels = randomizers.filter(({ protocol }: { protocol: { protocol: string; parameters: { levels: number } } }) => protocol.protocol.startsWith("strings/") && protocol.parameters.levels > 1);
  const cases = ofLevels.flatMap(({ reports }: { reports: { law?: object }[] }) => reports.filter(({ law }) => law)).length;
  assert.ok(cases >= 4 && (await drawnDistributions(ofLevels, 3000)).every((drawn) => !isBad(drawn)));
  const firstLevel: typeof withRedraw = (protocol, input, limit) => withRedraw(protocol, input, limit, new FirstLevel());
  const otherCell: typeof withRedraw = (protocol, input, limit, draws) => withRedraw(protocol, [...(input as readonly bigint[])].reverse(), limit, draws);
  assert.equal((await drawnDistributions(ofLevels, 3000, undefined, firstLevel)).filter(isBad).length, cases);
  assert.ok((await drawnDistributions(ofLevels, 3000, undefined, otherCell)).filter(isBad).length >= cases - 1); // the cells of one string may be alike
});

/** Chi-square against probabilities, in as many cells. */
function deviate(counts: readonly number[], masses: readonly number[]): number {
  const total = counts.reduce((sum, count) => sum + count, 0), freedom = counts.length - 1;
  const statistic = counts.reduce((sum, count, i) => sum + (count - total * masses[i]!) ** 2 / (total * masses[i]!), 0);
  return (Math.cbrt(statistic / freedom) - (1 - 2 / (9 * freedom))) / Math.sqrt(2 / (9 * freedom));
}

test("geometric numbers are drawn digit by digit from the right distribution", () => {
  const draws = new SecureGeometric(), ratio: Dyadic = { numerator: 7n, bits: 3 }, low = -12n, high = 12n, r = 7 / 8;
  const masses = Array.from({ length: 25 }, (_, i) => ((1 - r) / (1 + r)) * r ** Math.abs(i - 12));
  masses[0] = masses[24] = r ** 12 / (1 + r);
  const counts = Array<number>(25).fill(0);
  for (let i = 0; i < 40_000; i++) counts[Number(draws.geometricDifference(ratio, low, high)) + 12]!++;
  assert.ok(deviate(counts, masses) < LARGEST_Z);
  assert.ok(deviate(counts, [...masses.slice(1), masses[0]!]) > LARGEST_Z, "a shifted distribution is found");
});

test("shares of a large rate are drawn in parts", () => {
  const draws = new SecureNoise(), ratio: Dyadic = { numerator: 1n, bits: 1 }, shape = { numerator: 60n, denominator: 1n }; // rate 41.6: three parts
  const masses = [0.5 ** 60], counts = Array<number>(13).fill(0), cells = Array<number>(13).fill(0), cell = (k: number) => Math.min(12, Math.max(0, Math.floor((k - 30) / 5)));
  for (let k = 0; k < 400; k++) masses.push((masses[k]! * (60 + k)) / (k + 1) / 2);
  masses.forEach((mass, k) => { cells[cell(k)]! += mass; });
  for (let i = 0; i < 20_000; i++) counts[cell(draws.shares(shape, ratio, 10_000))]!++;
  assert.ok(deviate(counts, cells) < LARGEST_Z);
});

test("shares of hostile parameters are drawn in bounded time", () => {
  const ratio: Dyadic = { numerator: (1n << 18n) - 1n, bits: 18 }, table = new Shares({ numerator: 1n, denominator: 1000n }, ratio), start = performance.now();
  const draws = new SecureNoise();
  for (let i = 0; i < 200; i++) assert.ok(table.draw(draws, 65_536) <= 65_537);
  assert.ok(performance.now() - start < 20_000);
});
