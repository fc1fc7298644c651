/** What `shuffledp survey build` wrote into the page: the pinned task and author, the shuffler, texts of one language. */
import type { Policy, State, Value } from "../src/index.ts";
import type { Turn } from "../src/series/index.ts";

declare global {
  /** Whether this is built for the rounds of a series; set by build.mjs. */
  const SERIES: boolean;
}

export interface Settings {
  /** The id of the task, or of the series. */
  readonly task: string;
  readonly author: string;
  readonly server: string;
  readonly asker: string;
  readonly language: "en" | "de";
  readonly tokens: boolean;
  readonly kiosk: boolean;
  /** The limits that are not the defaults of the client. */
  readonly policy: Partial<Policy>;
  readonly texts: Readonly<Record<string, string>>;
}

/** The facts of a verified task that the page shows, as the worker sends them. */
export interface Facts {
  readonly name: string;
  readonly description: string;
  /** Names of the answers; null if the answer is a number, a string, or yes or no. */
  readonly categories: readonly string[] | null;
  /** Free text; null if the answer is not a string. */
  readonly strings: { readonly alphabet: string | null; readonly maxLength: number; readonly other: boolean } | null;
  /** Bounds of a number; null if the answer is not a number. */
  readonly interval: { readonly lower: number; readonly upper: number; readonly whole: boolean } | null;
  readonly protocol: string;
  readonly epsilon: number;
  readonly delta: number;
  readonly minimumUsers: number;
  /** Epsilon if the shuffler and the analyzer collude; null if there is no guarantee. */
  readonly localEpsilon: number | null;
  readonly opens: number;
  readonly closes: number;
  /** Of a report; two if chance decides who sends the longer one. */
  readonly sizes: readonly { readonly messages: number; readonly bytes: number }[];
  /** What is sent and what it reveals, in the words of the client. */
  readonly sentences: readonly string[];
  /** Of a series: what this device may do now, and the times of all rounds. */
  readonly turn?: Turn & { readonly rounds: number; readonly perDevice: number; readonly firstOpens: number; readonly period: number; readonly open: number };
}

/** What the page asks of the worker, and what it gets. */
export interface Calls {
  check: { arguments: { settings: Settings; person: string }; result: { facts: Facts; state: State; note: string } };
  state: { arguments: Record<string, never>; result: { state: State; note: string } };
  /** What a string is counted as after normalization; null if it is outside the domain. */
  counted: { arguments: { text: string }; result: { counted: string | null } };
  answer: { arguments: { value: Value }; result: Record<string, never> };
  send: { arguments: { token: string | null }; result: { state: State; note: string } };
}

export type Request = { [K in keyof Calls]: { id: number; call: K; arguments: Calls[K]["arguments"] } }[keyof Calls];
export type Response =
  | { id: number; result: unknown }
  | { id: number; reason: string; problem: string; message: string }
  | { id: number; done: number; total: number };
