/** The record of a device that runs Node: the file of the Python client, so that both can use one directory, one after the other. */
import { constants } from "node:fs";
import { open, readFile, rename } from "node:fs/promises";
import { join } from "node:path";
import { type RecordStore } from "./budget/store.ts";
import { type Bytes } from "./bytes.ts";
import { FileOutbox } from "./file_outbox.ts";
import { Refusal } from "./refusal.ts";

export class FileRecord implements RecordStore {
  readonly #directory: string;
  readonly #outbox: FileOutbox;

  private constructor(directory: string, outbox: FileOutbox) {
    this.#directory = directory;
    this.#outbox = outbox;
  }

  /** In the directory of a FileOutbox, which must have mode 0700. */
  static async open(directory: string): Promise<FileRecord> {
    return new FileRecord(directory, await FileOutbox.open(directory));
  }

  update(change: (content: Uint8Array | null) => Promise<Bytes>): Promise<void> {
    return this.#outbox.exclusively("budget", async () => {
      const path = join(this.#directory, "budget"), temporary = `${path}.new`, next = await change(await this.#content(path));
      try {
        const file = await open(temporary, constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_NOFOLLOW, 0o600);
        await file.writeFile(next);
        await file.sync();
        await file.close();
        await rename(temporary, path);
        const directory = await open(this.#directory);
        await directory.sync();
        await directory.close();
      } catch (error) {
        throw new Refusal("no-storage", `the report cannot be recorded in ${path}: ${(error as Error).message}`);
      }
    });
  }

  async #content(path: string): Promise<Uint8Array | null> {
    try {
      return new Uint8Array(await readFile(path));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
      throw new Refusal("budget", `the record of what this device has spent cannot be read: ${(error as Error).message}`);
    }
  }
}
