/** The planner's page: sliders, the state in the address, and results as they are computed. Without it the form works too. */
import { fetchDocument, swap } from "../local/swap.ts";
import { fromPosition, STEPS, toPosition, type Scale } from "./scale.ts";
import { events } from "./stream.ts";

const DEBOUNCE = 150, REFRESH = 250;

const form = document.getElementById("query") as HTMLFormElement;
const results = document.getElementById("results") as HTMLElement;
const status = document.getElementById("status") as HTMLElement;
const problem = document.getElementById("error") as HTMLElement;
const link = document.getElementById("link") as HTMLAnchorElement;

/** Values of the form when nothing is given; those do not go into the address. */
const defaults = new Map<string, string>();
/** The plan that is shown in detail, and the shape of its data: stored here, since these fields come and go with the results. */
const looked = new Map(["choice", "shape"].map((name) => [name, new URLSearchParams(location.search).get(name) ?? ""]));
let running = new AbortController(), timer = 0, draw = 0;

/** What is asked: the fields that concern the question, without empty ones. */
function asked(): URLSearchParams {
  const found = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    const field = document.getElementById(name)?.closest(".field");
    if (name !== "show" && name !== "draw" && typeof value === "string" && value !== "" && !(field instanceof HTMLElement && field.hidden)) {
      found.set(name, value);
    }
  }
  for (const [name, value] of looked) {
    if (value) found.set(name, value);
    else found.delete(name);
  }
  return found;
}

function address(parameters: URLSearchParams): string {
  const short = new URLSearchParams([...parameters].filter(([name, value]) => defaults.get(name) !== value));
  return short.size ? `?${short}` : location.pathname;
}

/** Shows the fields that concern the question. */
function arrange(): void {
  const question = new FormData(form).get("question");
  for (const field of form.querySelectorAll<HTMLElement>(".field[data-questions]")) {
    field.hidden = !field.dataset.questions?.split(" ").includes(String(question));
  }
}

function say(message: string): void {
  if (status.textContent !== message) status.textContent = message;
}

function fail(message: string): void {
  problem.textContent = message;
  problem.hidden = message === "";
}

/** Replaces what is shown by the current results of the server. */
async function refresh(parameters: URLSearchParams, signal: AbortSignal, part = results): Promise<void> {
  const known = new URLSearchParams(parameters);
  known.set("show", "known");
  if (draw) known.set("draw", String(draw));
  const { document: fresh } = await fetchDocument(`/?${known}`, signal);
  const found = fresh.getElementById(part.id);
  if (signal.aborted || !found) return;
  swap(part, found);
  addCopyButtons();
}

/** Asks again; the request that is running is cancelled, and with it its calculations. */
async function plan(): Promise<void> {
  running.abort();
  running = new AbortController();
  const { signal } = running, parameters = asked();
  history.replaceState(null, "", address(parameters));
  link.href = address(parameters);
  fail("");
  results.setAttribute("aria-busy", "true");
  let shown = 0, pending: Promise<void> = Promise.resolve();
  try {
    for await (const event of events(`/api/plan?${parameters}`, signal)) {
      if (event.name === "candidate") say(`${event.data.done} of ${event.data.protocols} protocols calibrated.`);
      if (event.name === "infeasible") say("No protocol meets the target."); // the results say why
      if (event.name === "failed") fail(event.data.error);
      if (event.name === "ranked") say(`All protocols were calibrated; ${event.data.plans.length} plans.`);
      const now = performance.now(), last = event.name === "ranked" || event.name === "end" || event.name === "infeasible";
      if (event.name !== "start" && (last || now - shown > REFRESH)) {
        shown = now;
        await pending;
        pending = refresh(parameters, signal);
      }
    }
    await pending;
    results.removeAttribute("aria-busy");
  } catch (error) {
    if (signal.aborted) return;
    fail(error instanceof Error ? error.message : String(error));
    results.removeAttribute("aria-busy");
  }
}

function soon(delay = DEBOUNCE): void {
  clearTimeout(timer);
  timer = window.setTimeout(plan, delay);
}

/** A slider beside a number; both show the same value, the slider in steps of two digits. */
function addSlider(input: HTMLInputElement): void {
  const scale: Scale = { low: Number(input.dataset.low), high: Number(input.dataset.high), log: input.dataset.scale === "log" };
  const slider = document.createElement("input");
  slider.type = "range";
  slider.min = "0";
  slider.max = String(STEPS);
  slider.value = String(toPosition(Number(input.value), scale));
  slider.setAttribute("aria-label", `${input.labels?.[0]?.textContent ?? input.name}, slider`);
  const tell = () => slider.setAttribute("aria-valuetext", input.value);
  slider.addEventListener("input", () => {
    input.value = fromPosition(Number(slider.value), scale, input.name);
    tell();
    soon();
  });
  input.addEventListener("input", () => {
    slider.value = String(toPosition(Number(input.value), scale));
    tell();
  });
  tell();
  input.closest(".field")?.append(slider);
}

function addCopyButtons(): void {
  for (const block of document.querySelectorAll<HTMLElement>("pre:not(:has(+ .copy))")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(block.textContent ?? "");
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    block.after(button);
  }
}

for (const input of form.querySelectorAll<HTMLInputElement>("input[data-default]")) defaults.set(input.name, input.dataset.default ?? "");
for (const [name, value] of [["question", "histogram"], ["trust", "shuffled"], ["shape", "skewed"]] as const) defaults.set(name, value);
for (const input of form.querySelectorAll<HTMLInputElement>("input[data-low]")) addSlider(input);
document.body.classList.add("live");

document.addEventListener("input", (event) => {
  const target = event.target;
  if (!(target instanceof HTMLInputElement || target instanceof HTMLSelectElement) || target.form !== form || target.type === "range") return;
  if (target.name === "question") {
    arrange();
    looked.set("choice", "");
  }
  if (looked.has(target.name)) {
    const isBest = target === results.querySelector("input[name=choice]");
    looked.set(target.name, isBest ? "" : target.value);
  }
  soon(target.type === "radio" ? 0 : DEBOUNCE);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  if ((event.submitter as HTMLButtonElement | null)?.id === "again") {
    draw += 1;
    const preview = document.getElementById("preview");
    if (preview) refresh(asked(), running.signal, preview).catch((error: unknown) => fail(String(error)));
  } else soon(0);
});
if (problem.hidden) plan(); // else the address asks for something that does not exist, and the page says so
