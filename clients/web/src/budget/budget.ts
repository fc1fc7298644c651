/** The budget of a device over all its reports, in total and per author: charged durably before a report is stored. */
import { utf8 } from "../bytes.ts";
import { type Charge, type DeviceBudget } from "../client.ts";
import { Refusal } from "../refusal.ts";
import { sampled, Total, type Release } from "./curves.ts";
import { emptyRecord, fromBytes, MAX_BYTES, MAX_ENTRIES, tag, toBytes, type Entry, type Record } from "./record.ts";
import { IndexedDbRecord, type RecordStore } from "../record_store.ts";

/** Limits on the tasks of one author within the window. */
export interface AuthorLimits {
  readonly epsilon?: number | undefined;
  /** Series that the device takes part in; a task that belongs to none counts as one. */
  readonly series?: number | undefined;
}

/** Limits on all reports of a device within a window of days. */
export interface Limits {
  readonly epsilon: number;
  readonly delta: number;
  readonly windowDays: number;
  /** Further limits, by the id of the author's key. */
  readonly authors: { readonly [keyId: string]: AuthorLimits };
}

const DEFAULT_LIMITS: Limits = { epsilon: 8, delta: 1e-5, windowDays: 365, authors: {} };
const MAX_EPSILON = 700, MAX_WINDOW_DAYS = 36_500, LAST_DAY = "9999-12-31", DAY_MILLISECONDS = 86_400_000;

/** A report exceeds the budget. */
export class BudgetRefusal extends Refusal {
  /** The day from which it is possible again; null if it is never. */
  readonly possible: string | null;
  readonly used: number;
  readonly limit: number;

  constructor(sentence: string, possible: string, used: number, limit: number) {
    super("budget", sentence + (possible === LAST_DAY ? "" : ` Possible again on ${possible}.`));
    this.possible = possible === LAST_DAY ? null : possible;
    this.used = used;
    this.limit = limit;
  }
}

export class Budget implements DeviceBudget {
  readonly limits: Limits;
  readonly #store: RecordStore;

  private constructor(limits: Limits, store: RecordStore) {
    this.limits = limits;
    this.#store = store;
  }

  /** In a browser the record is in IndexedDB, shared by all tabs of an origin. */
  static async open(limits: Partial<Limits> = {}, store?: RecordStore): Promise<Budget> {
    const all = { ...DEFAULT_LIMITS, ...limits };
    checkLimits(all);
    return new Budget(all, store ?? (await IndexedDbRecord.open()));
  }

  /** Records a report durably; if it exceeds the budget, records nothing and throws. What is charged is never refunded. */
  async charge(charge: Charge): Promise<void> {
    const { guarantee, epsilon, delta } = charge, release = sampled((at) => guarantee.deltaAt(at), epsilon, delta);
    await this.#store.update(async (content) => {
      const record = await charged(content ? await fromBytes(content) : emptyRecord(), { ...charge, release }, this.limits), bytes = await toBytes(record);
      if (record.entries.length > MAX_ENTRIES || bytes.length > MAX_BYTES) throw new Refusal("budget", "the record of this device cannot hold more reports");
      return bytes;
    });
  }
}

/**
 * The record with one more report, on its day and without entries whose window has passed; a BudgetRefusal if it exceeds a limit.
 * Days never run back, and a task advances them at most to the day on which it closes: a clock that is wrong does not free the budget.
 */
export async function charged(before: Record, report: Pick<Charge, "task" | "series" | "author" | "closes" | "now"> & { readonly release: Release }, limits: Limits): Promise<Record> {
  const { task, series = task, author, closes, now, release } = report, day = later(before.day, earlier(dayOf(now), dayOf(+closes))), record = since(before, day, limits.windowDays);
  const entry = { day, author: await tag(record, "author", utf8(author)), series: await tag(record, "series", unhex(series)), release };
  const refusals = refusalsOf(record.entries, entry, limits, Object.hasOwn(limits.authors, author) ? limits.authors[author]! : {});
  const last = refusals.reduce<BudgetRefusal | null>((a, b) => (a && (a.possible ?? LAST_DAY) >= (b.possible ?? LAST_DAY) ? a : b), null);
  if (last) throw last;
  return { ...record, entries: [...record.entries, entry] };
}

