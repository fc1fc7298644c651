/** Local sums: an answer near one's own level (sum/piecewise), and a level with noise (sum/local-laplace). */
import { level } from "../levels.ts";
import { SecureGeometric, type GeometricDraws } from "../geometric.ts";
import { bigInteger, complement, properDyadic, toDouble } from "../numbers.ts";
import { logRatioAbove } from "../ratios.ts";
import { check } from "../refusal.ts";
import { from, sumParameters, type Reader, type Readers } from "./protocol.ts";
import { localGuarantee } from "./local_responses.ts";

const piecewise: Reader = (document) => {
  const { terms, domain, levels, step, window, outside } = sumParameters(document, { levels: from(1), step: from(1), window: from(1), outside: properDyadic });
  const rest = levels * step, answers = window + rest;
  check(answers <= 1 << 20, "at most 2^20 answers");
  check(outside.numerator * BigInt(answers) < BigInt(rest) << BigInt(outside.bits), "outside below the share of the answers outside of a window");
  return {
    domain, terms, maxMessages: 1, format: { bounds: [BigInt(answers)], flags: 0 },
    ...localGuarantee(logRatioAbove(complement(outside).numerator * BigInt(rest), outside.numerator * BigInt(window))),
    randomize(draws, x) {
      const start = BigInt(step * level(draws, domain, x, levels));
      if (!draws.coin(outside)) return [[start + draws.below(BigInt(window))]];
      const answer = draws.below(BigInt(rest));
      return [[answer < start ? answer : answer + BigInt(window)]];
    },
  };
};

const localLaplace: Reader = (document) => {
  const { terms, domain, levels, ratio, margin } = sumParameters(document, { levels: from(1, 1 << 20), ratio: properDyadic, margin: (value) => bigInteger(value, 0n, (1n << 62n) - 1n) });
  const last = BigInt(levels) + 2n * margin, notRatio = toDouble(complement(ratio));
  return {
    domain, terms, maxMessages: 1, format: { bounds: [last + 1n], flags: 0 }, draws: 2 / notRatio,
    ...localGuarantee(-levels * (notRatio < 0.5 ? Math.log1p(-notRatio) : Math.log(toDouble(ratio)))),
    source: () => new SecureGeometric(),
    randomize(draws: GeometricDraws, x) {
      const own = BigInt(level(draws, domain, x, levels)) + margin;
      return [[own + draws.geometricDifference(ratio, -own, last - own)]];
    },
  };
};

export const READERS: Readers = { "sum/local-laplace": localLaplace, "sum/piecewise": piecewise };
