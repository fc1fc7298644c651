/** The test vectors of wire version 2, for Node and for browsers: tasks, the outer seal of reports, tokens bound to a report, series. */
import { concat, hex, toBase64, utf8 } from "../src/bytes.ts";
import { checkReport, outerInfo, sealingInfo } from "../src/report.ts";
import { authorization } from "../src/sending.ts";
import { Sealer } from "../src/sealing.ts";
import { verifyCancellation, verifySeries } from "../src/series/index.ts";
import { verifyTask } from "../src/task.ts";
import { keyPair, reasonOf, unhex, type Case, type Expect } from "./vectors.ts";

const HEADER_BYTES = 53;

export async function checkVersion2({ task: tasks, report, token: tokens, carriers, series, hybrid }: Case, expect: Expect): Promise<void> {
  const author = unhex(tasks.author.public), verify = (content: string) => verifyTask(utf8(content), author);
  for (const good of tasks.good) {
    const task = await verify(good.content), name = `task v2 ${good.name}`;
    expect(task.version === 2 && task.id === good.id && task.reportSize === good.report_size, `${name}: id and size`);
    expect(hex(sealingInfo(task)) === good.message_info && toBase64(task.roundKeys[0]!) === good.round_key, `${name}: what messages are bound to, round key`);
  }
  for (const { name, content, id } of tasks.optional) {
    if (name.startsWith("a chain")) expect((await verify(content)).id === id, `task v2 ${name}: id`);
    else expect((await reasonOf(() => verify(content))) === "unsupported", `task v2 ${name}: unsupported`);
  }
  for (const { name, content } of carriers.good_tasks) expect((await reasonOf(() => verify(content))) === "unsupported", `carriers ${name}: unsupported`);
  for (const { name, content } of hybrid.good) expect((await reasonOf(() => verify(content))) === "unsupported", `hybrid ${name}: unsupported`);
  for (const content of hybrid.good_series) expect((await reasonOf(() => verifySeries(utf8(content), author))) === "unsupported", "a hybrid series: unsupported");
  for (const { name, content } of hybrid.bad) expect((await reasonOf(() => verify(content))) !== null, `hybrid ${name}: refused`);
  for (const { name, content } of carriers.bad_tasks) expect((await reasonOf(() => verify(content))) !== null, `carriers ${name}: refused`);
  for (const { name, content, reason } of tasks.bad) {
    const found = await reasonOf(() => verify(content));
    expect(found === reason, `task v2 ${name}: ${found}, not ${reason}`);
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
