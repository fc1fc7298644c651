/** Bundles: the assets that the Python package ships, or with --package the npm package. The same bytes every time. */
import { build } from "esbuild";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { minify } from "terser";

const ROOT = import.meta.dirname;
/** Files whose imports in the form import("...") are assets of their own: of the protocols and languages a page needs one each. */
const LOADERS = ["src/protocols/registry.ts", "src/explain.ts"];
const loaded = LOADERS.flatMap((source) =>
  [...readFileSync(join(ROOT, source), "utf8").matchAll(/import\("(.*?)"\)/g)].map(([, path]) => join(dirname(source), path)),
);
/** Files in src/shuffledp/pages/static besides client.js, and what each is made of. */
const ASSETS = {
  ...Object.fromEntries(loaded.map((source) => [`client-${basename(source, ".ts").replaceAll("_", "-")}.js`, source])),
  "operator.css": "operator/operator.css",
  "operator.js": "operator/operator.ts",
  "planner.css": "planner/planner.css",
  "planner.js": "planner/planner.ts",
  "survey.css": "survey/survey.css",
  "survey.js": "survey/survey.ts",
  "survey-strings.js": "survey/strings.ts",
  "survey-worker.js": "survey/worker.ts",
};
/** What client.js exports to the other assets: the public names first. */
const CLIENT = ["index.ts", "bytes.ts", "canonical.ts", "draw.ts", "numbers.ts", "refusal.ts", "texts.ts"];
/** Properties that never leave a script: no keys of documents or of messages to the worker, no exports, no names of the browser. They get names of two letters. */
const INTERNAL = [
  "chanceOfMore", "deltaAt", "denominator", "exclusively", "explain", "factList", "firstPause", "honestUsers", "leftOut", "logNotRatio", "longestPause",
  "longestWait", "maximumUsers", "messageSize", "messagesPerReport", "onRetry", "poisson", "protocolName", "randomize", "reportSize",
];
const PACKAGE = { "index.js": "src/index.ts", "node.js": "src/node.ts" };

const { values } = parseArgs({ options: { out: { type: "string" }, package: { type: "boolean" }, entry: { type: "string" } } });
const outdir = values.out ?? (values.package ? "dist" : "../../src/shuffledp/pages/static");

const bundle = (files, options) =>
  build({
    absWorkingDir: ROOT,
    entryPoints: Object.entries(files).map(([name, source]) => ({ in: source, out: name.replace(/\.(js|css)$/, "") })),
    outdir,
    bundle: true,
    format: "esm",
    target: "es2022",
    platform: "browser",
    minify: true,
    charset: "utf8",
    legalComments: "none",
    logLevel: "warning",
    ...options,
  });

/** A bundle whose scripts Terser shortens once more: some 3 % after compression. */
const asset = async (files, options) => {
  const names = Object.fromEntries(INTERNAL.map((name, i) => [name, `$${i.toString(36)}`]));
  const { outputFiles } = await bundle(files, { ...options, write: false, mangleProps: new RegExp(`^(${INTERNAL.join("|")})$`), mangleCache: names });
  for (const { path, text } of outputFiles) {
    const code = path.endsWith(".js") ? (await minify(text, { module: true, ecma: 2022, compress: { passes: 3 } })).code + "\n" : text;
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, code);
  }
};

/** Imports of other assets stay imports: what is loaded when it is needed, and what `isInClient` says. */
const apart = (isInClient) => ({
  name: "apart",
  setup: ({ onResolve }) =>
    onResolve({ filter: /\.ts$/ }, ({ path, resolveDir, kind }) => {
      const source = join(resolveDir, path), later = Object.keys(ASSETS).find((name) => join(ROOT, ASSETS[name]) === source);
      if (kind === "dynamic-import") return { path: `./${later}`, external: true };
      return kind === "import-statement" && isInClient(source) ? { path: "./client.js", external: true } : undefined;
    }),
});

if (values.entry) await bundle({ "bundle.js": values.entry });
else if (values.package) await bundle(PACKAGE, { platform: "neutral", external: ["node:*"], minify: false, splitting: true, chunkNames: "chunk-[hash]" });
else {
  const stdin = { contents: CLIENT.map((name) => `export * from "./${name}";`).join("\n"), resolveDir: join(ROOT, "src") };
  await asset({}, { stdin, outdir: undefined, outfile: join(outdir, "client.js"), plugins: [apart(() => false)] });
  await asset(ASSETS, { plugins: [apart((source) => CLIENT.some((name) => source === join(ROOT, "src", name)))] });
}
