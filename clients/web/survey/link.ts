/** The page's side of the worker: calls as promises, progress as a callback. */
import type { Calls, Response } from "./settings.ts";

/** Why a call failed: a reason of the client, or `unloaded` or `fault` of the worker itself. */
export class Failure extends Error {
  readonly reason: string;
  /** The name of the shuffler's problem, if it sent one. */
  readonly problem: string;

  constructor(reason: string, message = "", problem = "") {
    super(message);
    this.reason = reason;
    this.problem = problem;
  }
}

interface Waiting {
  resolve(value: unknown): void;
  reject(error: Failure): void;
}

export class WorkerLink {
  /** Called while a report is sealed. */
  onprogress: (done: number, total: number) => void = () => {};
  private readonly worker: Worker;
  private readonly waiting = new Map<number, Waiting>();
  private next = 0;

  constructor() {
    this.worker = new Worker(SCRIPT as unknown as string, { type: "module" });
    this.worker.onmessage = (event: MessageEvent<Response>) => this.receive(event.data);
    this.worker.onerror = () => {
      for (const call of this.waiting.values()) call.reject(new Failure("fault", "worker failed"));
      this.waiting.clear();
    };
  }

  stop(): void {
    this.worker.terminate();
  }

  call<K extends keyof Calls>(call: K, values: Calls[K]["arguments"]): Promise<Calls[K]["result"]> {
    const id = this.next++;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve: resolve as (value: unknown) => void, reject });
      this.worker.postMessage({ id, call, arguments: values });
    });
  }

  private receive(response: Response): void {
    if ("total" in response) return this.onprogress(response.done, response.total);
    const call = this.waiting.get(response.id);
    this.waiting.delete(response.id);
    if ("result" in response) call?.resolve(response.result);
    else call?.reject(new Failure(response.reason, response.message, response.problem));
  }
}

interface TypePolicy {
  createScriptURL(url: string): object;
}
interface TypePolicies {
  createPolicy(name: string, rules: { createScriptURL(url: string): string }): TypePolicy;
}

/** The URL of the worker, which the policy of the page lets through by name. */
const URL = SERIES ? "survey-series-worker.js" : "survey-worker.js", types = (globalThis as { trustedTypes?: TypePolicies }).trustedTypes;
const SCRIPT = types ? types.createPolicy("survey", { createScriptURL: () => URL }).createScriptURL(URL) : URL;
