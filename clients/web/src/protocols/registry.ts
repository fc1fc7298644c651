/** The protocols of this client, by the names that tasks use; a file of them is loaded when a task names one. */
import { object, type Json } from "../canonical.ts";
import { type Input } from "../domain.ts";
import { check, Refusal } from "../refusal.ts";
import { type Protocol, type Readers } from "./protocol.ts";

/** Each file of protocols becomes an asset of its own (build.mjs), so that a page loads just what its task needs. */
const FILES: readonly (readonly [load: () => Promise<{ readonly READERS: Readers }>, names: readonly string[]])[] = [
  [() => import("./balcer_cheu.ts"), ["count/balcer-cheu", "histogram/balcer-cheu"]],
  [() => import("./bits.ts"), ["histogram/fake-users", "histogram/unary"]],
  [() => import("./blankets.ts"), ["histogram/uniform-blanket"]],
  [() => import("./cheu.ts"), ["count/cheu", "histogram/cheu", "sum/cheu"]],
  [() => import("./correlated_count.ts"), ["count/correlated-noise"]],
  [() => import("./correlated_noise.ts"), ["histogram/correlated-noise"]],
  [() => import("./count_min.ts"), ["histogram/count-min"]],
  [() => import("./hadamard.ts"), ["histogram/bassily-smith", "histogram/hadamard-blanket", "histogram/hadamard-response"]],
  [() => import("./hashing.ts"), ["histogram/hashed-blanket", "histogram/local-hashing"]],
  [() => import("./shuffler_noise.ts"), ["count/shuffler-laplace", "histogram/shuffler-geometric", "histogram/shuffler-laplace"]],
  [() => import("./solh.ts"), ["histogram/solh"]],
  [() => import("./local_responses.ts"), ["count/randomized-response", "histogram/k-rr", "sum/duchi"]],
  [() => import("./local_sums.ts"), ["sum/local-laplace", "sum/piecewise"]],
  [() => import("./pure_sum.ts"), ["count/pure-sum"]],
  [() => import("./shuffled_responses.ts"), ["histogram/shuffled-k-rr", "sum/privacy-blanket"]],
  [() => import("./split_and_mix.ts"), ["sum/split-and-mix"]],
  [() => import("./uniform_tree.ts"), ["quantiles/uniform-blanket"]],
  [() => import("./correlated_tree.ts"), ["quantiles/correlated-noise"]],
  [() => import("./tree_blanket.ts"), ["strings/tree-blanket"]],
];

/** The same for parameters of version 2. */
const CLUSTERED: typeof FILES = [
  [() => import("./clustered_count.ts"), ["count/correlated-noise"]],
  [() => import("./clustered_noise.ts"), ["histogram/correlated-noise"]],
];

/** The same for parameters of version 3. */
const CARRIED: typeof FILES = [
  [() => import("./carried_count.ts"), ["count/correlated-noise"]],
  [() => import("./carried_noise.ts"), ["histogram/correlated-noise"]],
];

/** By a parameter that only a version and later ones have. */
const LATER = [["carrier_probability", 3, CARRIED], ["clusters", 2, CLUSTERED]] as const;

/** The names of all protocols that this client can randomize for. */
export const PROTOCOLS: readonly string[] = FILES.flatMap(([, names]) => names).sort();

export async function readProtocol(document: Json | undefined): Promise<Protocol<Input> & { readonly name: string }> {
  const parts = object(document, ["parameters", "protocol", "version"]), { parameters, protocol: name } = parts, fileIn = (files: typeof FILES) => files.find(([, names]) => names.includes(name as string));
  const later = LATER.find(([key, , files]) => typeof parameters === "object" && parameters !== null && Object.hasOwn(parameters, key) && fileIn(files)), [, version, files] = later ?? ["", 1, FILES];
  if (typeof parts["version"] === "number" && parts["version"] !== version) throw new Refusal("version", "version of the protocol");
  check(parts["version"] === version && typeof name === "string" && /^(count|histogram|sum|quantiles|strings)\/[a-z-]{1,40}$/.test(name), "protocol");
  const file = fileIn(files);
  if (!file) throw new Refusal("unsupported-protocol", `this client does not have the protocol ${name}`);
  return { name, ...(await file[0]()).READERS[name]!(parameters) };
}
