/** The outbox of a device: a sealed report until it is delivered, then only its final state. The value is never stored. */
import { type Bytes } from "./bytes.ts";
import { Refusal } from "./refusal.ts";

export type FinalState = "delivered" | "closed" | "refused";
/** `pending`: sealed and stored, and perhaps sent. `closed`: the round is over. `refused`: the server will never accept it. */
export type State = "none" | "pending" | FinalState;

export interface Entry {
  readonly state: State;
  /** The sealed report; only of `pending`. */
  readonly report?: Bytes;
  /** Why it was refused. */
  readonly note?: string;
}

/** Implementations must be durable when a promise resolves: a report that may have been sent is never drawn again. */
export interface Outbox {
  get(task: string): Promise<Entry>;
  /** Stores a report; false if there is an entry for the task already, which then stays as it is. */
  add(task: string, report: Bytes): Promise<boolean>;
  /** Records the final state and forgets the report. */
  finish(task: string, state: FinalState, note: string): Promise<void>;
  /** Runs `work` while no other tab or process does so for this task. */
  exclusively<T>(task: string, work: () => Promise<T>): Promise<T>;
}

const STORE = "reports";

/** In the browser: IndexedDB with strict durability, one sender at a time by the Web Locks API. */
export class IndexedDbOutbox implements Outbox {
  readonly #database: IDBDatabase;

  private constructor(database: IDBDatabase) {
    this.#database = database;
  }

  static async open(name = "shuffledp"): Promise<IndexedDbOutbox> {
    try {
      navigator.storage?.persist?.().catch(() => {}); // a request that the browser may decline; not awaited, since some ask the person first
      const request = indexedDB.open(name, 1);
      request.onupgradeneeded = () => request.result.createObjectStore(STORE);
      const database = await settled(request);
      database.onversionchange = () => database.close();
      if (!navigator.locks) throw new Error("no Web Locks");
      return new IndexedDbOutbox(database);
    } catch (error) {
      // without storage a reload would draw a second report
      throw unusable(error);
    }
  }

  async get(task: string): Promise<Entry> {
    try {
      return ((await settled(this.#database.transaction(STORE).objectStore(STORE).get(task))) as Entry | undefined) ?? { state: "none" };
    } catch (error) {
      throw unusable(error); // what cannot be read may be a report
    }
  }

  async add(task: string, report: Bytes): Promise<boolean> {
    try {
      await this.#write((store) => store.add({ state: "pending", report } satisfies Entry, task));
      return true;
    } catch (error) {
      if ((error as DOMException).name === "ConstraintError") return false;
      throw unusable(error);
    }
  }

  async finish(task: string, state: FinalState, note: string): Promise<void> {
    try {
      await this.#write((store) => store.put({ state, note } satisfies Entry, task));
    } catch (error) {
      throw unusable(error); // the report stays pending: to send it again is harmless
    }
  }

  exclusively<T>(task: string, work: () => Promise<T>): Promise<T> {
    return navigator.locks.request(`shuffledp ${task}`, work) as Promise<T>;
  }

  #write(change: (store: IDBObjectStore) => IDBRequest): Promise<void> {
    return new Promise((resolve, reject) => {
      const transaction = this.#database.transaction(STORE, "readwrite", { durability: "strict" });
      change(transaction.objectStore(STORE));
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error ?? new Error("the transaction was aborted"));
    });
  }
}

const unusable = (error: unknown): Refusal => new Refusal("no-storage", `this browser cannot store a report: ${(error as Error).message}`);

const settled = <T>(request: IDBRequest<T>): Promise<T> =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
