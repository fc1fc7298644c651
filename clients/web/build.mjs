/** Bundles: the assets that the Python package ships, or with --package the npm package. The same bytes every time. */
import { build } from "esbuild";
import { parseArgs } from "node:util";

/** Files in src/shuffledp/pages/static, and what each is made of. */
const ASSETS = {
  "client.js": "src/index.ts",
};

const PACKAGE = { "index.js": "src/index.ts", "node.js": "src/node.ts" };

const { values } = parseArgs({ options: { out: { type: "string" }, package: { type: "boolean" }, entry: { type: "string" } } });
const here = import.meta.dirname, names = values.entry ? { "bundle.js": values.entry } : values.package ? PACKAGE : ASSETS;

await build({
  absWorkingDir: here,
  entryPoints: Object.entries(names).map(([name, source]) => ({ in: source, out: name.replace(/\.(js|css)$/, "") })),
  outdir: values.out ?? (values.package ? "dist" : "../../src/shuffledp/pages/static"),
  bundle: true,
  format: "esm",
  target: "es2022",
  platform: values.package ? "neutral" : "browser",
  external: values.package ? ["node:*"] : [],
  minify: !values.package,
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
});
