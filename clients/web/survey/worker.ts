/** The worker of the survey page: the client with its outbox, outside of the thread of the page. */
import { Client, IndexedDbOutbox, Refusal, type Sentence, type State, type Task } from "../src/index.ts";
import { SeriesClient } from "../src/series/index.ts";
import type { Calls, Facts, Request, Response, Settings } from "./settings.ts";

const ATTEMPTS = 3, MAX_TASK_BYTES = (1 << 24) + 1, UPDATE_MILLISECONDS = 5000;

/** The author signed it, but the page was built for another one. */
class OtherTask extends Error {}

let client: Client, server: string;

async function check({ settings, person }: Calls["check"]["arguments"]): Promise<Calls["check"]["result"]> {
  if (SERIES) return checkSeries(settings);
  const content = await signedTask(), { author, policy, task } = settings;
  const outbox = person ? await IndexedDbOutbox.open(`shuffledp ${person}`) : undefined;
  client = await Client.create(content, { author, policy, pins: [task], outbox });
  server = settings.server;
  if (client.task.id !== task) throw new OtherTask();
  return { facts: facts(client.task, await client.explain(settings.language)), ...(await state()) };
}

/** Of a series the client is that of the round that is open, if this device takes part in it. */
async function checkSeries(settings: Settings): Promise<Calls["check"]["result"]> {
  const { author, policy, task, language } = settings, device = await SeriesClient.create(await signedTask(), { author, policy, pins: [task] }), { series } = device;
  server = settings.server;
  if (series.id !== task) throw new OtherTask();
  await device.update(server, { signal: AbortSignal.timeout(UPDATE_MILLISECONDS) }).catch(() => {}); // without an answer the clock decides
  const turn = device.turn(), { rounds, roundsPerDevice: perDevice, period, open } = series, isOpen = turn.status === "open";
  if (isOpen) client = await device.client(turn.round);
  const known = facts(await series.task(turn.round), await device.explain(language));
  return { facts: { ...known, turn: { ...turn, rounds, perDevice, period, open, firstOpens: series.opensAt(0) } }, ...(isOpen ? await state() : { state: "none", note: "" }) };
}

async function signedTask(): Promise<Uint8Array> {
  const answer = await fetch(SERIES ? "series.json" : "task.json", { cache: "no-cache", credentials: "omit" });
  if (!answer.ok || Number(answer.headers.get("Content-Length") ?? 0) > MAX_TASK_BYTES) throw new Error("the task cannot be loaded");
  return new Uint8Array(await answer.arrayBuffer());
}

async function state(): Promise<{ state: State; note: string }> {
  return { state: await client.state(), note: await client.note() };
}

/** The state of the report; a final refusal is a state, not a failure. */
async function send({ token }: Calls["send"]["arguments"]): Promise<Calls["send"]["result"]> {
  try {
    await client.send(server, { token: token ?? undefined, patience: { attempts: ATTEMPTS } });
  } catch (error) {
    if (!(error instanceof Refusal && error.final)) throw error;
  }
  return state();
}

async function counted({ text }: Calls["counted"]["arguments"]): Promise<Calls["counted"]["result"]> {
  const { domain } = client.task;
  return { counted: domain.kind === "strings" ? domain.counted(text) : null };
}

async function answer({ value }: Calls["answer"]["arguments"], id: number): Promise<Record<string, never>> {
  await client.report(value, { progress: (done, total) => respond({ id, done, total }) });
  return {};
}

function facts(task: Task, sentences: readonly Sentence[]): Facts {
  const { domain, guarantee, name, description, categories, interval, minimumUsers } = task;
  const numbered = domain.kind === "categories" && !domain.names ? { lower: 0, upper: domain.size - 1, whole: true } : null;
  return {
    name, description, categories, minimumUsers,
    strings: domain.kind === "strings" ? { alphabet: domain.alphabet, maxLength: domain.maxLength, other: domain.other } : null,
    interval: interval ? { lower: interval.lower, upper: interval.upper, whole: interval.whole } : numbered,
    protocol: task.protocolName,
    epsilon: guarantee.epsilon,
    delta: guarantee.delta,
    localEpsilon: Number.isFinite(guarantee.localEpsilon) ? guarantee.localEpsilon : null,
    opens: +task.opens,
    closes: +task.closes,
    sizes: [task, ...(task.carriers ? [task.carriers] : [])].map(({ messagesPerReport, reportSize }) => ({ messages: messagesPerReport, bytes: reportSize })),
    sentences: sentences.map(({ text }) => text),
  };
}

function respond(response: Response): void {
  postMessage(response);
}

function perform(request: Request): Promise<unknown> {
  switch (request.call) {
    case "check": return check(request.arguments);
    case "state": return state();
    case "counted": return counted(request.arguments);
    case "answer": return answer(request.arguments, request.id);
    case "send": return send(request.arguments);
  }
}

addEventListener("message", (event: MessageEvent<Request>) => {
  const { id, call } = event.data;
  perform(event.data).then(
    (result) => respond({ id, result }),
    (error: unknown) => {
      const refusal = error instanceof Refusal ? error : null;
      respond({ id, reason: error instanceof OtherTask ? "other-task" : (refusal?.reason ?? (call === "check" ? "unloaded" : "fault")), problem: refusal?.problem ?? "", message: String((error as Error).message) });
    },
  );
});