function checkLimits({ epsilon, delta, windowDays, authors }: Limits): void {
  const isEpsilon = (x: unknown) => typeof x === "number" && x > 0 && x <= MAX_EPSILON;
  if (!isEpsilon(epsilon)) throw new RangeError(`epsilon must be a number above 0, at most ${MAX_EPSILON}, not ${epsilon}`);
  if (!(typeof delta === "number" && delta >= 0 && delta < 1)) throw new RangeError(`delta must be a number from 0 to below 1, not ${delta}`);
  if (!(Number.isInteger(windowDays) && windowDays >= 1 && windowDays <= MAX_WINDOW_DAYS)) throw new RangeError(`windowDays must be an integer from 1 to ${MAX_WINDOW_DAYS}, not ${windowDays}`);
  for (const [author, limits] of Object.entries(authors)) {
    if (!/^[0-9a-f]{16}$/.test(author)) throw new RangeError(`${author} is not the id of a key, which has 16 hexadecimal digits`);
    if (limits.epsilon !== undefined && !isEpsilon(limits.epsilon)) throw new RangeError(`epsilon of ${author} must be a number above 0, not ${limits.epsilon}`);
    if (limits.series !== undefined && !(Number.isInteger(limits.series) && limits.series >= 1)) throw new RangeError(`series of ${author} must be an integer from 1 on, not ${limits.series}`);
  }
}

const unhex = (text: string): Uint8Array => Uint8Array.from(text.match(/../g) ?? [], (byte) => parseInt(byte, 16));
const later = (a: string, b: string): string => (a > b ? a : b);
const earlier = (a: string, b: string): string => (a < b ? a : b);
const dayOf = (milliseconds: number): string => new Date(milliseconds).toISOString().slice(0, 10);

/** The first day on which an entry no longer counts. */
function expiry({ day }: Entry, windowDays: number): string {
  const end = Date.parse(day) + windowDays * DAY_MILLISECONDS;
  return end > Date.parse(LAST_DAY) ? LAST_DAY : dayOf(end);
}

/** The record on a day: without the entries whose window has passed. */
const since = (record: Record, day: string, windowDays: number): Record => ({ ...record, day, entries: record.entries.filter((entry) => expiry(entry, windowDays) > day) });

/** The limits that the entries of the window exceed together with a new one. */
function refusalsOf(entries: readonly Entry[], entry: Entry, limits: Limits, ofAuthor: AuthorLimits): BudgetRefusal[] {
  const own = entries.filter(({ author }) => author === entry.author), found = [epsilonRefusal("This device", entries, entry, limits.epsilon, limits)];
  if (ofAuthor.epsilon !== undefined) found.push(epsilonRefusal("This author", own, entry, ofAuthor.epsilon, limits));
  if (ofAuthor.series !== undefined) {
    const latest = new Map(own.filter(({ series }) => series !== entry.series).map((each) => [each.series, each]));
    const others = [...latest.values()].sort((a, b) => (a.day < b.day ? 1 : a.day > b.day ? -1 : 0)), freed = others[ofAuthor.series - 1];
    if (freed) found.push(new BudgetRefusal(`This author has used ${others.length} of ${ofAuthor.series} series in ${limits.windowDays} days.`, expiry(freed, limits.windowDays), others.length, ofAuthor.series));
  }
  return found.filter((refusal) => refusal !== null);
}

/** Entries are added from the newest to the oldest: the one that makes the total too large, and all older ones, must expire first. */
function epsilonRefusal(name: string, entries: readonly Entry[], { release }: Entry, epsilon: number, { delta, windowDays }: Limits): BudgetRefusal | null {
  const epsilonOf = (releases: readonly Release[]) => Total.of(releases).epsilonAt(delta);
  let total = Total.of([release]);
  if (!total.isWithin(epsilon, delta)) return new BudgetRefusal(`${name} may use ${epsilon} in ${windowDays} days; ${needs(total.epsilonAt(delta), delta, "this task alone")}`, LAST_DAY, 0, epsilon);
  for (const entry of [...entries].reverse()) {
    total = total.followedBy(entry.release);
    if (total.isWithin(epsilon, delta)) continue;
    const before = entries.map((each) => each.release), used = epsilonOf(before), together = epsilonOf([...before, release]);
    const shown = Number.isFinite(used) ? rounded(used) : "more than all";
    return new BudgetRefusal(`${name} has used ${shown} of ${epsilon} in ${windowDays} days; ${needs(together - used, delta, "this")}`, expiry(entry, windowDays), used, epsilon);
  }
  return null;
}

const rounded = (x: number): string => String(Number(x.toPrecision(4)));
const needs = (epsilon: number, delta: number, task: string): string =>
  Number.isFinite(epsilon) ? `${task} needs ${rounded(epsilon)}.` : `with ${task} no epsilon would hold at delta = ${delta}.`;
