/** Carriers: few users, whom a coin chooses, add the noise of all; everybody else sends the own message alone. */
import { roundedUp } from "../accounting/divergence.ts";
import { complement, properDyadic, toDouble, type Dyadic } from "../numbers.ts";
import { type Message } from "../packing.ts";
import { check } from "../refusal.ts";
import { type ClusteredNoise } from "./clustered_noise.ts";
import { from, type Protocol, type Terms } from "./protocol.ts";
import texts from "../../texts/carriers.ts";

export const ROLES = { carrier_probability: properDyadic, honest_carriers: from(1) };

const LEAST = 1e-290, UNDERFLOW = 1e-300, NEGLIGIBLE = 1e-30;

/**
 * An upper bound of the probability of fewer than `needed` successes: a share of all masses, which are computed over the largest one, from it
 * outward. Each step has an error of 3 * 2^-53; a probability of 1e-13 is 120,000 steps away among 10^9 trials, and farther ones do not count.
 */
export function chanceOfFewer(trials: number, probability: Dyadic, needed: number): number {
  const p = toDouble(probability), q = toDouble(complement(probability)), mode = Math.min(trials, Math.floor((trials + 1) * p));
  let all = 0, fewer = 0;
  const count = (x: number, mass: number) => {
    all += mass;
    if (x < needed) fewer += mass;
  };
  for (let x = mode, mass = 1; x <= trials && mass > NEGLIGIBLE; mass *= ((trials - x) * p) / (++x * q)) count(x, mass);
  for (let x = mode, mass = 1; x > 0 && mass > UNDERFLOW; count(x, mass)) mass *= (x * q) / ((trials - --x) * p);
  return roundedUp(fewer / all, LEAST);
}

/** The protocol of noise that is divided among honest carriers; `own` is the report of whoever is none. */
export function carried(
  { terms, noise, carrier_probability: probability, honest_carriers: needed }: { readonly terms: Terms; readonly noise: ClusteredNoise; readonly carrier_probability: Dyadic; readonly honest_carriers: number },
  protocol: Protocol,
  own: (x: number) => Message[],
): Protocol {
  const { users, honest } = terms, { delta, chanceOfMore } = protocol;
  check(!noise.clusters.singles && needed <= honest, "carriers of symmetric noise, among the honest users");
  let shortage: number | undefined; // computed when it is needed
  return {
    ...protocol, texts,
    roles: { probability, own: own as (input: unknown) => Message[], minimum: Number((BigInt(needed) * BigInt(users) + BigInt(honest) - 1n) / BigInt(honest)) },
    delta: (epsilon) => delta!(epsilon) + (shortage ??= chanceOfFewer(honest, probability, needed)),
    chanceOfMore: (limit) => toDouble(probability) * chanceOfMore!(limit),
  };
}
