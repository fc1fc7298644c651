/** The limits of a device on the tasks that it answers, whatever they claim: the same defaults as in Python. */
import { Refusal } from "./refusal.ts";
import { type Task } from "./task.ts";

export interface Policy {
  /** A task whose delta at `maxEpsilon` is above `maxDelta` is refused. */
  readonly maxEpsilon: number;
  readonly maxDelta: number;
  /** Minimum number of honest users among whom a report is hidden; ignored for local and augmented protocols. */
  readonly minUsers: number;
  /** Maximum messages of one report: sealing each takes time. */
  readonly maxMessages: number;
  readonly maxReportBytes: number;
  /** Whether tasks are answered in which all noise comes from the shuffler. */
  readonly allowAugmented: boolean;
}

export const DEFAULT_POLICY: Policy = { maxEpsilon: 1, maxDelta: 1e-5, minUsers: 100, maxMessages: 65_536, maxReportBytes: 1 << 24, allowAugmented: false };

/** Throws a Refusal that names the exceeded limit, if there is one. */
export function checkPolicy(task: Task, limits: Partial<Policy> = {}): void {
  const policy = { ...DEFAULT_POLICY, ...limits }, { guarantee } = task;
  if (!(policy.maxEpsilon > 0 && policy.maxDelta >= 0 && policy.maxDelta < 1 && policy.minUsers >= 1 && policy.maxMessages >= 1 && policy.maxReportBytes >= 1))
    throw new RangeError("policy");
  const { messagesPerReport, reportSize } = task.carriers ?? task; // before the role is drawn: else whoever carries could refuse
  if (messagesPerReport > policy.maxMessages || reportSize > policy.maxReportBytes)
    throw new Refusal("policy", `reports of ${messagesPerReport} messages and ${reportSize} bytes are too large for this device`);
  if (guarantee.augmented && !policy.allowAugmented)
    throw new Refusal("policy", "the task trusts the shuffler to add all noise, which this device does not allow; its owner can allow it");
  const delta = guarantee.deltaAt(policy.maxEpsilon);
  if (!(delta <= policy.maxDelta))
    throw new Refusal("policy", `delta is ${delta} at epsilon ${policy.maxEpsilon}; this device allows ${policy.maxDelta}`);
  if (!guarantee.local && !guarantee.augmented && guarantee.honestUsers < policy.minUsers)
    throw new Refusal("policy", `a report is hidden among ${guarantee.honestUsers} users; this device requires ${policy.minUsers}`);
}
