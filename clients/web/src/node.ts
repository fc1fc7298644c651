/** The public names for Node: those of browsers, and an outbox and a record of the budget in files. */
export { FileOutbox } from "./file_outbox.ts";
export { FileRecord } from "./file_record.ts";
export * from "./index.ts";
