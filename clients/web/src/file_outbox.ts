/** The outbox of a device that runs Node: the files of the Python client, so that both can use one directory, one after the other. */
import { constants, type Stats } from "node:fs";
import { link, lstat, mkdir, open, readFile, rename, stat, unlink } from "node:fs/promises";
import { join } from "node:path";
import { type Bytes } from "./bytes.ts";
import { type Entry, type FinalState, type Outbox } from "./outbox.ts";
import { type RecordStore } from "./record_store.ts";
import { Refusal } from "./refusal.ts";

const FINAL_STATES: readonly FinalState[] = ["delivered", "closed", "refused"];
const LOCK_POLL_MILLISECONDS = 50;

const failed = (action: string, error: unknown) => new Refusal("no-storage", `${action}: ${(error as Error).message}`);
const isMissing = (error: unknown): boolean => (error as NodeJS.ErrnoException).code === "ENOENT";

export class FileOutbox implements Outbox {
  readonly #directory: string;

  private constructor(directory: string) {
    this.#directory = directory;
  }

  /** The directory is created with mode 0700; one that others can access is refused: deleting a report would allow a second one. */
  static async open(directory: string): Promise<FileOutbox> {
    let status: Stats;
    try {
      await mkdir(directory, { recursive: true, mode: 0o700 });
      status = await stat(directory);
    } catch (error) {
      throw failed("the directory cannot be created", error);
    }
    if (!status.isDirectory() || status.mode & 0o077 || status.uid !== process.geteuid?.())
      throw new Refusal("no-storage", `${directory} is not a directory of mode 0700 that belongs to this user: chmod 700 ${directory}`);
    return new FileOutbox(directory);
  }

  async get(task: string): Promise<Entry> {
    for (const state of FINAL_STATES) if (await this.#has(task, state)) return { state, note: await readFile(this.#file(task, state), "utf8") };
    try {
      const report: Bytes = new Uint8Array(await readFile(this.#file(task, "report")));
      await this.#sync(); // the last step of `add` may have failed
      return { state: "pending", report };
    } catch (error) {
      if (isMissing(error)) return { state: "none" };
      throw failed("the stored report cannot be read", error);
    }
  }

  async add(task: string, report: Bytes): Promise<boolean> {
    if ((await this.get(task)).state !== "none") return false;
    const temporary = await this.#written(task, report);
    try {
      await link(temporary, this.#file(task, "report")); // fails if another process was faster
      await this.#sync();
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
      throw failed("the report cannot be stored", error);
    } finally {
      await unlink(temporary);
    }
  }

  async finish(task: string, state: FinalState, note: string): Promise<void> {
    const temporary = await this.#written(task, new TextEncoder().encode(note));
    await rename(temporary, this.#file(task, state));
    await this.#sync();
    await unlink(this.#file(task, "report")).catch((error: unknown) => {
      if (!isMissing(error)) throw error;
    });
    await this.#sync();
  }

  /** Locks by a file that only one process can create; the file of a process that has ended is removed. */
  exclusively<T>(task: string, work: () => Promise<T>): Promise<T> {
    const path = this.#file(task, "sending");
    const turn = (turns.get(path) ?? Promise.resolve()).then(async () => {
      await this.#lock(task, path);
      try {
        return await work();
      } finally {
        await unlink(path);
      }
    });
    const over = turn.then(() => {}, () => {}).then(() => { if (turns.get(path) === over) turns.delete(path); });
    turns.set(path, over);
    return turn;
  }

  async #lock(task: string, path: string): Promise<void> {
    const own = await this.#written(task, new TextEncoder().encode(String(process.pid))); // linked when it is complete: a crash leaves no empty lock
    try {
      for (;;) {
        try {
          return await link(own, path);
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw failed("the report cannot be locked", error);
          const holder = Number(await readFile(path, "utf8").catch(() => ""));
          if (holder > 0 && !isHeld(holder)) await unlink(path).catch(() => {});
          else await new Promise((resolve) => setTimeout(resolve, LOCK_POLL_MILLISECONDS));
        }
      }
    } finally {
      await unlink(own);
    }
  }

  /** A file of this directory that is replaced as a whole, such as the record of the budget. */
  record(name: string): RecordStore {
    return {
      update: (change) => this.exclusively(name, async () => {
        const path = join(this.#directory, name), next = await change(await contentOf(path));
        try {
          await rename(await this.#written(name, next), path);
          await this.#sync();
        } catch (error) {
          throw failed(`${path} cannot be written`, error);
        }
      }),
    };
  }

  #file(task: string, suffix: string): string {
    return join(this.#directory, `${task}.${suffix}`);
  }

  async #has(task: string, suffix: string): Promise<boolean> {
    try {
      await lstat(this.#file(task, suffix));
      return true;
    } catch (error) {
      if (isMissing(error)) return false;
      throw failed("the directory cannot be read", error); // the file might exist
    }
  }

  async #written(task: string, content: Uint8Array): Promise<string> {
    const path = this.#file(task, `${process.pid}-${crypto.randomUUID()}.new`);
    try {
      const file = await open(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, 0o600);
      await file.writeFile(content);
      await file.sync();
      await file.close();
    } catch (error) {
      throw failed("the report cannot be stored", error);
    }
    return path;
  }

  async #sync(): Promise<void> {
    const directory = await open(this.#directory);
    await directory.sync();
    await directory.close();
  }
}

/** The content of a record, or null if there is none. */
async function contentOf(path: string): Promise<Uint8Array | null> {
  try {
    return new Uint8Array(await readFile(path));
  } catch (error) {
    if (isMissing(error)) return null;
    throw failed(`${path} cannot be read`, error);
  }
}

/** When the last work of this process with a lock is over: they take turns before they ask for the file. */
const turns = new Map<string, Promise<void>>();

/** Whether another process holds the lock. One that ended may have had this one's id: in a container all have the same, and here only one work at a time gets so far. */
function isHeld(holder: number): boolean {
  if (holder === process.pid) return false;
  try {
    process.kill(holder, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
