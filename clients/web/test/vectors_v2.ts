/** The test vectors of wire version 2, for Node and for browsers: tasks, the outer seal of reports, tokens bound to a report, series. */
import { concat, hex, toBase64, utf8 } from "../src/bytes.ts";
import { checkReport, outerInfo, sealingInfo } from "../src/report.ts";
import { authorization } from "../src/sending.ts";
import { Sealer } from "../src/sealing.ts";
import { verifyCancellation, verifySeries } from "../src/series/index.ts";
import { verifyTask } from "../src/task.ts";
import { toDouble } from "../src/numbers.ts";
import { pack, packedSize } from "../src/packing.ts";
import { readProtocol } from "../src/protocols/registry.ts";
import { enumerate } from "./enumeration.ts";
import { Fraction } from "./fractions.ts";
import { checkRandomizer, isNear, keyPair, reasonOf, unhex, type Case, type Expect } from "./vectors.ts";

const HEADER_BYTES = 53;

/** `verifiedBy` is replaced by tests of this test. */
export async function checkVersion2({ task: tasks, report, token: tokens, carriers, augmented, series, hybrid }: Case, expect: Expect, verifiedBy = verifyTask): Promise<void> {
  const author = unhex(tasks.author.public), verify = (content: string) => verifiedBy(utf8(content), author);
  for (const good of tasks.good) {
    const task = await verify(good.content), name = `task v2 ${good.name}`;
    expect(task.version === 2 && task.id === good.id && task.reportSize === good.report_size, `${name}: id and size`);
    expect(hex(sealingInfo(task)) === good.message_info && toBase64(task.roundKeys[0]!) === good.round_key, `${name}: what messages are bound to, round key`);
  }
  for (const { name, content, id } of tasks.optional) {
    if (name.startsWith("a chain")) expect((await verify(content)).id === id, `task v2 ${name}: id`);
    else expect((await reasonOf(() => verify(content))) === "unsupported", `task v2 ${name}: unsupported`);
  }
  for (const { name, content } of hybrid.good) expect((await reasonOf(() => verify(content))) === "unsupported", `hybrid ${name}: unsupported`);
  for (const content of hybrid.good_series) expect((await reasonOf(() => verifySeries(utf8(content), author))) === "unsupported", "a hybrid series: unsupported");
  for (const { name, content } of hybrid.bad) expect((await reasonOf(() => verify(content))) !== null, `hybrid ${name}: refused`);
  for (const [of, cases] of [["task v2", tasks.bad], ["carriers", carriers.bad_tasks], ["augmented", augmented.bad]] as const) {
    for (const { name, content, reason } of cases) {
      const found = await reasonOf(() => verify(content));
      expect(found === reason, `${of} ${name}: ${found}, not ${reason}`);
    }
  }
  for (const randomizer of carriers.randomizers) await checkCarriers(randomizer, Number(carriers.tolerance), expect);
  for (const { name, content, id, report_size: size, carrier_report_size: longer, delta } of carriers.good_tasks) {
    const task = await verify(content), { guarantee } = task;
    expect(task.id === id && task.reportSize === size && task.carriers?.reportSize === longer, `carriers ${name}: id and sizes`);
    expect(isNear(guarantee.deltaAt(guarantee.epsilon), delta, Number(carriers.tolerance)), `carriers ${name}: delta`);
    for (const [length, reason] of [[size, null], [longer, null], [size + 1, "damaged"], [(size + longer) / 2, "damaged"]] as const) {
      const stored = concat(utf8("SDPR"), Uint8Array.of(2), unhex(id), new Uint8Array(length - 37));
      expect((await reasonOf(() => checkReport(task, stored))) === reason, `carriers ${name}: a report of ${length} bytes`);
    }
  }
  for (const randomizer of augmented.randomizers) await checkRandomizer(randomizer, Number(augmented.tolerance), expect);
  for (const { name, content, id, report_size: size } of augmented.good) {
    const task = await verify(content);
    expect(task.id === id && task.reportSize === size && task.guarantee.augmented && task.guarantee.honestUsers === 1, `augmented ${name}: id, size and trust`);
  }
  const task = await verify(tasks.good.find(({ name }: Case) => name === report.task).content);
  for (const { name, sealed, ephemeral, info, report: expected } of report.good) {
    const bytes = unhex(expected), beginning = bytes.slice(0, HEADER_BYTES);
    expect(hex(outerInfo(beginning)) === info, `report v2 ${name}: info`);
    const sealer = await Sealer.create(unhex(report.round_key.public), outerInfo(beginning)), pair = await keyPair(unhex(ephemeral), bytes.slice(HEADER_BYTES, HEADER_BYTES + 32));
    expect(hex(concat(beginning, await sealer.seal(concat(...sealed.map(unhex)), pair))) === expected, `report v2 ${name}: outer seal`);
    expect((await reasonOf(() => checkReport(task, bytes))) === null, `report v2 ${name}: form`);
  }
  for (const { name, report: content } of report.bad) expect((await reasonOf(() => checkReport(task, unhex(content)))) === "damaged", `report v2 ${name}: form`);
  for (const { token, report: content, authorization: expected } of tokens.good)
    expect((await authorization(token, task, unhex(content))) === expected, `token v2 ${token}`);
  await checkSeries(series, expect);
}

