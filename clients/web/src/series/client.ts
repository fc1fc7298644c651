/** One device and one series: it takes part in at most R of the N rounds, which it draws once, before it knows any value. */
import { fromBase64, utf8, type Bytes } from "../bytes.ts";
import { read, write, type Json, type JsonObject } from "../canonical.ts";
import { Client, type ClientOptions } from "../client.ts";
import { type Value } from "../domain.ts";
import { type Language, type Sentence } from "../explain.ts";
import { IndexedDbOutbox } from "../outbox.ts";
import { IndexedDbRecord, type RecordStore } from "../record_store.ts";
import { Refusal } from "../refusal.ts";
import { type Progress } from "../report.ts";
import { serverUrl } from "../sending.ts";
import { drawn, fromBytes, toBytes, type Participation } from "./participation.ts";
import { verifyCancellation, verifySeries, type Cancellation, type Series } from "./series.ts";

const REQUEST_MILLISECONDS = 30_000, MAX_CANCEL_BYTES = 1 << 16;

export interface SeriesOptions extends ClientOptions {
  /** Where the draw of a series is stored, by its id: next to the outbox if that is in files, else in IndexedDB. */
  readonly draws?: ((series: string) => RecordStore | Promise<RecordStore>) | undefined;
}

/** What a device may do at a moment. */
export interface Turn {
  /**
   * `open`: it can report to `round`. `skipped`: it does not take part in `round`, which is open. `pause`: no round is open now, and `round` is
   * the next one. `cancelled`: from `round` on. `over`: `round` was the last one.
   */
  readonly status: "open" | "skipped" | "pause" | "cancelled" | "over";
  readonly round: number;
  /** The next round after this moment that the device takes part in, or null. */
  readonly next: number | null;
}

export class SeriesClient {
  readonly series: Series;
  readonly #author: Bytes;
  readonly #options: ClientOptions;
  readonly #store: RecordStore;
  readonly #first: Client;
  readonly #signedBytes: number;
  #participation: Participation;

  private constructor(series: Series, first: Client, options: ClientOptions, store: RecordStore, participation: Participation, signedBytes: number) {
    this.series = series;
    this.#author = fromBase64(options.author, 32);
    this.#first = first;
    this.#options = options;
    this.#store = store;
    this.#participation = participation;
    this.#signedBytes = signedBytes;
  }

  /** Throws a Refusal unless the author signed the series, its guarantee holds and the policy allows it. The draw is durable when this resolves. */
  static async create(signedSeries: Uint8Array, options: SeriesOptions): Promise<SeriesClient> {
    if (!globalThis.crypto?.subtle) throw new Refusal("no-secure-context", "answers can be sealed only on a page that was loaded by https or from this machine");
    const series = await verifySeries(signedSeries, fromBase64(options.author, 32), options.pins), { outbox = await IndexedDbOutbox.open(), draws } = options;
    const first = await Client.of(series.first, { ...options, outbox }); // checks the policy: all rounds have the same parameters
    const name = `${series.id}.series`, records = outbox as { record?: (name: string) => RecordStore };
    const store = await (draws ? draws(series.id) : (records.record?.(name) ?? IndexedDbRecord.open(`shuffledp ${name}`)));
    return new SeriesClient(series, first, { ...options, outbox }, store, await updated(store, series, (participation) => participation), signedSeries.length);
  }

  get participation(): Participation {
    return this.#participation;
  }

