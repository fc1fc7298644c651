/** The public names for Node: those of browsers, and an outbox in files. */
export { FileOutbox } from "./file_outbox.ts";
export * from "./index.ts";
