/** What a page says about the rounds of a series: which one is open, whether this device takes part in it, and what comes next. */
import type { Facts, Settings } from "./settings.ts";
import { isolate, type Wording } from "./wording.ts";

type Values = Readonly<Record<string, string>>;

/** When a round opens. */
const opensAt = ({ turn }: Facts, round: number): number => turn!.firstOpens + 1000 * turn!.period * round;

/** The number of a round, as people count, its times, and the numbers of all rounds. */
export function roundValues(facts: Facts, wording: Wording, round: number): Values {
  const { rounds, perDevice, open } = facts.turn!, opens = opensAt(facts, round);
  return {
    round: wording.number(round + 1), rounds: wording.number(rounds), count: wording.number(perDevice),
    opens: wording.time(opens), closes: wording.time(opens + 1000 * open),
  };
}

/** Why there is nothing to answer now, and when there is. */
export function turnSentences(facts: Facts, { asker }: Settings, wording: Wording): string[] {
  const { status, round } = facts.turn!, own = status === "skipped" || status === "pause" ? nextSentence(facts, wording) : "";
  return [wording.text(status, { ...roundValues(facts, wording, round), asker: isolate(asker) }), own];
}

/** From when on this device can answer again. */
export function nextSentence(facts: Facts, wording: Wording): string {
  const { next } = facts.turn!;
  return next === null ? wording.text("last") : wording.text("next", roundValues(facts, wording, next));
}

/** When what the page shows is no longer true: a round opens or closes. */
export function nextChange(facts: Facts, now: number): number {
  const { rounds, open } = facts.turn!;
  for (let round = 0; round < rounds; round++) {
    const opens = opensAt(facts, round), change = [opens, opens + 1000 * open].find((time) => time > now);
    if (change !== undefined) return change;
  }
  return Infinity;
}
