/** Drawn reports against the exact distributions of the vectors, by chi-square tests. */
import { hex } from "../src/bytes.ts";
import { type Input } from "../src/domain.ts";
import { SecureDraws, type Draws } from "../src/draw.ts";
import { SecureNoise } from "../src/noise.ts";
import { type Dyadic } from "../src/numbers.ts";
import { pack, type Message } from "../src/packing.ts";
import { type Protocol } from "../src/protocols/protocol.ts";
import { PROTOCOLS, readProtocol } from "../src/protocols/registry.ts";
import { randomized } from "../src/report.ts";
import { Fraction, ONE } from "./fractions.ts";

/** Of a standard normal deviate, one-sided: a probability of 1e-6 over all distributions together, of which there are fewer than 200. */
export const LARGEST_Z = 5.73;

// what a file of vectors holds
type VectorCase = any;

export interface Drawn { readonly name: string; readonly z: number; readonly impossible: number }

/** A coin that is also true where it should just not be: `<=` for `<`. */
export class FaultyCoin extends SecureNoise {
  override coin(p: Dyadic): boolean {
    return this.below(1n << BigInt(p.bits)) <= p.numerator;
  }
}

/** Of strings: the first number that is drawn, the level, is always 0. */
export class FirstLevel extends SecureDraws {
  #isFirst = true;

  override below(n: bigint): bigint {
    if (!this.#isFirst) return super.below(n);
    this.#isFirst = false;
    return 0n;
  }
}

type Randomize = (protocol: Protocol<Input>, input: Input, limit: number, draws: Draws) => Message[];

/** As it should be: what does not fit is drawn again. */
export const withRedraw: Randomize = (protocol, input, limit, draws) => randomized({ protocol, messagesPerReport: limit, carriers: null }, input, draws).messages;

/** The fault: a report that does not fit is cut off instead. */
export const withoutRedraw: Randomize = (protocol, input, limit, draws) => {
  const messages = protocol.randomize(draws, input, 10 * limit);
  return (messages ?? []).slice(0, limit);
};

export async function drawnDistributions(randomizers: VectorCase[], perReport: number, source?: Draws, randomize: Randomize = withRedraw): Promise<Drawn[]> {
  const all: Drawn[] = [];
  for (const { name, protocol: document, messages_per_report: limit, reports = [] } of randomizers) {
    if (!PROTOCOLS.includes(document.protocol)) continue;
    const protocol = await readProtocol(document), draws = source ?? protocol.source?.() ?? new SecureDraws();
    for (const { value, law, chance_of_more: more } of reports) {
      if (!law || (more && (document.version === 2 ? Number(more) : Fraction.parse(more).toNumber()) > 0.9)) continue;
      const number = typeof value === "string" && protocol.domain.kind !== "strings" ? Number(value) : value, input = protocol.domain.kind === "categories" ? number : await protocol.domain.encode(number);
      const counts = new Map<string, number>();
      for (let i = 0; i < perReport; i++) {
        const key = randomize(protocol, input, limit, draws).map((message) => hex(pack(protocol.format, message))).sort().join(" ");
        counts.set(key, (counts.get(key) ?? 0) + 1);
      }
      all.push({ name: `${name}: ${value}`, ...compared(counts, law, perReport) });
    }
  }
  return all;
}

/** Reports of carriers and of the others, by how many messages they have with dummies and by what they contain. */
export async function drawnRoles(randomizers: VectorCase[], perReport: number, randomizedBy = randomized): Promise<Drawn[]> {
  const all: Drawn[] = [];
  for (const { name, protocol: document, messages_per_carrier_report: cap, minimum_carriers: minimum, reports } of randomizers) {
    const protocol = await readProtocol(document), task = { protocol, messagesPerReport: 1, carriers: { messagesPerReport: cap, minimum, reportSize: 0 } }, draws = protocol.source!();
    const { numerator, bits } = protocol.roles!.probability, chance = new Fraction(numerator, 1n << BigInt(bits));
    for (const { value, law, other } of reports) {
      const expected = Object.fromEntries(Object.entries<string>(law).map(([key, mass]) => [`${cap}: ${key}`, String(chance.times(Fraction.parse(mass)))])), counts = new Map<string, number>();
      for (let i = 0; i < perReport; i++) {
        const { messages, count } = randomizedBy(task, value, draws), key = `${count}: ${messages.map((message) => hex(pack(protocol.format, message))).sort().join(" ")}`;
        counts.set(key, (counts.get(key) ?? 0) + 1);
      }
      all.push({ name: `${name}: ${value}`, ...compared(counts, { ...expected, [`1: ${other}`]: String(ONE.minus(chance)) }, perReport) });
    }
  }
  return all;
}

/** Wilson and Hilferty's normal deviate of the chi-square statistic; cells expected fewer than 10 times are merged. */
function compared(counts: Map<string, number>, law: { [key: string]: string }, total: number): { z: number; impossible: number } {
  let statistic = 0, freedom = -1, rareExpected = 0, rareFound = 0, seen = 0;
  const add = (found: number, expected: number) => {
    statistic += (found - expected) ** 2 / expected;
    freedom++;
  };
  for (const [key, mass] of Object.entries(law)) {
    const expected = total * Fraction.parse(mass).toNumber(), found = counts.get(key) ?? 0;
    seen += found;
    if (expected >= 10) add(found, expected);
    else {
      rareExpected += expected;
      rareFound += found;
    }
  }
  if (rareExpected > 0) add(rareFound, rareExpected);
  const z = freedom > 0 ? (Math.cbrt(statistic / freedom) - (1 - 2 / (9 * freedom))) / Math.sqrt(2 / (9 * freedom)) : 0;
  return { z, impossible: total - seen };
}
