/** The one error of this client: why a task, a value or a report was refused. */

/** A reason of the test vectors (vectors/README.md), or one of the client's own. */
export type Reason =
  | "not-canonical" | "malformed" | "unknown-author" | "bad-signature" | "version" | "inconsistent" | "bad-guarantee"
  | "wrong-size" | "outside-domain"
  | "unsupported" | "unsupported-protocol" | "policy" | "budget" | "domain" | "not-open" | "not-drawn" | "cancelled" | "already-reported"
  | "nothing-to-send" | "refused" | "unreachable" | "aborted" | "no-secure-context" | "no-x25519" | "no-storage" | "damaged";

export class Refusal extends Error {
  readonly reason: Reason;
  /** Whether no later attempt can succeed; only of `refused`. */
  readonly final: boolean;
  /** The HTTP status, if a server refused. */
  readonly status: number | undefined;
  /** The name of the shuffler's problem, if it sent one. */
  readonly problem: string | undefined;

  constructor(reason: Reason, message: string, answer: { final?: boolean; status?: number; problem?: string | undefined } = {}) {
    super(message);
    this.name = "Refusal";
    this.reason = reason;
    this.final = answer.final ?? false;
    this.status = answer.status;
    this.problem = answer.problem;
  }
}

/** Something is missing, unknown, of the wrong type or form, or out of its range; `expected` says what. */
export const malformed = (expected: string): Refusal => new Refusal("malformed", `the task is not valid: expected ${expected}`);

/** Throws `malformed` unless the condition holds. */
export function check(condition: boolean, expected: string): asserts condition {
  if (!condition) throw malformed(expected);
}
