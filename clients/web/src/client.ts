/** One device and one task: verify, randomize once, store, deliver the same bytes. */
import { fromBase64, type Bytes } from "./bytes.ts";
import { type Value } from "./domain.ts";
import { explain, type Language, type Sentence } from "./explain.ts";
import { IndexedDbOutbox, type Outbox, type State } from "./outbox.ts";
import { checkPolicy, type Policy } from "./policy.ts";
import { Refusal } from "./refusal.ts";
import { checkReport, sealedReport, type Progress } from "./report.ts";
import { deliver, type SendOptions } from "./sending.ts";
import { verifyTask, type Guarantee, type Task } from "./task.ts";

/** What one report costs, for a budget that the device keeps over several tasks. */
export interface Charge {
  readonly task: string;
  /** The id of the series that the task is a round of. */
  readonly series?: string;
  readonly population: string;
  /** The id of the author's key. */
  readonly author: string;
  readonly closes: Date;
  /** The time of the report, in milliseconds. */
  readonly now: number;
  readonly epsilon: number;
  readonly delta: number;
  readonly guarantee: Guarantee;
}

/** Called once before a report is stored. Throw to refuse: then nothing is stored or sent. */
export interface DeviceBudget {
  charge(charge: Charge): Promise<void> | void;
}

export interface ClientOptions {
  /** The author's public key, in URL-safe base64: pinned, part of the app, not downloaded beside the task. */
  readonly author: string;
  readonly policy?: Partial<Policy> | undefined;
  /** IndexedDB if missing. */
  readonly outbox?: Outbox | undefined;
  /** Ids of tasks that `shuffledp task verify` accepted when the app was built: for protocols whose guarantee this client cannot compute. */
  readonly pins?: readonly string[] | undefined;
  readonly budget?: DeviceBudget | undefined;
}

export class Client {
  readonly task: Task;
  readonly #outbox: Outbox;
  readonly #budget: DeviceBudget | undefined;

  private constructor(task: Task, outbox: Outbox, budget: DeviceBudget | undefined) {
    this.task = task;
    this.#outbox = outbox;
    this.#budget = budget;
  }

  /** Throws a Refusal unless the author signed the task, its guarantee holds and the policy allows it. */
  static async create(signedTask: Uint8Array, options: ClientOptions): Promise<Client> {
    if (!globalThis.crypto?.subtle) throw new Refusal("no-secure-context", "answers can be sealed only on a page that was loaded by https or from this machine");
    return Client.of(await verifyTask(signedTask, fromBase64(options.author, 32), options.pins), options);
  }

  /** The same for a task that was verified, alone or with its series. */
  static async of(task: Task, { policy, outbox, budget }: Omit<ClientOptions, "author" | "pins">): Promise<Client> {
    checkPolicy(task, policy);
    return new Client(task, outbox ?? (await IndexedDbOutbox.open()), budget);
  }

  get guarantee(): Guarantee {
    return this.task.guarantee;
  }

  async state(): Promise<State> {
    return (await this.#outbox.get(this.task.id)).state;
  }

  /** Why the report was refused, if it was. */
  async note(): Promise<string> {
    return (await this.#outbox.get(this.task.id)).note ?? "";
  }

  /** Randomizes and seals the value and stores the report durably; nothing is sent. At most once per task. */
  async report(value: Value, { progress, now = Date.now() }: { progress?: Progress; now?: number } = {}): Promise<void> {
    const { task } = this;
    await this.#checkUnreported();
    if (!(now >= +task.opens && now < +task.closes))
      throw new Refusal("not-open", `the round is open from ${task.opens.toISOString()} to ${task.closes.toISOString()}`);
    const report: Bytes = await sealedReport(task, value, progress);
    const { id, guarantee, population, author, closes } = task, { epsilon, delta } = guarantee, budget = this.#budget;
    const store = async (): Promise<void> => {
      await this.#checkUnreported();
      await budget?.charge({ task: id, population, author, closes, now, epsilon, delta, guarantee });
      if (!(await this.#outbox.add(id, report))) throw alreadyReported("pending"); // another tab was faster; this report was not sent
    };
    return budget ? this.#outbox.exclusively(id, store) : store(); // so that two tabs charge once
  }

  /** Delivers the stored report; resolves when the shuffler has stored it. A final refusal is recorded. */
  send(server: string, options: SendOptions = {}): Promise<"delivered"> {
    const { id } = this.task;
    return this.#outbox.exclusively(id, async () => {
      const { state, report, note } = await this.#outbox.get(id);
      if (state === "delivered") return state;
      if (state === "none") throw new Refusal("nothing-to-send", "there is no report yet");
      if (state !== "pending" || !report) throw new Refusal("refused", note || `the report is ${state}`, { final: true });
      checkReport(this.task, report);
      try {
        await deliver(server, this.task, report, options);
      } catch (error) {
        if (error instanceof Refusal && error.final) await this.#outbox.finish(id, error.status === 410 ? "closed" : "refused", error.message);
        throw error;
      }
      await this.#outbox.finish(id, "delivered", "");
      return "delivered";
    });
  }

  /** Sentences for people about what is sent and what it reveals, from the task alone. */
  explain(language: Language): Promise<Sentence[]> {
    return explain(this.task, language);
  }

  async #checkUnreported(): Promise<void> {
    const state = await this.state();
    if (state !== "none") throw alreadyReported(state);
  }
}

const alreadyReported = (state: State) => new Refusal("already-reported", `this device has reported to this task already (${state}); a second report would exceed the guarantee`);
