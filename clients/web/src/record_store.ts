/** Where a record of a device is, such as that of its budget: in a browser in IndexedDB. */
import { type Bytes } from "./bytes.ts";
import { Refusal } from "./refusal.ts";

export interface RecordStore {
  /**
   * Replaces the record by what `change` makes of it, as one step among all tabs and processes, durable when the promise resolves.
   * `change` gets null if there is no record; it may be called again if another tab was faster. If it throws, nothing changes.
   */
  update(change: (content: Uint8Array | null) => Promise<Bytes>): Promise<void>;
}

const STORE = "record", KEY = "budget";

interface Stored { readonly revision: number; readonly content: Bytes }

const unusable = (error: unknown): Refusal => new Refusal("no-storage", `this browser cannot store its record: ${(error as Error).message}`);

/** A revision number decides between tabs: IndexedDB runs one writing transaction at a time, and none lasts while hashes are computed. */
export class IndexedDbRecord implements RecordStore {
  readonly #database: IDBDatabase;

  private constructor(database: IDBDatabase) {
    this.#database = database;
  }

  static async open(name = "shuffledp budget"): Promise<IndexedDbRecord> {
    try {
      const request = indexedDB.open(name, 1);
      request.onupgradeneeded = () => request.result.createObjectStore(STORE);
      const database = await new Promise<IDBDatabase>((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
      });
      database.onversionchange = () => database.close();
      return new IndexedDbRecord(database);
    } catch (error) {
      throw unusable(error);
    }
  }

  async update(change: (content: Uint8Array | null) => Promise<Bytes>): Promise<void> {
    for (;;) {
      const stored = await this.#transaction("readonly", (_, found) => found), content = await change(stored?.content ?? null);
      const next = { revision: (stored?.revision ?? 0) + 1, content };
      const isReplaced = await this.#transaction("readwrite", (store, found) => {
        if (found?.revision !== stored?.revision) return false;
        store.put(next, KEY);
        return true;
      });
      if (isReplaced) return;
    }
  }

  /** What `work` returns for the stored record, once the transaction is complete. */
  #transaction<T>(mode: IDBTransactionMode, work: (store: IDBObjectStore, found: Stored | undefined) => T): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const transaction = this.#database.transaction(STORE, mode, { durability: "strict" }), store = transaction.objectStore(STORE), request = store.get(KEY) as IDBRequest<Stored | undefined>;
      let result: T;
      request.onsuccess = () => {
        try {
          result = work(store, request.result);
        } catch (error) {
          reject(error);
          transaction.abort();
        }
      };
      transaction.oncomplete = () => resolve(result);
      transaction.onabort = () => reject(transaction.error ?? new Error("the transaction was aborted"));
    }).catch((error: unknown) => {
      throw unusable(error);
    });
  }
}
