/** Texts of the page's language, with numbers and times in its notation. */
import type { Facts, Settings } from "./settings.ts";

const DIGITS = 3;

export class Wording {
  private readonly settings: Settings;
  private readonly numbers: Intl.NumberFormat;
  private readonly times: Intl.DateTimeFormat;

  constructor(settings: Settings) {
    this.settings = settings;
    this.numbers = new Intl.NumberFormat(settings.language, { maximumSignificantDigits: 15 });
    this.times = new Intl.DateTimeFormat(settings.language, { dateStyle: "long", timeStyle: "short" });
  }

  /** The text with this name, with `{name}` replaced by the given values. */
  text(name: string, values: Readonly<Record<string, string>> = {}): string {
    const text = this.settings.texts[name];
    if (text === undefined) throw new Error(`no text ${name}`);
    return text.replace(/\{(\w+)\}/g, (_, key: string) => values[key] ?? "");
  }

  number(value: number): string {
    return this.numbers.format(value);
  }

  time(milliseconds: number): string {
    return this.times.format(milliseconds);
  }

  /** The facts behind the sentences, as pairs of name and value. */
  factList(facts: Facts): [string, string][] {
    const { epsilon, delta, localEpsilon } = facts;
    return [
      [this.text("fact_times"), this.text("fact_times_value", { opens: this.time(facts.opens), closes: this.time(facts.closes) })],
      [this.text("fact_privacy"), this.text("fact_privacy_value", { epsilon: this.number(epsilon), delta: this.small(delta) })],
      [
        this.text("fact_collusion"),
        localEpsilon === null ? this.text("fact_collusion_nothing") : this.text("fact_collusion_value", { epsilon: this.number(roundUp(localEpsilon)) }),
      ],
      [this.text("fact_protocol"), facts.protocol],
      [this.text("fact_report"), facts.sizes.map(({ messages, bytes }) => this.text("fact_report_value", { messages: this.number(messages), bytes: this.number(bytes) })).join(" / ")],
      [this.text("fact_task"), this.settings.task],
    ];
  }

  /** A small number as a power of ten: 10⁻⁶, or 3.3 · 10⁻⁷. */
  private small(value: number): string {
    const [digits, power] = value.toExponential().split("e-");
    if (power === undefined || value >= 1e-3) return this.number(value);
    const raised = `10⁻${power.replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(digit)]!)}`;
    return digits === "1" ? raised : `${this.number(Number(digits))} · ${raised}`;
  }
}

/** A name of others in its own direction, as characters: it cannot reorder the sentence around it. */
export function isolate(name: string): string {
  return `\u2068${name}\u2069`;
}

/** Few digits, and not below the value: what is left after collusion must not look smaller than it is. */
function roundUp(value: number): number {
  const near = Number(value.toPrecision(DIGITS));
  return near >= value ? near : Number((value + 10 ** (Math.floor(Math.log10(value)) - DIGITS + 1)).toPrecision(DIGITS));
}
