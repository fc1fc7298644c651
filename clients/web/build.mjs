/** Bundles: the assets that the Python package ships, or with --package the npm package. The same bytes every time. */
import { build } from "esbuild";
import { parseArgs } from "node:util";

/** Files in src/shuffledp/pages/static, and what each is made of. */
const ASSETS = {
  "operator.css": "operator/operator.css",
  "operator.js": "operator/operator.ts",
  "planner.css": "planner/planner.css",
  "planner.js": "planner/planner.ts",
  "survey.css": "survey/survey.css",
  "survey.js": "survey/survey.ts",
};
/** The client: client.js and client-chunk.js, and client-more.js for the protocols that few tasks use. */
const CLIENT = { "client.js": "src/index.ts" };
/** The same for the worker of survey pages. */
const WORKER = { "survey-worker.js": "survey/worker.ts" };
const PACKAGE = { "index.js": "src/index.ts", "node.js": "src/node.ts" };

const { values } = parseArgs({ options: { out: { type: "string" }, package: { type: "boolean" }, entry: { type: "string" } } });
const outdir = values.out ?? (values.package ? "dist" : "../../src/shuffledp/pages/static");

const bundle = (files, options) =>
  build({
    absWorkingDir: import.meta.dirname,
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

if (values.entry) await bundle({ "bundle.js": values.entry });
else if (values.package) await bundle(PACKAGE, { platform: "neutral", external: ["node:*"], minify: false, splitting: true, chunkNames: "chunk-[hash]" });
else {
  await bundle(CLIENT, { splitting: true, chunkNames: "client-[name]" });
  await bundle(WORKER, { splitting: true, chunkNames: "survey-worker-[name]" });
  await bundle(ASSETS);
}
