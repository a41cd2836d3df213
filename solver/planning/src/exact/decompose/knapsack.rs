//! How are equal devices divided among pipelines? A multiple-choice knapsack, solved exactly by dynamic programming.
//!
//! `W_g(s) = max over n of v_g(n) + W_{g-1}(s - n)`, with `v_g` the worth of n devices to pipeline g.

/// Value of every total of devices, with the share of each pipeline.
pub(super) struct Division {
    /// Highest value of each total, from 0 to all devices; minus infinity if there is no division.
    pub worth: Vec<f64>,
    /// Devices of each pipeline by total.
    given: Vec<Vec<u32>>,
}

impl Division {
    /// Divides up to `devices`. `values[g][n]` is the value of n devices to pipeline g (minus infinity: not enough). A
    /// list may be shorter than the devices: more devices than its last have no more value.
    pub fn new(values: &[Vec<f64>], devices: usize) -> Self {
        let mut worth = vec![0.0; devices + 1];
        let mut given = Vec::with_capacity(values.len());
        for own in values {
            let first = own.iter().position(|v| v.is_finite()).unwrap_or(own.len());
            let mut next = vec![f64::NEG_INFINITY; devices + 1];
            let mut taken = vec![0_u32; devices + 1];
            for (n, &value) in own.iter().enumerate().skip(first).take_while(|(n, _)| *n <= devices) {
                // one more device without more value is never the best choice
                if n > first && value <= own[n - 1] {
                    continue;
                }
                for s in n..=devices {
                    let sum = worth[s - n] + value;
                    if sum > next[s] {
                        next[s] = sum;
                        taken[s] = n as u32;
                    }
                }
            }
            worth = next;
            given.push(taken);
        }
        Self { worth, given }
    }

    /// The division of a total; `None` if there is none.
    pub fn shares_of(&self, total: usize) -> Option<Vec<usize>> {
        if !self.worth[total].is_finite() {
            return None;
        }
        let mut left = total;
        let mut shares = vec![0; self.given.len()];
        for (share, given) in shares.iter_mut().zip(&self.given).rev() {
            *share = given[left] as usize;
            left -= *share;
        }
        Some(shares)
    }

    /// The fewest devices of at least this value.
    pub fn fewest_devices(&self, least: f64) -> Option<usize> {
        self.worth.iter().position(|&w| w >= least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every division, tried.
    fn brute(values: &[Vec<f64>], devices: usize) -> f64 {
        let Some((own, rest)) = values.split_first() else { return 0.0 };
        let tried = own.iter().enumerate().take(devices + 1).map(|(n, v)| v + brute(rest, devices - n));
        tried.fold(f64::NEG_INFINITY, f64::max)
    }

    #[test]
    fn a_division_is_the_best_of_all() {
        let mut state = 7_u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let mut none = 0;
        for _ in 0..200 {
            let values: Vec<Vec<f64>> = (0..1 + below(4))
                .map(|_| {
                    let first = below(3);
                    let mut worth = below(10) as f64;
                    let length = 1 + below(6);
                    (0..first + length)
                        .map(|n| {
                            worth += below(5) as f64;
                            if n < first { f64::NEG_INFINITY } else { worth }
                        })
                        .collect()
                })
                .collect();
            let devices = below(9) as usize;
            let division = Division::new(&values, devices);
            let best = brute(&values, devices);
            assert_eq!(division.worth[devices], best);
            match division.shares_of(devices) {
                Some(shares) => {
                    assert!(shares.iter().sum::<usize>() <= devices);
                    let sum: f64 = shares.iter().zip(&values).map(|(&n, v)| v[n]).sum();
                    assert_eq!(sum, best);
                    let fewest = division.fewest_devices(best).expect("some total is worth it");
                    assert!(fewest <= devices && (fewest == 0 || brute(&values, fewest - 1) < best));
                }
                None => none += 1,
            }
        }
        assert!((1..150).contains(&none), "the draws are too alike: {none} without a division");
    }
}
