/** The survey page: one question, its states, and what happens to the answer. The client runs in a worker. */
import { element, isolated, required } from "./elements.ts";
import { Failure, WorkerLink } from "./link.ts";
import { question } from "./question.ts";
import type { State, Value } from "../src/index.ts";
import { nextChange, nextSentence, roundValues, turnSentences } from "./series.ts";
import type { Calls, Facts, Settings } from "./settings.ts";
import { isolate, Wording } from "./wording.ts";

const settings = JSON.parse(required("#settings").textContent ?? "") as Settings;
const wording = new Wording(settings);
const page = required<HTMLElement>("#page"), status = required("#status");
const TOKEN = /^[A-Za-z0-9._~+/=-]{16,512}$/, TOKEN_KEY = `shuffledp token ${settings.task}`, PERSON_KEY = `shuffledp person ${settings.task}`;
const FIRST_PAUSE_SECONDS = 5, LONGEST_PAUSE_SECONDS = 300, RESULT_SECONDS = 3, MAX_FAULTS = 3, CLOCK_MILLISECONDS = 5000;

let token = tokenOfAddress() ?? remembered(TOKEN_KEY);
let link: WorkerLink | undefined;
let facts: Facts | null = null;
/** Failures of the worker, such as storage or threads that a busy machine denied; each gets a new worker. */
let faults = 0;

/** The token in the fragment, which browsers do not send; it is removed from the address and the history. */
function tokenOfAddress(): string | null {
  if (!location.hash) return null;
  const found = new URLSearchParams(location.hash.slice(1)).get("t");
  history.replaceState(null, "", location.pathname + location.search);
  return found !== null && TOKEN.test(found) ? found : null;
}

function remembered(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function remember(key: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    // without storage the token is in memory only, and in the invitation
  }
}

/** The person at a kiosk, whose report has a storage of its own. */
function person(): string {
  return `kiosk ${settings.task} ${remembered(PERSON_KEY) ?? "0"}`;
}

/** Show a state: its title, announced to screen readers, and its content. Focus moves only if it was in the page. */
function show(state: string, title: string, ...content: Node[]): void {
  const focused = document.activeElement, keep = focused !== null && page.contains(focused);
  const heading = element("h1", { tabIndex: -1 }, state === "question" ? isolated(title) : title);
  page.replaceChildren(heading, ...content);
  if (state !== "question" && facts) document.title = `${title} · ${facts.name}`;
  document.body.dataset["state"] = state;
  if (keep) heading.focus();
  else status.textContent = title;
}

const paragraph = (text: string, className = ""): HTMLElement => element("p", { className }, text);
const asked = (): Node[] => (facts ? [element("p", { className: "soft" }, isolated(facts.name))] : []);

/** What happens to the answer, and the numbers behind it. */
function explanation(known: Facts): Node[] {
  const sentences = SERIES ? [...known.sentences, wording.text("total")] : known.sentences;
  const list = element("ul", {}, ...sentences.map((sentence) => element("li", {}, sentence)));
  const numbers = element("dl");
  for (const [name, value] of wording.factList(known)) numbers.append(element("dt", {}, name), element("dd", {}, isolated(value)));
  return [
    element("section", { aria: { labelledby: "happens" } }, element("h2", { id: "happens" }, wording.text("happens_title")), list),
    element(
      "details",
      {},
      element("summary", {}, wording.text("details_title")),
      paragraph(wording.text("page_host", { host: location.host, server: new URL(settings.server).host })),
      paragraph(wording.text("forgets")),
      numbers,
    ),
  ];
}

async function start(): Promise<void> {
  const missing = !isSecureContext ? "no-secure-context" : !("locks" in navigator) || !globalThis.indexedDB || !crypto.subtle ? "no-x25519" : null;
  if (missing) return showFailure(new Failure(missing));
  try {
    const { state, note } = await connect();
    void navigator.storage?.persist?.().catch(() => {}); // a request that a worker cannot make
    await proceed(state, note);
  } catch (error) {
    showFailure(error);
  }
}

/** A new worker, which verifies the task: the state of the report that is stored. */
async function connect(): Promise<Calls["state"]["result"]> {
  link?.stop();
  link = new WorkerLink();
  const { facts: verified, ...stored } = await link.call("check", { settings, person: settings.kiosk ? person() : "" });
  facts = verified;
  return stored;
}

/** Continue from the state of the report. */
async function proceed(state: State, note: string): Promise<void> {
  if (SERIES) {
    const { status } = facts!.turn!;
    followClock();
    if (status !== "open") return showEnd("closed", wording.text(`${status}_title`), ...turnSentences(facts!, settings, wording));
  }
  if (state === "none") return ask();
  if (state === "pending") return deliver();
  remember(TOKEN_KEY, null);
  const words = wording.text.bind(wording);
  if (state === "delivered") showEnd("delivered", words("delivered_title"), words("delivered"), settings.kiosk ? "" : words("once"), ...(SERIES ? [nextSentence(facts!, wording)] : []));
  else if (state === "closed") showEnd("closed", words("closed_title"), words("closed_pending"), ...(SERIES ? [nextSentence(facts!, wording)] : []));
  else showEnd("refused", words("refused_title"), words("refused", { reason: note }));
}

