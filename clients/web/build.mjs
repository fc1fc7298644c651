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
const SERIES = "client-series.js";
/** Files in src/shuffledp/pages/static besides client.js, and what each is made of. */
const ASSETS = {
  ...Object.fromEntries(loaded.map((source) => [`client-${basename(source, ".ts").replaceAll("_", "-")}.js`, source])),
  [SERIES]: "src/series/index.ts",
  "operator.css": "operator/operator.css",
  "operator.js": "operator/operator.ts",
  "planner.css": "planner/planner.css",
  "planner.js": "planner/planner.ts",
  "survey.css": "survey/survey.css",
  "survey.js": "survey/survey.ts",
  "survey-strings.js": "survey/strings.ts",
  "survey-worker.js": "survey/worker.ts",
};
/** The page and its worker once more, for the rounds of a series: a page with one round has nothing of it. */
const ASSETS_OF_SERIES = { "survey-series.js": "survey/survey.ts", "survey-series-worker.js": "survey/worker.ts" };
/** Files in src that are in client.js; it exports the public names, which are in the first, and what other assets import. */
const CLIENT = ["index.ts", "bytes.ts", "canonical.ts", "client.ts", "draw.ts", "keys.ts", "numbers.ts", "outbox.ts", "refusal.ts", "sending.ts", "signed.ts", "task.ts", "texts.ts"];
const PACKAGE = { "budget.js": "src/budget/index.ts", "index.js": "src/index.ts", "node.js": "src/node.ts", "series.js": "src/series/index.ts" };

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

/** Reasons of refusals that pages show by their names or in their own words: messages of these are left out of the assets. */
const UNEXPLAINED = /^(not-canonical|malformed|unknown-author|bad-signature|version|inconsistent|bad-guarantee|outside-domain|unsupported|unsupported-protocol|policy|domain|not-open|not-drawn|cancelled|already-reported|nothing-to-send|unreachable|aborted|damaged|no-secure-context|no-x25519)$/;

/** Removes the messages that no page shows, in a tree of ESTree. */
function withoutMessages(node) {
  const { type, callee, arguments: values } = node, name = callee?.type === "Identifier" ? callee.name.replace(/\d+$/, "") : "";
  if (type === "CallExpression" && name === "check") values.splice(1);
  if (type === "CallExpression" && name === "malformed") values.splice(0);
  if (type === "NewExpression" && name === "Refusal" && UNEXPLAINED.test(values[0].value)) values.splice(1, 1, ...(values.length > 2 ? [{ type: "Literal", value: "" }] : []));
  for (const child of Object.values(node)) {
    for (const part of Array.isArray(child) ? child : [child]) if (typeof part?.type === "string") withoutMessages(part);
  }
  return node;
}

/** Removes names that a module imports and does not use, from the same tree. */
function withoutUnusedImports(module) {
  const used = new Set();
  const visit = (node) => {
    if (node.type === "Identifier") used.add(node.name);
    if (node.type !== "ImportSpecifier") for (const child of Object.values(node)) for (const part of Array.isArray(child) ? child : [child]) if (typeof part?.type === "string") visit(part);
  };
  visit(module);
  for (const statement of module.body) if (statement.type === "ImportDeclaration") statement.specifiers = statement.specifiers.filter(({ local }) => used.has(local.name));
  return module;
}

/** A bundle whose scripts Terser shortens once more, by some 8 % after compression; and the names that it imports from client.js. */
const asset = async (files, options) => {
  const { outputFiles } = await bundle(files, { ...options, write: false, minify: false, minifySyntax: true, minifyWhitespace: true }), imported = [];
  for (const { path, text } of outputFiles) {
    const code = path.endsWith(".js") ? await shortened(text) : text;
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, code);
    for (const [, names] of code.matchAll(/import\{([^}]*)\}from"\.\/client\.js"/g)) imported.push(...names.split(",").map((name) => name.split(" as ")[0]));
  }
  return imported;
};

/** The module behind client.js: a name that nobody exports stays an error of the build. */
function clientModule(imported) {
  const sources = CLIENT.map((name) => [name, readFileSync(join(ROOT, "src", name), "utf8")]), [[first, index]] = sources;
  const left = new Set(imported.filter((name) => !new RegExp(`export \\{[^}]*\\b${name}\\b`).test(index))), lines = [`export * from "./${first}";`];
  for (const [name, source] of sources) {
    const own = [...left].filter((each) => new RegExp(`^export (async )?(class|const|function) ${each}\\b`, "m").test(source));
    own.forEach((each) => left.delete(each));
    if (own.length) lines.push(`export { ${own.sort().join(", ")} } from "./${name}";`);
  }
  return [...lines, left.size ? `export { ${[...left].join(", ")} } from "./${first}";` : ""].join("\n");
}

async function shortened(text) {
  const { ast } = await minify(text, { module: true, compress: false, mangle: false, format: { spidermonkey: true, code: false } });
  const { code } = await minify(withoutUnusedImports(withoutMessages(ast)), { module: true, ecma: 2022, parse: { spidermonkey: true }, compress: { passes: 3, inline: 1 } });
  return `${code}\n`;
}

/** Imports of other assets stay imports: what is loaded when it is needed, and these names, if there are any, which come from client.js in one statement. */
const apart = (exported) => ({
  name: "apart",
  setup: ({ onLoad, onResolve }) => {
    onResolve({ filter: /\.ts$/ }, ({ path, resolveDir, kind }) => {
      const source = join(resolveDir, path), later = Object.keys(ASSETS).find((name) => join(ROOT, ASSETS[name]) === source);
      if (kind === "dynamic-import" || (kind === "import-statement" && later === SERIES)) return { path: `./${later}`, external: true, sideEffects: false };
      return exported && kind === "import-statement" && CLIENT.some((name) => source === join(ROOT, "src", name)) ? { path: "client.js", namespace: "client", sideEffects: false } : undefined;
    });
    onResolve({ filter: /./, namespace: "client" }, ({ path }) => ({ path, external: true, sideEffects: false }));
    onLoad({ filter: /./, namespace: "client" }, () => ({ contents: `export { ${exported} } from "./client.js";` }));
  },
});

if (values.entry) await bundle({ "bundle.js": values.entry });
else if (values.package) await bundle(PACKAGE, { platform: "neutral", external: ["node:*"], minify: false, splitting: true, chunkNames: "chunk-[hash]" });
else {
  const all = { contents: CLIENT.map((name) => `export * from "./${name}";`).join("\n"), resolveDir: join(ROOT, "src") };
  const { outputs } = (await bundle({}, { stdin: all, outdir: undefined, outfile: "names.js", write: false, metafile: true, plugins: [apart()] })).metafile, plugins = [apart(outputs["names.js"].exports)];
  const imported = await asset(ASSETS, { plugins, define: { SERIES: "false" } });
  imported.push(...(await asset(ASSETS_OF_SERIES, { plugins, define: { SERIES: "true" } })));
  const stdin = { contents: clientModule(imported), resolveDir: join(ROOT, "src") };
  await asset({}, { stdin, outdir: undefined, outfile: join(outdir, "client.js"), plugins: [apart()] });
}