async function checkSeries({ author: { public: key }, good, bad, good_cancellations: cancellations, bad_cancellations: badOnes }: Case, expect: Expect): Promise<void> {
  const author = unhex(key);
  for (const { name, content, id, tasks } of good) {
    const series = await verifySeries(utf8(content), author);
    expect(series.id === id && series.rounds === tasks.length, `series ${name}: id and rounds`);
    for (const [round, { id: task, opens, closes }] of tasks.entries()) {
      const found = await series.task(round);
      expect(found.id === task && +found.opens === Date.parse(opens) && +found.closes === Date.parse(closes), `series ${name}: round ${round}`);
      expect(found.series!.round === round && series.roundAt(+found.opens) === round && series.roundAt(+found.closes) !== round, `series ${name}: round ${round} by the clock`);
    }
  }
  for (const { name, content, reason } of bad) {
    const found = await reasonOf(() => verifySeries(utf8(content), author));
    expect(found === reason, `series ${name}: ${found}, not ${reason}`);
  }
  for (const { name, content } of cancellations) {
    const { series, from_round: from, reason } = JSON.parse(content).cancel, found = await verifyCancellation(utf8(content), author);
    expect(found.series === series && found.fromRound === from && found.reason === reason, `cancellation ${name}`);
  }
  for (const { name, content, reason } of badOnes) {
    const found = await reasonOf(() => verifyCancellation(utf8(content), author));
    expect(found === reason, `cancellation ${name}: ${found}, not ${reason}`);
  }
}

/** What follows from parameters of version 3: the report of a carrier, given that it fits, that of the others, and what both cost. */
async function checkCarriers({ name, protocol: document, guarantee, message_format: format, messages_per_carrier_report: cap, minimum_carriers: minimum, chance_of_more: more, reports }: Case, tolerance: number, expect: Expect): Promise<void> {
  const protocol = await readProtocol(document), { terms, roles } = protocol, chance = protocol.chanceOfMore!(cap) / toDouble(roles!.probability);
  expect(String(protocol.format.bounds) === String(format.bounds.map(BigInt)) && protocol.format.flags === format.flags && packedSize(protocol.format) === format.size, `carriers ${name}: format`);
  expect(terms.honest === guarantee.honest_users && protocol.localEpsilon === Infinity && roles!.minimum === minimum, `carriers ${name}: users and carriers`);
  for (const [epsilon, delta] of Object.entries<string>(guarantee.deltas)) {
    const found = protocol.delta!(Number(epsilon));
    expect(isNear(found, delta, tolerance), `carriers ${name}: delta at ${epsilon} is ${found}, not ${delta}`);
  }
  expect(isNear(chance, more, tolerance), `carriers ${name}: chance of more is ${chance}, not ${more}`);
  for (const { value, law, other, chance_of_more: longer } of reports) {
    const { distribution, chance: found } = enumerate(protocol, value, cap), expected = Object.entries<string>(law);
    expect(expected.length === distribution.size && expected.every(([key, mass]) => String(distribution.get(key)) === String(Fraction.parse(mass))), `carriers ${name}: distribution of ${value}`);
    expect(isNear(found, longer, tolerance), `carriers ${name}: chance of more for ${value}`);
    expect(roles!.own(value).map((message) => hex(pack(protocol.format, message))).join(" ") === other, `carriers ${name}: the report of others for ${value}`);
  }
}
