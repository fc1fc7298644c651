/** Binomial probabilities to nearly full precision, at any number of trials. */

/** What a window leaves out has less probability than this. */
export const OUTSIDE = 1e-300;
const UNDERFLOW = 1e-307;
/** Steps of the recurrence between two values by Loader's formula: the rounding errors stay below 1e-12. */
const STEPS = 4096;

// ln(n!) - ln(sqrt(2 pi n) (n/e)^n), n = 0 .. 15; the 0 is not used
const STIRLING_ERRORS = [
  0, 0.08106146679532726, 0.0413406959554093, 0.02767792568499834, 0.020790672103765093, 0.016644691189821193, 0.013876128823070748, 0.01189670994589177,
  0.010411265261972096, 0.009255462182712733, 0.00833056343336287, 0.007573675487951841, 0.00694284010720953, 0.006408994188004207, 0.0059513701127588475,
  0.005554733551962801,
];

function stirlingError(n: number): number {
  if (n < STIRLING_ERRORS.length) return STIRLING_ERRORS[n]!;
  const m = n * n;
  return (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / m) / m) / m) / m) / n;
}

/** x ln(x / m) + m - x, without cancellation where x is near m. */
function deviance(x: number, m: number): number {
  if (Math.abs(x - m) >= 0.1 * (x + m)) return x * Math.log(x / m) + m - x;
  const v = (x - m) / (x + m);
  let sum = (x - m) * v, term = 2 * x * v;
  for (let j = 3; ; j += 2) {
    term *= v * v;
    const next = sum + term / j;
    if (next === sum) return sum;
    sum = next;
  }
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

/** Consecutive probabilities; those before `first` and after the last have less than OUTSIDE. */
export interface Window { readonly first: number; readonly masses: Float64Array }

export function binomialWindow(n: number, p: number, q: number): Window {
  const mode = Math.min(n, Math.floor((n + 1) * p)), up: number[] = [], down: number[] = [];
  const walk = (masses: number[], step: 1 | -1) => {
    let mass = binomial(mode, n, p, q);
    for (let x = mode, steps = 1; mass > UNDERFLOW; steps++) {
      masses.push(mass);
      x += step;
      if (x < 0 || x > n) break;
      if (steps % STEPS === 0) mass = binomial(x, n, p, q);
      else mass *= step === 1 ? ((n - x + 1) * p) / (x * q) : ((x + 1) * q) / ((n - x) * p);
    }
  };
  walk(up, 1);
  walk(down, -1);
  return { first: mode - down.length + 1, masses: Float64Array.from([...down.slice(1).reverse(), ...up]) };
}
