/** The field for free text: loaded only for a question that asks for strings. */
import type { Counted, Field } from "./question.ts";
import type { Facts } from "./settings.ts";
import type { Wording } from "./wording.ts";

/** Symbols and ranges of an alphabet that are listed. */
const MOST_SHOWN = 40, LONGEST_INPUT = 2000;

/** How the page makes elements: passed, so that it is not loaded twice. */
type Elements = Pick<typeof import("./elements.ts"), "element" | "isolated">;

/** Free text, and below it what the text is counted as, if that differs. */
export function stringField(asked: string, { alphabet, maxLength, other }: NonNullable<Facts["strings"]>, wording: Wording, counted: Counted, { element, isolated }: Elements): Field {
  const range = wording.text(alphabet === null ? "bytes_range" : "string_range", { length: wording.number(maxLength), alphabet: shownAlphabet(alphabet ?? "") });
  const input = element("input", { id: "answer", required: true, autocomplete: "off", spellcheck: false, maxLength: LONGEST_INPUT, aria: { describedby: "range" } });
  const hint = element("p", { id: "range", className: "soft" }, `${range} ${wording.text("string_result")}`), preview = element("p", { className: "soft", role: "status" });
  input.oninput = async () => {
    const given = input.value, form = await counted(given);
    if (given !== input.value) return; // typed on meanwhile
    preview.textContent = form === null && other ? wording.text("string_other") : "";
    if (form && form !== given) preview.append(wording.text("string_counted"), " ", isolated(form));
  };
  return {
    content: element("div", {}, element("label", { htmlFor: "answer", className: "field" }, isolated(asked)), hint, input, preview),
    focus: () => input,
    error: wording.text("string_error", { range }),
    value: async () => {
      const form = await counted(input.value);
      return form || (form === null && other) ? input.value : null;
    },
  };
}

/** The pattern a-z0-9\- as people read it, in its own direction: a–z 0–9 - */
function shownAlphabet(pattern: string): string {
  const parts = Array.from(pattern.matchAll(/\\?(.)(?:-\\?(.))?/gsu), ([, first, last]) => (last ? `${first}–${last}` : first === " " ? "␣" : first!));
  return `\u2068${parts.slice(0, MOST_SHOWN).join(" ")}${parts.length > MOST_SHOWN ? " …" : ""}\u2069`;
}
