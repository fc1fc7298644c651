/** Binomial probabilities to nearly full precision, at any number of trials. */

const UNDERFLOW = 1e-307;
/** Steps of the recurrence between two values by Loader's formula: the rounding errors stay below 1e-12. */
const STEPS = 4096;

/** ln(n!) - ln(sqrt(2 pi n) (n/e)^n) for n from 1 on. */
function stirlingError(n: number): number {
  if (n < 16) {
    let factorial = 1;
    for (let i = 2; i <= n; i++) factorial *= i;
    return Math.log(factorial / Math.sqrt(2 * Math.PI * n)) + n - n * Math.log(n);
  }
  const m = n * n;
  return (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / m) / m) / m) / m) / n;
}

/** x ln(x / m) + m - x, without cancellation where x is near m. */
function deviance(x: number, m: number): number {
  if (Math.abs(x - m) >= 0.1 * (x + m)) return x * Math.log(x / m) + m - x;
  const v = (x - m) / (x + m);
  let sum = (x - m) * v, term = 2 * x * v;
  for (let j = 3; j < 99; j += 2) {
    term *= v * v;
    sum += term / j;
  }
  return sum;
}

/** Pr[Bin(n, p) = x] by Loader (2000); q = 1 - p is given, so that no digits are lost. */
export function binomial(x: number, n: number, p: number, q: number): number {
  if (x < 0 || x > n) return 0;
  if (p === 0) return x === 0 ? 1 : 0;
  if (q === 0) return x === n ? 1 : 0;
  if (x === 0) return Math.exp(n * (p < q ? Math.log1p(-p) : Math.log(q)));
  if (x === n) return Math.exp(n * (q < p ? Math.log1p(-q) : Math.log(p)));
  const exponent = stirlingError(n) - stirlingError(x) - stirlingError(n - x) - deviance(x, n * p) - deviance(n - x, n * q);
  return Math.exp(exponent) * Math.sqrt(n / (2 * Math.PI * x * (n - x)));
}

/** Consecutive probabilities; those before `first` and after the last add up to less than `outside`. */
export interface Window { readonly first: number; readonly masses: Float64Array; readonly outside: number }

/** All probabilities from `cut` on. */
export function binomialWindow(n: number, p: number, q: number, cut = UNDERFLOW): Window {
  const mode = Math.min(n, Math.floor((n + 1) * p)), up: number[] = [], down: number[] = [];
  let outside = 0;
  const walk = (masses: number[], step: 1 | -1) => {
    let mass = binomial(mode, n, p, q);
    for (let x = mode, steps = 1; ; steps++) {
      masses.push(mass);
      x += step;
      if (x < 0 || x > n) break;
      const ratio = step === 1 ? ((n - x + 1) * p) / (x * q) : ((x + 1) * q) / ((n - x) * p);
      mass = steps % STEPS ? mass * ratio : binomial(x, n, p, q);
      if (mass <= cut && ratio < 1) { // from here on the ratio falls
        outside += Math.max(mass, UNDERFLOW) / (1 - ratio);
        break;
      }
    }
  };
  walk(up, 1);
  walk(down, -1);
  const masses = new Float64Array(down.length - 1 + up.length);
  masses.set(up, down.length - 1);
  for (let i = 1; i < down.length; i++) masses[down.length - 1 - i] = down[i]!;
  return { first: mode - down.length + 1, masses, outside };
}
