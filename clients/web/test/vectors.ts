/** The test vectors of the project, for Node and for browsers: what each function must accept, refuse and give. */
import { concat, hex, utf8, type Bytes } from "../src/bytes.ts";
import { read } from "../src/canonical.ts";
import { pack, packedSize, unpack, type MessageFormat } from "../src/packing.ts";
import { PROTOCOLS, readProtocol } from "../src/protocols/registry.ts";
import { Shares } from "../src/real_bounds.ts";
import { Refusal } from "../src/refusal.ts";
import { Sealer } from "../src/sealing.ts";
import { verifyTask } from "../src/task.ts";
import { enumerate } from "./enumeration.ts";
import { Fraction } from "./fractions.ts";
import { checkVersion2 } from "./vectors_v2.ts";

export type Case = any;
/** The files of vectors/v1 by their names, without the ending, and of vectors/v2. */
export interface VectorFiles { readonly task: Case; readonly randomizers: Case; readonly clusters: Case; readonly report: Case; readonly sealing: Case; readonly v2: Case }
export interface Outcome { passed: number; readonly failures: string[]; readonly skipped: string[] }

export const unhex = (text: string): Bytes => Uint8Array.from(text.match(/../g) ?? [], (byte) => parseInt(byte, 16));

/** `verify` is replaced by tests of this test. */
export async function checkVectors(files: VectorFiles, verify = verifyTask): Promise<Outcome> {
  const outcome: Outcome = { passed: 0, failures: [], skipped: [] };
  const expect = (holds: boolean, name: string) => {
    if (holds) outcome.passed++;
    else outcome.failures.push(name);
  };
  for (const randomizer of [...files.randomizers.randomizers, ...files.clusters.randomizers]) {
    if (PROTOCOLS.includes(randomizer.protocol.protocol)) await checkRandomizer(randomizer, Number(files.randomizers.tolerance), expect);
    else outcome.skipped.push(randomizer.name);
  }
  await checkTasks(files.task, verify, expect);
  checkPacking(files.report.message_formats, expect);
  await checkSealing(files.sealing, expect);
  await checkVersion2(files.v2, expect);
  return outcome;
}

export type Expect = (holds: boolean, name: string) => void;

/** The reason of the Refusal, or what went wrong instead. */
export async function reasonOf(action: () => unknown): Promise<string | null> {
  try {
    await action();
    return null;
  } catch (error) {
    return error instanceof Refusal ? error.reason : String(error);
  }
}

export const isNear = (found: number, expected: string, tolerance: number) => Math.abs(found - Number(expected)) <= tolerance * Number(expected) + 1e-12;

export async function checkRandomizer(randomizer: Case, tolerance: number, expect: Expect): Promise<void> {
  const { name, guarantee, message_format: format, messages_per_report: messages } = randomizer;
  const protocol = await readProtocol(randomizer.protocol);
  expect(String(protocol.format.bounds) === String(format.bounds.map(BigInt)) && protocol.format.flags === format.flags, `${name}: format`);
  expect(packedSize(protocol.format) === format.size, `${name}: size`);
  expect(randomizer.capped ? protocol.maxMessages === null : protocol.maxMessages === messages, `${name}: maximum number of messages`);
  if (guarantee) {
    expect((protocol.local || protocol.augmented ? 1 : protocol.terms.honest) === guarantee.honest_users, `${name}: honest users`);
    expect(guarantee.local_epsilon === null ? protocol.localEpsilon === Infinity : isNear(protocol.localEpsilon, guarantee.local_epsilon, tolerance), `${name}: local epsilon`);
    for (const [epsilon, delta] of Object.entries<string>(protocol.delta ? guarantee.deltas : {})) {
      const found = protocol.delta!(Number(epsilon));
      expect(isNear(found, delta, tolerance), `${name}: delta at ${epsilon} is ${found}, not ${delta}`);
    }
  }
  for (const shares of randomizer.shares ?? []) checkShares(shares, name, expect);
  for (const report of randomizer.reports ?? []) {
    const value = typeof report.value === "string" && protocol.domain.kind !== "strings" ? Number(report.value) : report.value;
    const input = protocol.domain.kind === "categories" ? value : await protocol.domain.encode(value);
    if (!report.law) continue;
    const { distribution, more, chance: longer } = enumerate(protocol, input, messages), expected = Object.entries<string>(report.law);
    expect(
      expected.length === distribution.size && expected.every(([key, mass]) => String(distribution.get(key)) === String(Fraction.parse(mass))),
      `${name}: distribution of ${report.value}`,
    );
    if (!randomizer.capped) continue;
    const bound = protocol.chanceOfMore?.(messages) ?? 1;
    if (randomizer.protocol.version === 2) {
      expect(isNear(longer, report.chance_of_more, tolerance), `${name}: chance of more for ${report.value} is ${longer}, not ${report.chance_of_more}`);
      expect(bound >= longer * (1 - 1e-9) && isNear(bound, randomizer.chance_of_more, tolerance), `${name}: bound of the chance of more is ${bound}`);
      continue;
    }
    const chance = Fraction.parse(report.chance_of_more).toNumber();
    expect(String(more) === String(Fraction.parse(report.chance_of_more)), `${name}: chance of more for ${report.value}`);
    expect(bound >= chance * (1 - 1e-9), `${name}: bound of the chance of more for ${report.value}`);
  }
}