async function ask(): Promise<void> {
  const known = facts!, now = Date.now();
  if (now < known.opens) {
    return show("closed", wording.text("early_title"), ...asked(), paragraph(wording.text("early", { opens: wording.time(known.opens) })), ...explanation(known));
  }
  if (now >= known.closes) return showEnd("closed", wording.text("closed_title"), wording.text("closed"));
  const counted = async (text: string) => (await link!.call("counted", { text })).counted;
  const form = await question(known, wording, counted, settings.tokens && token === null ? TOKEN : null, (value, code) => {
    token = code ?? token;
    void answer(value);
  });
  show("question", known.name, paragraph(wording.text("intro", { users: wording.number(known.minimumUsers), ...(SERIES ? roundValues(known, wording, known.turn!.round) : {}) })), form, ...explanation(known));
}

async function answer(value: Value): Promise<void> {
  const known = facts!;
  const bar = element("progress", { value: 0, aria: { label: wording.text("sealing_title") } }), count = paragraph("");
  const progress = (done: number, total: number): void => {
    bar.max = total;
    bar.value = done;
    count.textContent = wording.text("sealing", { done: wording.number(done), total: wording.number(total) });
  };
  progress(0, known.sizes[0]!.messages);
  show("sealing", wording.text("sealing_title"), ...asked(), bar, count);
  link!.onprogress = progress;
  try {
    if (settings.tokens) remember(TOKEN_KEY, token);
    await link!.call("answer", { value });
  } catch (error) {
    // another tab may have answered meanwhile: what it stored is what counts
    const stored = await connect().catch(() => null), { reason } = error as Failure;
    if (SERIES && stored && facts!.turn!.round !== known.turn!.round) return proceed(stored.state, stored.note); // the answer was to another round
    if (stored && stored.state !== "none") return proceed(stored.state, stored.note);
    if (stored && (reason === "fault" || reason === "no-storage") && ++faults < MAX_FAULTS) return answer(value); // nothing was stored, so nothing was sent
    return reason === "not-open" ? (SERIES ? proceed("none", "") : ask()) : showFailure(error);
  }
  return deliver();
}

/** Send the stored report, the same bytes each time, until there is an answer. */
async function deliver(): Promise<void> {
  const known = facts!;
  const now = paragraph(wording.text("waiting")), retry = element("button", { type: "button", hidden: true }, wording.text("retry"));
  const closing = paragraph(wording.text("waiting_close", { closes: wording.time(known.closes) }));
  show("waiting", wording.text("waiting_title"), ...asked(), now, retry, closing, ...explanation(known));
  for (let pause = FIRST_PAUSE_SECONDS; ; pause = Math.min(LONGEST_PAUSE_SECONDS, 2 * pause)) {
    try {
      const { state, note } = await link!.call("send", { token });
      return await proceed(state, note);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      if (error.reason === "refused") return showRefusal(error);
      if (error.reason !== "unreachable") {
        // the report may have arrived, and is stored: the same bytes are sent once more, unless this cannot help
        const stored = ++faults < MAX_FAULTS ? await connect().catch(() => null) : null;
        return stored && stored.state !== "none" ? proceed(stored.state, stored.note) : showFailure(new Failure("fault", error.message));
      }
    }
    retry.hidden = false;
    await untilRetry(retry, pause, (seconds) => {
      now.textContent = wording.text("waiting_later", { seconds: wording.number(seconds) });
    });
    if (document.activeElement === retry) required<HTMLElement>("h1").focus();
    retry.hidden = true;
    now.textContent = wording.text("waiting");
  }
}

/** Resolves after some seconds, or when the button is pressed or the network is back. */
function untilRetry(button: HTMLButtonElement, seconds: number, tick: (left: number) => void): Promise<void> {
  return new Promise((resolve) => {
    const end = Date.now() + 1000 * seconds;
    const finish = (): void => {
      clearInterval(timer);
      button.onclick = null;
      removeEventListener("online", finish);
      resolve();
    };
    const timer = setInterval(() => {
      const left = Math.ceil((end - Date.now()) / 1000);
      if (left <= 0) finish();
      else tick(left);
    }, 1000);
    tick(seconds);
    button.onclick = finish;
    addEventListener("online", finish);
  });
}

