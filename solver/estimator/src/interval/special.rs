//! Quantiles of the beta distribution and of Student's t.

/// Coefficients of Lanczos' approximation with g = 7 (Godfrey's table, as in GNU's and many other libraries).
const LANCZOS: [f64; 9] = [
    0.999_999_999_999_809_9,
    676.520_368_121_885_1,
    -1_259.139_216_722_402_8,
    771.323_428_777_653_1,
    -176.615_029_162_140_6,
    12.507_343_278_686_905,
    -0.138_571_095_265_720_12,
    9.984_369_578_019_572e-6,
    1.505_632_735_149_311_6e-7,
];
/// Terms of the continued fraction that may be needed: about the root of the larger parameter.
const TERMS_MAX: usize = 100_000;
/// Halvings of a quantile's interval: one more changes no bit.
const HALVINGS: usize = 200;

/// Natural logarithm of the gamma function of a positive number.
fn ln_gamma(x: f64) -> f64 {
    if x < 0.5 {
        // the reflection
        return (std::f64::consts::PI / (std::f64::consts::PI * x).sin()).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let series = LANCZOS.iter().enumerate().skip(1).fold(LANCZOS[0], |sum, (i, c)| sum + c / (x + i as f64));
    let base = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * base.ln() - base + series.ln()
}

/// The continued fraction of the incomplete beta function, by Lentz's method ("Numerical Recipes", section 6.4).
fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    let tiny = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / tiny(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for m in (1..TERMS_MAX).map(|m| m as f64) {
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut step = 1.0;
        for term in [even, odd] {
            d = 1.0 / tiny(1.0 + term * d);
            c = tiny(1.0 + term / c);
            step = d * c;
            fraction *= step;
        }
        if (step - 1.0).abs() < 1e-15 {
            break;
        }
    }
    fraction
}

/// The distribution function of the beta distribution with parameters `a` and `b`, both above 0, at `x` from 0 to 1.
pub fn beta_probability(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    // the fraction converges fast below the mean
    match x < (a + 1.0) / (a + b + 2.0) {
        true => front * beta_fraction(x, a, b) / a,
        false => 1.0 - front * beta_fraction(1.0 - x, b, a) / b,
    }
}

/// The value that a beta distribution does not exceed with this probability.
pub fn beta_quantile(probability: f64, a: f64, b: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if beta_probability(middle, a, b) < probability { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// The value that Student's t exceeds with probability `tail`, below one half. `freedom` are its degrees of freedom.
pub fn student_quantile(tail: f64, freedom: f64) -> f64 {
    let x = beta_quantile(2.0 * tail, 0.5 * freedom, 0.5);
    (freedom * (1.0 - x) / x).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probability that at least `from` of `n` trials succeed, by adding up.
    fn binomial_tail(n: u32, from: u32, p: f64) -> f64 {
        let ln_factorial = |n: u32| (1..=n).map(|k| f64::from(k).ln()).sum::<f64>();
        let one = |k: u32| {
            let ways = ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k);
            (ways + f64::from(k) * p.ln() + f64::from(n - k) * (1.0 - p).ln()).exp()
        };
        (from..=n).map(one).sum()
    }

    #[test]
    fn beta_probabilities_are_sums_of_binomials() {
        for (n, from) in [(1, 1), (5, 2), (40, 1), (40, 17), (300, 3), (300, 299)] {
            for p in [0.001, 0.01, 0.3, 0.5, 0.9, 0.999] {
                let (own, summed) =
                    (beta_probability(p, f64::from(from), f64::from(n - from + 1)), binomial_tail(n, from, p));
                assert!((own - summed).abs() < 1e-10, "{n} {from} {p}: {own}, not {summed}");
            }
        }
    }

    #[test]
    fn quantiles_invert_probabilities() {
        for (a, b) in [(0.5, 0.5), (1.0, 3000.0), (3.7, 812.4), (2e6, 3e5), (1.0, 1e7)] {
            for probability in [1e-5, 0.025, 0.5, 0.975] {
                let x = beta_quantile(probability, a, b);
                let back = beta_probability(x, a, b);
                assert!((back - probability).abs() < 1e-6 * probability.max(1e-2), "{a} {b} {probability}: {x} {back}");
            }
        }
        // the closed form without a single success
        for n in [1.0, 20.0, 3e5] {
            let exact = 1.0 - 0.025_f64.powf(1.0 / n);
            assert!((beta_quantile(0.975, 1.0, n) / exact - 1.0).abs() < 1e-9, "{n}");
        }
    }

    #[test]
    fn students_quantiles_match_the_table() {
        let table = [(1.0, 12.706), (2.0, 4.303), (3.0, 3.182), (7.0, 2.365), (10.0, 2.228), (30.0, 2.042), (1e6, 1.960)];
        for (freedom, value) in table {
            let own = student_quantile(0.025, freedom);
            assert!((own - value).abs() < 6e-4, "{freedom}: {own}, not {value}");
        }
        assert!((student_quantile(0.005, 5.0) - 4.032).abs() < 6e-4);
    }
}