function checkShares(shares: Case, name: string, expect: Expect): void {
  const shape = Fraction.parse(shares.shape), ratio = Fraction.parse(shares.ratio);
  const table = new Shares(shape, { numerator: ratio.numerator, bits: ratio.denominator.toString(2).length - 1 });
  const { low, high, bits } = table.bounds(20_000), unit = 1n << BigInt(bits);
  expect(high.every((bound, k) => bound >= low[k]! && bound - low[k]! <= 2n), `${name}: width of the bounds of shares`);
  let sum = new Fraction(0n);
  for (const [k, mass] of (shares.probabilities as string[]).entries()) {
    sum = sum.plus(Fraction.parse(mass));
    const exact = sum.numerator * unit;
    expect(low[k]! * sum.denominator <= exact && exact <= high[k]! * sum.denominator, `${name}: bounds of shares at ${k}`);
  }
  const mean = low.reduce((total, bound) => total + (1 - Number(bound) / Number(unit)), 0);
  expect(Math.abs(mean / Fraction.parse(shares.mean).toNumber() - 1) < 1e-9, `${name}: mean of shares`);
}

async function checkTasks(tasks: Case, verify: typeof verifyTask, expect: Expect): Promise<void> {
  const author = unhex(tasks.author.public), verdict = (content: string) => reasonOf(() => verify(utf8(content), author));
  const isSupported = (content: string): boolean => {
    try {
      return PROTOCOLS.includes(JSON.parse(content).task.protocol.protocol);
    } catch {
      return true;
    }
  };
  for (const good of tasks.good) {
    if (!isSupported(good.content)) {
      expect((await verdict(good.content)) === "unsupported-protocol", `task ${good.name}: unsupported`);
      continue;
    }
    const task = await verify(utf8(good.content), author), { epsilon, delta } = good.recomputed;
    expect(task.id === good.id, `task ${good.name}: id`);
    expect(task.minimumUsers === good.minimum_users && task.maximumUsers === good.maximum_users, `task ${good.name}: users`);
    expect(task.messagesPerReport === good.messages_per_report && task.messageSize === good.message_size && task.reportSize === good.report_size, `task ${good.name}: sizes`);
    expect(isNear(task.guarantee.deltaAt(Number(epsilon)), delta, Number(tasks.tolerance)), `task ${good.name}: delta ${task.guarantee.deltaAt(Number(epsilon))}, not ${delta}`);
  }
  for (const { name, content, reason } of [...tasks.bad, ...tasks.edge_cases]) {
    const found = await verdict(content);
    expect(found === reason || (found === "unsupported-protocol" && !isSupported(content)), `task ${name}: ${found}, not ${reason}`);
  }
  for (const { name, content, verdict: expected } of tasks.documents)
    expect((await reasonOf(() => read(utf8(content)))) === (expected === "good" ? null : "not-canonical"), `document ${name}`);
}

function checkPacking(formats: Case[], expect: Expect): void {
  for (const { bounds, flags, size, good, bad } of formats) {
    const format: MessageFormat = { bounds: bounds.map(BigInt), flags }, name = `messages of ${bounds} and ${flags} flags`;
    expect(packedSize(format) === size, `${name}: size`);
    for (const { parts, packed } of good) {
      expect(hex(pack(format, parts.map(BigInt))) === packed, `${name}: packed ${packed}`);
      expect(String(unpack(format, unhex(packed))) === String(parts.map(BigInt)), `${name}: unpacked ${packed}`);
    }
    for (const { packed, reason } of bad) {
      let found: string | null = null;
      try {
        unpack(format, unhex(packed));
      } catch (error) {
        found = (error as Refusal).reason;
      }
      expect(found === reason, `${name}: ${packed} is ${found}, not ${reason}`);
    }
  }
}

async function checkSealing(vectors: Case, expect: Expect): Promise<void> {
  const sealer = await Sealer.create(unhex(vectors.analyzer.public), unhex(vectors.info));
  for (const { name, content, ephemeral, sealed } of vectors.good)
    expect(hex(await sealer.seal(unhex(content), await keyPair(unhex(ephemeral), unhex(sealed).slice(0, 32)))) === sealed, `sealed ${name}`);
}

/** A key pair; WebCrypto imports a private key in PKCS #8 only, and Firefox 140 does not tell the public part of one. */
export async function keyPair(raw: Bytes, publicRaw: Bytes): Promise<CryptoKeyPair> {
  return {
    privateKey: await crypto.subtle.importKey("pkcs8", concat(unhex("302e020100300506032b656e04220420"), raw), { name: "X25519" }, false, ["deriveBits"]),
    publicKey: await crypto.subtle.importKey("raw", publicRaw, { name: "X25519" }, true, []),
  };
}
