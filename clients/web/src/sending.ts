/** Sending of a report over HTTP: the same bytes at every attempt, with exponential backoff. */
import { concat, hex, sha256, utf8, type Bytes } from "./bytes.ts";
import { Refusal } from "./refusal.ts";
import { hmac } from "./sealing.ts";
import { type Task } from "./task.ts";

const RETRY_STATUSES = [408, 425, 429, 500, 502, 503, 504], FINAL_STATUSES = [409, 410, 413, 422];
const PROBLEM = "urn:shuffledp:problem:";
const LONGEST_ANSWER = 1 << 16, LONGEST_RETRY_SECONDS = 86_400, REQUEST_MILLISECONDS = 300_000;

/** Number of attempts, and the pauses between them in seconds. */
export interface Patience {
  readonly attempts: number;
  readonly firstPause: number;
  readonly longestPause: number;
  /** If the server asks for a longer pause than this, delivery is given up until the next call. */
  readonly longestWait: number;
}

const PATIENCE: Patience = { attempts: 12, firstPause: 0.5, longestPause: 60, longestWait: 600 };

export interface SendOptions {
  /** The token of an enrolled device. */
  readonly token?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly patience?: Partial<Patience> | undefined;
  /** Called before each pause, with its length in seconds and why the attempt failed. */
  readonly onRetry?: ((seconds: number, failure: string) => void) | undefined;
}

/** https, or plain HTTP to this machine; without a query, a fragment or a password. */
export function serverUrl(server: string): string {
  let url: URL;
  try {
    url = new URL(server);
  } catch {
    throw new Refusal("unreachable", "the server's address is not a URL");
  }
  const isLoopback = url.hostname === "localhost" || url.hostname === "[::1]" || /^127(\.[0-9]+){3}$/.test(url.hostname);
  if (url.username || url.password || url.search || url.hash || !(url.protocol === "https:" || (url.protocol === "http:" && isLoopback)))
    throw new Refusal("unreachable", `${url.origin} is not an https address`);
  return url.href.replace(/\/+$/, "");
}

/** The header for a token: in version 1 the token itself, in version 2 a proof for this report, which is of no use with another. */
export async function authorization(token: string, { version }: Pick<Task, "version">, report: Bytes): Promise<string> {
  if (!/^[A-Za-z0-9._~+/=-]{16,512}$/.test(token)) throw new Refusal("domain", "not a token");
  if (version === 1) return `Bearer ${token}`;
  const key = await sha256(utf8(token)), id = await sha256(concat(utf8("shuffledp token id\n"), key));
  return `SDP-Token id=${hex(id).slice(0, 32)}, mac=${hex(await hmac(key, concat(utf8("shuffledp token\n"), report)))}`;
}

/** Sends until the server has stored the report durably; throws `refused`, `unreachable` or `aborted`. */
export async function deliver(server: string, task: Pick<Task, "id" | "version">, report: Bytes, { token, signal, patience, onRetry }: SendOptions): Promise<void> {
  const { attempts, firstPause, longestPause, longestWait } = { ...PATIENCE, ...patience }, address = `${serverUrl(server)}/v${task.version}/tasks/${task.id}/reports`;
  const headers: { [name: string]: string } = { "Content-Type": "application/octet-stream" };
  if (token !== undefined) headers["Authorization"] = await authorization(token, task, report);
  let failure = "";
  for (let attempt = 0; attempt < attempts; attempt++) {
    let requested = 0;
    const answer = await request(address, report, headers, signal);
    if (typeof answer === "string") failure = answer;
    else if (answer.status === 200 || answer.status === 201) return;
    else if (!RETRY_STATUSES.includes(answer.status)) throw await refusal(answer);
    else {
      failure = `the server answered ${answer.status}`;
      requested = retryAfter(answer.headers.get("Retry-After"));
      if (requested > longestWait) throw new Refusal("unreachable", `the server asks for a retry in ${requested} s`, { status: answer.status });
    }
    if (attempt + 1 === attempts) break;
    const limit = Math.min(longestPause, firstPause * 2 ** attempt), random = crypto.getRandomValues(new Uint32Array(1))[0]! / 2 ** 32;
    const seconds = requested + limit * (0.5 + random / 2);
    onRetry?.(seconds, failure);
    await pause(1000 * seconds, signal);
  }
  throw new Refusal("unreachable", `the report could not be delivered after ${attempts} attempts: ${failure}`);
}

/** The answer, or why there was none. An answer that a browser may not read counts as none. */
async function request(address: string, body: Bytes, headers: { [name: string]: string }, signal: AbortSignal | undefined): Promise<Response | string> {
  const limit = AbortSignal.timeout(REQUEST_MILLISECONDS);
  try {
    return await fetch(address, {
      method: "POST", body, headers, signal: signal ? AbortSignal.any([signal, limit]) : limit,
      redirect: "error", credentials: "omit", cache: "no-store", referrerPolicy: "no-referrer",
    });
  } catch (error) {
    if (signal?.aborted) throw aborted();
    return (error as Error).message;
  }
}

const aborted = () => new Refusal("aborted", "sending was stopped; the report is stored");

/** Final only with a problem document of a shuffler: a proxy may answer anything. */
async function refusal(answer: Response): Promise<Refusal> {
  let problem: string | undefined;
  try {
    const content = await beginning(answer);
    if (answer.headers.get("Content-Type")?.startsWith("application/problem+json")) {
      const type: unknown = (JSON.parse(content) as { type?: unknown } | null)?.type;
      if (typeof type === "string" && /^[a-z-]{1,64}$/.test(type.slice(PROBLEM.length)) && type.startsWith(PROBLEM)) problem = type.slice(PROBLEM.length);
    }
  } catch {
    // no problem document
  }
  const final = FINAL_STATUSES.includes(answer.status) && problem !== undefined;
  return new Refusal("refused", `the server refused the report (${[answer.status, problem].join(" ").trim()})`, { status: answer.status, problem, final });
}

/** The first bytes of an answer; a server can send one that never ends. */
async function beginning(answer: Response): Promise<string> {
  const decoder = new TextDecoder(), reader = answer.body!.getReader();
  let text = "";
  while (text.length <= LONGEST_ANSWER) {
    const { value, done } = await reader.read();
    if (done) return text;
    text += decoder.decode(value, { stream: true });
  }
  await reader.cancel();
  return text;
}

/** Seconds, from a number of them or from a date. */
function retryAfter(value: string | null): number {
  if (value === null || value.length > 64) return 0;
  const seconds = /^[0-9]+$/.test(value) ? Number(value) : (Date.parse(value) - Date.now()) / 1000;
  return seconds > 0 ? Math.min(seconds, LONGEST_RETRY_SECONDS) : 0;
}

function pause(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(aborted());
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop, { once: true });
  });
}
