/** The public names of @shuffledp/client. */
export { Client, type Charge, type ClientOptions, type DeviceBudget } from "./client.ts";
export { type Domain, type Value } from "./domain.ts";
export { type Language, type Sentence } from "./explain.ts";
export { IndexedDbOutbox, type Entry, type FinalState, type Outbox, type State } from "./outbox.ts";
export { DEFAULT_POLICY, type Policy } from "./policy.ts";
export { PROTOCOLS } from "./protocols/registry.ts";
export { Refusal, type Reason } from "./refusal.ts";
export { type Progress } from "./report.ts";
export { type Patience, type SendOptions } from "./sending.ts";
export { type Guarantee, type Question, type Task } from "./task.ts";
