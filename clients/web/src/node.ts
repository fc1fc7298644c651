/** The public names for Node. */
export * from "./index.ts";
