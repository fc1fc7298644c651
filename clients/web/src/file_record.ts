/** The record of a device that runs Node: the file of the Python client, so that both can use one directory, one after the other. */
import { FileOutbox } from "./file_outbox.ts";
import { type RecordStore } from "./record_store.ts";

export class FileRecord implements RecordStore {
  readonly update: RecordStore["update"];

  private constructor(store: RecordStore) {
    this.update = store.update;
  }

  /** In the directory of a FileOutbox, which must have mode 0700. */
  static async open(directory: string): Promise<FileRecord> {
    return new FileRecord((await FileOutbox.open(directory)).record("budget"));
  }
}