  /** Sentences for people about what a report of any round reveals; that one can answer once is not among them. */
  async explain(language: Language): Promise<Sentence[]> {
    return (await this.#first.explain(language)).filter(({ topic }) => topic !== "once");
  }

  /** The number of the round that is open, in which the device takes part, and that is not cancelled; else null. */
  roundAt(now = Date.now()): number | null {
    const { status, round } = this.turn(now);
    return status === "open" ? round : null;
  }

  turn(now = Date.now()): Turn {
    const { series } = this, { rounds, cancelledFrom } = this.#participation, end = Math.min(cancelledFrom ?? Infinity, series.rounds), open = series.roundAt(now);
    const next = rounds.find((round) => round < end && series.opensAt(round) > now) ?? null;
    const coming = Array.from({ length: series.rounds }, (_, i) => i).find((round) => series.opensAt(round) > now), round = open ?? coming ?? series.rounds;
    if (round >= end && end < series.rounds) return { status: "cancelled", round: end, next };
    if (open !== null) return { status: rounds.includes(open) ? "open" : "skipped", round: open, next };
    return coming === undefined ? { status: "over", round: series.rounds - 1, next } : { status: "pause", round: coming, next };
  }

  /** From when on the device reports to a round that it takes part in: a moment that it drew, in milliseconds. */
  moment(round: number): number {
    const { rounds, delays } = this.#participation, delay = delays[rounds.indexOf(round)];
    if (delay === undefined) throw notDrawn(round);
    return this.series.opensAt(round) + 1000 * delay;
  }

  /** The device and the task of one round that it takes part in, at any moment. */
  async client(round: number): Promise<Client> {
    const { budget } = this.#options, { id, task } = this.series;
    if (!this.#participation.rounds.includes(round)) throw notDrawn(round);
    return Client.of(await task(round), { ...this.#options, budget: budget && { charge: (charge) => budget.charge({ ...charge, series: id }) } });
  }

  /** Stores a report to the open round, and resolves to its number; a Refusal if there is nothing to report now. */
  async report(value: Value, { progress, now = Date.now() }: { progress?: Progress; now?: number } = {}): Promise<number> {
    const { status, round } = this.turn(now);
    if (status === "cancelled") throw new Refusal("cancelled", `the series was cancelled from round ${round} on`);
    if (status === "skipped") throw notDrawn(round);
    if (status !== "open") throw new Refusal("not-open", "no round of the series is open now");
    const moment = this.moment(round);
    if (!(now >= moment)) throw new Refusal("not-open", `this device reports to round ${round} from ${new Date(moment).toISOString()} on, a moment that it drew`);
    await (await this.client(round)).report(value, progress ? { progress, now } : { now });
    return round;
  }

  /** Accepts a signed cancellation, durably; of several the one from the earliest round counts. */
  async cancel(content: Uint8Array): Promise<Cancellation> {
    const cancellation = await verifyCancellation(content, this.#author), { series, fromRound } = cancellation;
    if (series !== this.series.id) throw new Refusal("malformed", "the cancellation is about another series");
    this.#participation = await updated(this.#store, this.series, (before) => ({ ...before, cancelledFrom: Math.min(before.cancelledFrom ?? fromRound, fromRound) }));
    return cancellation;
  }

  /** Asks the shuffler whether the series was cancelled; a Refusal if it does not say so in a valid way. */
  async update(server: string, { signal }: { signal?: AbortSignal } = {}): Promise<void> {
    const address = `${serverUrl(server)}/v2/series/${this.series.id}`, limit = AbortSignal.timeout(REQUEST_MILLISECONDS);
    let status: number, content: Bytes;
    try {
      const answer = await fetch(address, { signal: signal ? AbortSignal.any([signal, limit]) : limit, redirect: "error", credentials: "omit", cache: "no-store", referrerPolicy: "no-referrer" });
      status = answer.status;
      content = await limited(answer, this.#signedBytes + MAX_CANCEL_BYTES);
    } catch (error) {
      throw new Refusal("unreachable", `the server does not answer: ${(error as Error).message}`);
    }
    if (status !== 200) throw new Refusal("refused", `the server answered ${status}`, { status });
    const cancellation = cancellationIn(content);
    if (cancellation !== null) await this.cancel(utf8(write(cancellation)));
  }
}

const notDrawn = (round: number) => new Refusal("not-drawn", `this device does not take part in round ${round} of the series`);

/** Changes the draw that is stored; it is made if there is none. */
async function updated(store: RecordStore, series: Series, change: (before: Participation) => Participation): Promise<Participation> {
  let after: Participation;
  await store.update(async (content) => toBytes((after = change(content ? await fromBytes(content, series) : drawn(series)))));
  return after!;
}

function cancellationIn(content: Uint8Array): Json {
  try {
    const { cancellation } = read(content) as JsonObject;
    if (cancellation !== undefined) return cancellation;
  } catch {
    // not canonical, or no object
  }
  throw new Refusal("refused", "the answer of the server is not about a series");
}

/** The bytes of an answer; a server can send one that never ends. */
async function limited(answer: Response, most: number): Promise<Bytes> {
  const reader = answer.body!.getReader(), content = new Uint8Array(most);
  for (let size = 0; ; ) {
    const { value, done } = await reader.read();
    if (done) return content.slice(0, size);
    if (size + value.length > most) {
      await reader.cancel();
      throw new Error("it is too long");
    }
    content.set(value, size);
    size += value.length;
  }
}
