/** Privacy curves as 151 numbers, composed by convolution: the form in which a device stores a release. */

const STEPS_PER_UNIT = 50;
/** A curve is sampled at epsilon = 0, 0.02, ..., 3. */
export const POINTS = 151;
const LAST = POINTS - 1, LAST_EPSILON = LAST / STEPS_PER_UNIT;
/** Evaluations of a curve, and seconds after which no further one begins: some curves are slow, and parameters can be hostile. */
const MAX_EVALUATIONS = 48, MAX_SECONDS = 2;
/** Smaller deltas need no further points; a tail that one convolution may cut; added to delta per release. */
const NEGLIGIBLE = 1e-15, CUT = 1e-14, ROUNDING = 1e-14;
/** e^epsilon from epsilon = -3 to 3. */
const GROWTHS = Float64Array.from({ length: 2 * LAST + 1 }, (_, i) => Math.exp((i - LAST) / STEPS_PER_UNIT));

/** A probability; what cannot be computed proves nothing, so it counts as 1. */
const asDelta = (x: number): number => (x <= 1 ? Math.max(0, x) : 1);

/** Upper bounds on the delta of one release at fixed epsilons, and one proved pair for basic composition. */
export interface Release {
  readonly deltas: Float32Array;
  readonly epsilon: number;
  readonly delta: number;
}

/** The samples of a curve, rounded up to single precision. `deltaAt` must be an upper bound of a curve of divergences. */
export function sampled(deltaAt: (epsilon: number) => number, epsilon: number, delta: number, now: () => number = () => performance.now()): Release {
  return { deltas: Float32Array.from(samples(deltaAt, now), roundedUp), epsilon, delta };
}

/** Upper bounds at all points. Divergences are convex in e^epsilon, so chords bound what lies between two evaluated points. */
function samples(deltaAt: (epsilon: number) => number, now: () => number): number[] {
  const known = new Map<number, number>(), growth = (i: number) => GROWTHS[LAST + i]!, end = now() + 1000 * MAX_SECONDS;
  const evaluate = (i: number): number => {
    if (!known.has(i)) known.set(i, asDelta(deltaAt(i / STEPS_PER_UNIT)));
    return known.get(i)!;
  };
  const chord = (i: number, left: number, right: number): number =>
    (known.get(left)! * (growth(right) - growth(i)) + known.get(right)! * (growth(i) - growth(left))) / (growth(right) - growth(left));
  const gaps: { left: number; right: number; error: number }[] = [{ left: 0, right: LAST, error: 1 }];
  evaluate(0);
  evaluate(LAST);
  while (gaps.length && known.size < MAX_EVALUATIONS && now() < end) {
    const { left, right } = gaps.splice(gaps.reduce((best, { error }, i) => (error > gaps[best]!.error ? i : best), 0), 1)[0]!;
    if (right - left < 2 || known.get(left)! <= NEGLIGIBLE) continue;
    const middle = (left + right) >> 1, bound = chord(middle, left, right), actual = Math.max(evaluate(middle), NEGLIGIBLE);
    const error = (bound - actual) / Math.sqrt(actual); // between absolute and relative: tails matter, the middle more
    gaps.push({ left, right: middle, error }, { left: middle, right, error });
  }
  const nodes = [...known.keys()].sort((a, b) => a - b);
  return Array.from({ length: POINTS }, (_, i) => {
    const right = nodes.findIndex((node) => node >= i);
    return (nodes[right] === i ? known.get(i)! : chord(i, nodes[right - 1]!, nodes[right]!)) * (1 + 1e-15);
  });
}

/** The least number of single precision that is not below, at most 1. */
function roundedUp(x: number): number {
  const single = new Float32Array([x]);
  if (single[0]! < x) new Uint32Array(single.buffer)[0]!++;
  return Math.min(1, single[0]!);
}

interface Losses {
  /** The index of the first cell. */
  readonly first: number;
  readonly masses: Float64Array;
  readonly infinite: number;
}

/**
 * A dominating loss distribution: the chords between samples are its divergences ("Connect the dots", Doroshenko and others 2022).
 * The curve covers both directions, so its mirror image bounds it at negative epsilons. Where rounding made the samples concave, a
 * mass would be negative; it is set to 0, which only adds mass. A pair whose epsilon is beyond the samples counts with that loss.
 */