/** The server refused the report, but another attempt may succeed: with another token, or later. */
function showRefusal(error: Failure): void {
  const ofToken = error.problem.startsWith("token-"), again = element("button", { type: "button" }, wording.text("retry"));
  const title = wording.text("refused_title");
  const text = ofToken ? wording.text(error.problem.replace("-", "_")) : wording.text("refused", { reason: error.problem || error.message });
  again.onclick = () => void deliver();
  if (!ofToken) return show("refused", title, ...asked(), paragraph(text), again, ...explanation(facts!));
  const code = element("input", { id: "code", autocomplete: "off", spellcheck: false, maxLength: 512 });
  const wrong = element("p", { id: "error", className: "error", role: "alert" });
  const form = element("form", { noValidate: true }, element("label", { htmlFor: "code", className: "field" }, wording.text("token_again")), code, wrong, again);
  again.type = "submit";
  again.onclick = null;
  form.onsubmit = (event) => {
    event.preventDefault();
    const given = code.value.trim();
    if (!TOKEN.test(given)) {
      wrong.textContent = wording.text("token_error");
      code.setAttribute("aria-invalid", "true");
      code.setAttribute("aria-describedby", "error");
      return code.focus();
    }
    token = given;
    remember(TOKEN_KEY, token);
    void deliver();
  };
  show("refused", title, ...asked(), paragraph(text), form, ...explanation(facts!));
}

/** A state in which nothing more is sent: with the result, once it is published. */
function showEnd(state: string, title: string, ...sentences: string[]): void {
  const known = facts!, result = paragraph("", "result");
  const parts: Node[] = [...sentences.filter(Boolean).map((sentence) => paragraph(sentence)), result];
  if (settings.kiosk) {
    const next = element("button", { type: "button" }, wording.text("kiosk_next"));
    next.onclick = () => {
      indexedDB.deleteDatabase(`shuffledp ${person()}`);
      remember(PERSON_KEY, String(Number(remembered(PERSON_KEY) ?? "0") + 1));
      location.reload();
    };
    parts.push(next);
  }
  show(state, title, ...asked(), ...parts, ...explanation(known));
  const over = state === "closed" || Date.now() >= known.closes, users = wording.number(known.minimumUsers);
  void watchResult(result, wording.text(over ? "result_soon" : "result_later", { closes: wording.time(known.closes), users }));
}

/** Check in a file of this site whether the result is published: a request to the analyzer would show it who asks. */
async function watchResult(place: HTMLElement, until: string): Promise<void> {
  for (let pause = RESULT_SECONDS; place.isConnected; pause = Math.min(LONGEST_PAUSE_SECONDS, 1.5 * pause)) {
    const url = document.visibilityState === "visible" ? await publishedUrl() : null;
    if (url) return place.replaceChildren(element("a", { href: url, rel: "noreferrer" }, wording.text("result")));
    if (place.textContent === "") place.textContent = until;
    await new Promise((resolve) => setTimeout(resolve, 1000 * pause));
  }
}

async function publishedUrl(): Promise<string | null> {
  try {
    const { url } = (await (await fetch("result.json", { cache: "no-store", credentials: "omit" })).json()) as { url: unknown };
    if (typeof url !== "string") return null;
    const parsed = new URL(url);
    return parsed.protocol === "https:" || (parsed.protocol === "http:" && parsed.hostname === "127.0.0.1") ? parsed.href : null;
  } catch {
    return null;
  }
}

/** Nothing can be answered on this page, because of the browser, the task or the host. */
function showFailure(error: unknown): void {
  const reason = error instanceof Failure ? error.reason : "fault";
  const unsupported = { "no-secure-context": "unsupported_context", "no-x25519": "unsupported_old", "no-storage": "unsupported_storage" }[reason];
  if (unsupported) return show("unsupported", wording.text("unsupported_title"), paragraph(wording.text(unsupported)));
  if (reason === "fault" || reason === "unloaded" || facts) {
    const again = element("button", { type: "button" }, wording.text("reload"));
    again.onclick = () => location.reload();
    const text = facts ? "fault" : "broken"; // once there was a question, something may have been sent
    const failed = facts ? [paragraph(wording.text("untrusted_reason", { reason: `${reason} ${(error as Error).message}`.trim() }), "soft")] : [];
    return show("broken", wording.text(`${text}_title`), paragraph(wording.text(text)), again, ...failed);
  }
  show(
    "untrusted",
    wording.text("untrusted_title"),
    paragraph(wording.text("untrusted", { asker: isolate(settings.asker) })),
    paragraph(wording.text("untrusted_reason", { reason }), "soft"),
  );
}

let timer = 0;

/** Begin again once another round opens or the present one closes, unless something is being sealed or sent. */
function followClock(): void {
  clearInterval(timer);
  const end = nextChange(facts!, Date.now());
  timer = window.setInterval(() => {
    if (Date.now() < end || /^(sealing|waiting)$/.test(document.body.dataset["state"]!)) return;
    clearInterval(timer);
    void start();
  }, CLOCK_MILLISECONDS);
}

/** Another tab may have answered while this one was hidden. */
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState !== "visible" || document.body.dataset["state"] !== "question") return;
  void link!.call("state", {}).then(({ state, note }) => {
    if (state !== "none" && document.body.dataset["state"] === "question") return proceed(state, note);
  });
});

void start();
