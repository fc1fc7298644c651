/** Sentences for people about what is sent and what it reveals; every number is rounded so that the sentence stays true. */
import { type Task } from "./task.ts";
import type english from "../texts/en.ts";

export type Language = "en" | "de";
/** `topic` says which sentence it is, in every language the same. */
export interface Sentence { readonly topic: "sent" | "result" | "trust" | "participation" | "once" | "checked"; readonly text: string }

type Key = keyof typeof english;
/** Sentences of a protocol that replace those of all; what carriers send, and who is trusted with the noise, if not the users. */
export type OwnTexts = { readonly [key in Key | "more" | "trust" | "trust_chain"]?: string };
/** Loaded when they are needed. */
const TEXTS: { readonly [language in Language]: () => Promise<{ readonly default: { readonly [key in Key]: string } }> } = {
  en: () => import("../texts/en.ts"),
  de: () => import("../texts/de.ts"),
};
const DIGITS = 3;
/** A larger factor says nothing to people: they are told that their answer can be learned. */
const LARGEST_FACTOR = 1e6;
/** Less probable is nothing that people can imagine: the sentence stays true with this. */
const LARGEST_ODDS = 1e12;

export async function explain(task: Task, language: Language): Promise<Sentence[]> {
  const { guarantee } = task, own = task.protocol.texts?.[language], texts: { readonly [key in Key]: string } & OwnTexts = { ...(await TEXTS[language]()).default, ...own };
  const others = task.messagesPerReport - 1, trust = task.roundKeys.length > 1 ? "trust_chain" : "trust";
  const write = (key: Key | keyof OwnTexts, numbers: { [name: string]: number } = {}) => texts[key]!.replace(/\{(\w+)\}/g, (_, name: string) => numbers[name]!.toLocaleString(language));
  const factor = roundedUp(Math.exp(guarantee.epsilon)), alone = roundedUp(Math.exp(guarantee.localEpsilon)), odds = roundedDown(Math.min(LARGEST_ODDS, 1 / guarantee.delta)), users = guarantee.honestUsers;
  const sent = Number.isFinite(guarantee.localEpsilon)
    ? write(alone > LARGEST_FACTOR ? "sent_random_little" : "sent_random", { factor: alone })
    : write(task.question === "strings" ? "sent_code" : others ? "sent_clear" : "sent_clear_one", { others });
  return [
    { topic: "sent", text: task.carriers ? `${sent} ${write("more", { others: task.carriers.messagesPerReport - 1 })}` : sent },
    { topic: "result", text: guarantee.local ? write("result_local", { factor: alone }) : write("result", { factor, odds, users }) },
    ...(texts[trust] ? [{ topic: "trust", text: texts[trust] } as const] : []),
    { topic: "participation", text: write("participation") },
    { topic: "once", text: write("once") },
    { topic: "checked", text: write(guarantee.how) },
  ];
}

/** At most `DIGITS` digits, not below x but for the rounding of doubles. */
function roundedUp(x: number): number {
  const unit = 10 ** (Math.floor(Math.log10(x)) - DIGITS + 1);
  return Number((Math.ceil((x / unit) * (1 - 1e-12)) * unit).toPrecision(DIGITS));
}

function roundedDown(x: number): number {
  const unit = 10 ** (Math.floor(Math.log10(x) + 1e-12) - DIGITS + 1);
  return Number((Math.floor((x / unit) * (1 + 1e-12)) * unit).toPrecision(DIGITS));
}