function lossesOf({ deltas, epsilon, delta }: Release): Losses {
  if (epsilon > LAST_EPSILON) return { first: Math.ceil(epsilon * STEPS_PER_UNIT), masses: Float64Array.of(1), infinite: delta };
  const curve = new Float64Array(2 * LAST + 1);
  for (let i = 0, least = 1; i < POINTS; i++) {
    least = Math.min(least, deltas[i]!);
    curve[LAST + i] = least;
    if (i) curve[LAST - i] = 1 - GROWTHS[LAST - i]! * (1 - least);
  }
  const last = curve[2 * LAST]!, slope = (i: number) => (i < 0 ? last - 1 : i >= 2 * LAST ? 0 : (curve[i + 1]! - curve[i]!) / (GROWTHS[i + 1]! - GROWTHS[i]!));
  return { first: -LAST, masses: curve.map((_, i) => Math.max(slope(i) - slope(i - 1), 0) * GROWTHS[i]!), infinite: last };
}

/** Without negligible tails: the mass of the upper one counts as infinite, losses of the lower one are raised. */
function withoutTails({ first, masses, infinite }: Losses): Losses {
  let end = masses.length, cut = 0;
  for (let above = 0; end > 1 && (above += masses[end - 1]!) <= CUT; end--) cut = above;
  let start = 0, raised = 0;
  for (let below = 0; start < end - 1 && (below += masses[start]!) < CUT; start++) raised = below;
  const kept = masses.slice(start, end);
  kept[0]! += raised;
  return { first: first + start, masses: kept, infinite: infinite + cut };
}

function convolved(a: Float64Array, b: Float64Array): Float64Array {
  const sums = new Float64Array(a.length + b.length - 1);
  for (let i = 0; i < a.length; i++) for (let j = 0, x = a[i]!; j < b.length; j++) sums[i + j]! += x * b[j]!;
  return sums;
}

/** The composition of several releases: a convolved loss distribution, and added pairs. All numbers are positive, so that nothing cancels. */
export class Total {
  readonly #losses: Losses;
  readonly #epsilon: number;
  readonly #delta: number;

  private constructor(losses: Losses, epsilon: number, delta: number) {
    this.#losses = losses;
    this.#epsilon = epsilon;
    this.#delta = delta;
  }

  static of(releases: Iterable<Release> = []): Total {
    let total = new Total({ first: 0, masses: Float64Array.of(1), infinite: 0 }, 0, 0);
    for (const release of releases) total = total.followedBy(release);
    return total;
  }

  followedBy(release: Release): Total {
    const own = this.#losses, more = withoutTails(lossesOf(release));
    const sums = { first: own.first + more.first, masses: convolved(own.masses, more.masses), infinite: own.infinite + more.infinite + ROUNDING };
    return new Total(withoutTails(sums), this.#epsilon + release.epsilon, this.#delta + release.delta);
  }

  /** Upper bound on the least delta of the convolved losses. */
  deltaAt(epsilon: number): number {
    const { first, masses, infinite } = this.#losses;
    let sum = 0;
    masses.forEach((mass, i) => {
      const loss = (first + i) / STEPS_PER_UNIT;
      if (loss > epsilon) sum += mass * -Math.expm1(epsilon - loss);
    });
    return asDelta((sum + infinite) * (1 + 1e-12));
  }

  /** Whether the pair holds by either method; the sums of basic composition may exceed it by rounding. */
  isWithin(epsilon: number, delta: number): boolean {
    return (this.#epsilon <= epsilon * (1 + 1e-12) && this.#delta <= delta * (1 + 1e-12)) || this.deltaAt(epsilon) <= delta;
  }

  /** Upper bound on the least epsilon at this delta, Infinity if there is none: the smaller of both methods. */
  epsilonAt(delta: number): number {
    const added = this.#delta <= delta * (1 + 1e-12) ? this.#epsilon : Infinity, { first, masses } = this.#losses;
    let low = 0, high = Math.max(0, first + masses.length) / STEPS_PER_UNIT;
    if (this.deltaAt(0) <= delta) return 0;
    if (this.deltaAt(high) > delta) return added;
    while (high - low > 1e-9 * high) {
      const middle = (low + high) / 2;
      if (this.deltaAt(middle) <= delta) high = middle;
      else low = middle;
    }
    return Math.min(high, added);
  }
}
