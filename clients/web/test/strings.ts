/** Strings as this client normalizes, numbers and hashes them: one line of JSON per case of a file, read by tests/browser/test_strings.py. */
import { readFileSync } from "node:fs";
import { type Json } from "../src/canonical.ts";
import { readProtocol } from "../src/protocols/registry.ts";
import { Refusal } from "../src/refusal.ts";
import { readStrings } from "../src/strings.ts";

interface Case { readonly protocol: { parameters: { domain: Json } }; readonly texts: string[] }

for (const { protocol: document, texts } of JSON.parse(readFileSync(process.argv[2]!, "utf8")) as Case[]) {
  const { domain } = await readProtocol(document as Json), rules = readStrings(document.parameters.domain);
  if (domain.kind !== "strings") throw new Error("not a domain of strings");
  const cells = (text: string) => domain.encode(text).then((found) => found.map(Number), (error: unknown) => (error instanceof Refusal ? error.reason : String(error)));
  const normalized = texts.map((text) => rules.normalized(text)), words = normalized.map((text) => rules.word(text));
  console.log(JSON.stringify({
    normalized,
    counted: texts.map((text) => domain.counted(text)),
    numbers: words.map((word) => word && [word.length, `0x${word.number.toString(16)}`]),
    cells: await Promise.all(texts.slice(0, 2000).map(cells)),
  }));
}
