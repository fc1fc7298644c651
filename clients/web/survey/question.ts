/** The form of one question: yes or no, one of several answers, a number or free text; and the code of the person, if one is needed. */
import { element, isolated } from "./elements.ts";
import type { Value } from "../src/index.ts";
import type { Facts } from "./settings.ts";
import type { Wording } from "./wording.ts";

const MOST_RADIOS = 15;

export interface Field {
  readonly content: Node;
  /** What has focus when the value is missing or wrong. */
  readonly focus: () => HTMLElement;
  readonly error: string;
  /** The value, or null if there is none yet or it is not valid. */
  readonly value: () => Value | null | Promise<Value | null>;
}

/** What a string is counted as; null if it is outside the domain. */
export type Counted = (text: string) => Promise<string | null>;

/** The form; `done` gets the answer, and the code if `token` says what a code looks like. */
export async function question(facts: Facts, wording: Wording, counted: Counted, token: RegExp | null, done: (value: Value, code: string | null) => void): Promise<HTMLFormElement> {
  const fields = [await answerField(facts, wording, counted), ...(token ? [tokenField(wording, token)] : [])];
  let isDone = false;
  const error = element("p", { id: "error", className: "error", role: "alert" });
  const form = element("form", { noValidate: true }, ...fields.map((field) => field.content), error, element("button", { type: "submit" }, wording.text("send")));
  form.onsubmit = async (event) => {
    event.preventDefault();
    const values = await Promise.all(fields.map((field) => field.value())), wrong = fields[values.indexOf(null)];
    if (isDone) return;
    for (const marked of form.querySelectorAll("[aria-invalid]")) {
      marked.removeAttribute("aria-invalid");
      marked.removeAttribute("aria-describedby");
    }
    if (!wrong) {
      isDone = true;
      return done(values[0]!, token ? String(values[1]) : null);
    }
    const target = wrong.focus();
    error.textContent = wrong.error;
    (target instanceof HTMLInputElement && target.type === "radio" ? target.closest("fieldset")! : target).setAttribute("aria-describedby", "error");
    if (!(target instanceof HTMLInputElement && target.type === "radio")) target.setAttribute("aria-invalid", "true");
    target.focus();
  };
  return form;
}

async function answerField(facts: Facts, wording: Wording, counted: Counted): Promise<Field> {
  const asked = facts.description || facts.name;
  if (facts.strings) return (await import("./strings.ts")).stringField(asked, facts.strings, wording, counted, { element, isolated });
  if (facts.interval) return numberField(asked, facts.interval, wording);
  const answers: [string, Value][] = facts.categories ? facts.categories.map((name) => [name, name]) : [[wording.text("yes"), true], [wording.text("no"), false]];
  return answers.length <= MOST_RADIOS ? radioField(asked, answers, wording) : selectField(asked, answers, wording);
}

function radioField(asked: string, answers: readonly (readonly [string, Value])[], wording: Wording): Field {
  const radios = answers.map(() => element("input", { type: "radio", name: "answer", required: true }));
  const labels = answers.map(([name], index) => element("label", { className: "answer" }, radios[index]!, isolated(name)));
  return {
    content: element("fieldset", {}, element("legend", {}, isolated(asked)), ...labels),
    focus: () => radios[0]!,
    error: wording.text("choose_error"),
    value: () => answers[radios.findIndex((radio) => radio.checked)]?.[1] ?? null,
  };
}

function selectField(asked: string, answers: readonly (readonly [string, Value])[], wording: Wording): Field {
  const list = element("select", { id: "answer", required: true }, element("option", { value: "" }, wording.text("choose")));
  list.append(...answers.map(([name], index) => element("option", { value: String(index) }, name)));
  return {
    content: element("div", {}, element("label", { htmlFor: "answer", className: "field" }, isolated(asked)), list),
    focus: () => list,
    error: wording.text("choose_error"),
    value: () => (list.value === "" ? null : answers[Number(list.value)]?.[1] ?? null),
  };
}

function numberField(asked: string, { lower, upper, whole }: NonNullable<Facts["interval"]>, wording: Wording): Field {
  const bounds = { lower: wording.number(lower), upper: wording.number(upper) };
  const input = element("input", {
    id: "answer", type: "number", inputMode: whole && lower >= 0 ? "numeric" : "decimal", required: true, autocomplete: "off",
    min: String(lower), max: String(upper), step: whole ? "1" : "any", aria: { describedby: "range" },
  });
  const hint = element("p", { id: "range", className: "soft" }, wording.text(whole ? "integer_range" : "number_range", bounds));
  return {
    content: element("div", {}, element("label", { htmlFor: "answer", className: "field" }, isolated(asked)), hint, input),
    focus: () => input,
    error: wording.text(whole ? "integer_error" : "number_error", bounds),
    value: () => {
      const given = input.valueAsNumber;
      return given >= lower && given <= upper && (!whole || Number.isInteger(given)) ? given : null;
    },
  };
}

function tokenField(wording: Wording, token: RegExp): Field {
  const input = element("input", { id: "code", autocomplete: "off", spellcheck: false, required: true, maxLength: 512, aria: { describedby: "code-hint" } });
  const hint = element("p", { id: "code-hint", className: "soft" }, wording.text("token_hint"));
  return {
    content: element("div", {}, element("label", { htmlFor: "code", className: "field" }, wording.text("token_label")), hint, input),
    focus: () => input,
    error: wording.text("token_error"),
    value: () => (token.test(input.value.trim()) ? input.value.trim() : null),
  };
}
