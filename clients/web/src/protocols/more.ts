/** The protocols that are loaded only when a task names them: they would make the client larger for everybody. */
import { fakeUsers, unary } from "./bits.ts";
import { cheuCount, cheuHistogram, cheuSum } from "./cheu.ts";
import { correlatedCount, correlatedHistogram } from "./correlated_noise.ts";
import { countMin } from "./count_min.ts";
import { bassilySmith, hadamardBlanket, hadamardResponse } from "./hadamard.ts";
import { hashedBlanket, localHashing, solh } from "./hashing.ts";
import { localLaplace, piecewise } from "./local_sums.ts";
import { type Reader } from "./protocol.ts";
import { pureSum } from "./pure_sum.ts";
import { privacyBlanket, shuffledKResponse } from "./shuffled_responses.ts";
import { splitAndMix } from "./split_and_mix.ts";
import { correlatedTree, uniformBlanketTree } from "./trees.ts";

export const READERS: { readonly [name: string]: Reader } = {
  "count/cheu": cheuCount,
  "count/correlated-noise": correlatedCount,
  "count/pure-sum": pureSum,
  "histogram/bassily-smith": bassilySmith,
  "histogram/cheu": cheuHistogram,
  "histogram/correlated-noise": correlatedHistogram,
  "histogram/count-min": countMin,
  "histogram/fake-users": fakeUsers,
  "histogram/hadamard-blanket": hadamardBlanket,
  "histogram/hadamard-response": hadamardResponse,
  "histogram/hashed-blanket": hashedBlanket,
  "histogram/local-hashing": localHashing,
  "histogram/shuffled-k-rr": shuffledKResponse,
  "histogram/solh": solh,
  "histogram/unary": unary,
  "quantiles/correlated-noise": correlatedTree,
  "quantiles/uniform-blanket": uniformBlanketTree,
  "sum/cheu": cheuSum,
  "sum/local-laplace": localLaplace,
  "sum/piecewise": piecewise,
  "sum/privacy-blanket": privacyBlanket,
  "sum/split-and-mix": splitAndMix,
};
