/** The rounds of a series that a device takes part in, drawn once, in the form of the Python client. */
import { hex, sha256, utf8, type Bytes } from "../bytes.ts";
import { list, object, read, write } from "../canonical.ts";
import { SecureDraws, type Draws } from "../draw.ts";
import { integer } from "../numbers.ts";
import { check, Refusal } from "../refusal.ts";
import { type Series } from "./series.ts";

/** Reports are sent in the first part of a round, so that a device that is offline for a while can still deliver. */
const SENDING_PART = 0.9;

export interface Participation {
  /** In ascending order. */
  readonly rounds: readonly number[];
  /** Of each of them: seconds from its opening to the report. */
  readonly delays: readonly number[];
  /** The first round that does not take place, or null. */
  readonly cancelledFrom: number | null;
}

/** A uniformly random choice of rounds, each with a uniformly random moment. */
export function drawn({ rounds, roundsPerDevice, open }: Pick<Series, "rounds" | "roundsPerDevice" | "open">, draws: Draws = new SecureDraws()): Participation {
  const below = (n: number): number => Number(draws.below(BigInt(n))), order = Array.from({ length: rounds }, (_, i) => i);
  for (let i = 0; i < roundsPerDevice; i++) {
    const other = i + below(rounds - i);
    [order[i], order[other]] = [order[other]!, order[i]!];
  }
  const chosen = order.slice(0, roundsPerDevice).sort((a, b) => a - b), longest = Math.max(1, Math.trunc(SENDING_PART * open));
  return { rounds: chosen, delays: chosen.map(() => below(longest)), cancelledFrom: null };
}

export async function toBytes({ rounds, delays, cancelledFrom }: Participation): Promise<Bytes> {
  const document = { format: "shuffledp-participation", version: 1, rounds: [...rounds], delays: [...delays], cancelled_from: cancelledFrom };
  return utf8(write({ ...document, checksum: hex(await sha256(utf8(write(document)))) }));
}

/** The draw of these bytes; a Refusal if they are damaged: drawing again would exceed the guarantee. */
export async function fromBytes(content: Uint8Array, series: Pick<Series, "rounds" | "roundsPerDevice" | "open">): Promise<Participation> {
  try {
    const { checksum, ...document } = object(read(content), ["format", "version", "rounds", "delays", "cancelled_from", "checksum"]), from = document["cancelled_from"];
    check(document["format"] === "shuffledp-participation" && document["version"] === 1 && checksum === hex(await sha256(utf8(write(document)))), "version 1 and the right checksum");
    const rounds = list(document["rounds"], series.roundsPerDevice).map((round) => integer(round, 0, series.rounds - 1)), delays = list(document["delays"], rounds.length).map((delay) => integer(delay, 0, series.open));
    check(rounds.length === delays.length && rounds.every((round, i) => i === 0 || round > rounds[i - 1]!), "rounds in order, each with a delay");
    return { rounds, delays, cancelledFrom: from === null ? null : integer(from) };
  } catch (error) {
    throw new Refusal("damaged", `the rounds that this device takes part in are damaged, and nothing is sent (${(error as Error).message}): drawing again would exceed the guarantee`);
  }
}
