//! Which whole solution is near a relaxed one? Its integers are rounded up.
//!
//! Example: 2.4 replicas need 2.4 devices. With 3 replicas the row `replicas - devices <= 0` breaks, so the devices are
//! raised to 3 too ([`Rounding::WithDependents`]).

use crate::{ConstraintRow, Formulation};

/// How a relaxed solution becomes a whole one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// The integers are rounded up. If a row breaks, there is no solution.
    Up,
    /// The same, and columns that mend a broken row are raised: devices of replicas, replicas of spares, loads of replicas.
    WithDependents,
}

/// Largest violation of a row that counts as none.
const FEASIBLE: f64 = 1e-7;
/// Largest distance from an integer that counts as integral.
pub(crate) const INTEGRAL: f64 = 1e-7;
/// Most passes over the rows. A pass mends the rows whose columns an earlier row has raised: spares, replicas, devices,
/// budget.
const PASSES_MAX: usize = 4;

/// A whole solution near `values`, which has one value for each column; `None` if none was found.
pub(crate) fn round(
    formulation: &Formulation,
    integers: &[usize],
    mut values: Vec<f64>,
    rounding: Rounding,
) -> Option<Vec<f64>> {
    for &c in integers {
        values[c] = (values[c] - INTEGRAL).ceil();
    }
    // a continuous column that depends on the integers keeps its value, so rows are checked
    if rounding == Rounding::Up {
        return formulation.rows.iter().all(|row| excess(row, &values) == Excess::None).then_some(values);
    }
    for _ in 0..PASSES_MAX {
        let mut is_whole = true;
        for row in &formulation.rows {
            let (missing, sign) = match excess(row, &values) {
                Excess::None => continue,
                Excess::Above(by) => (by, -1.0),
                Excess::Below(by) => (by, 1.0),
            };
            is_whole = false;
            mend(formulation, row, sign, missing, &mut values)?;
        }
        if is_whole {
            return Some(values);
        }
    }
    None
}

/// By how much a row is broken.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Excess {
    None,
    /// Its sum is so much above its upper bound.
    Above(f64),
    /// Its sum is so much below its lower bound.
    Below(f64),
}

fn excess(row: &ConstraintRow, values: &[f64]) -> Excess {
    let sum: f64 = row.terms.iter().map(|&(c, factor)| factor * values[c.0]).sum();
    if sum > row.upper + FEASIBLE {
        Excess::Above(sum - row.upper)
    } else if sum < row.lower - FEASIBLE {
        Excess::Below(row.lower - sum)
    } else {
        Excess::None
    }
}

/// Raises columns of a row until `missing` is made up for. Raising helps where the factor has this sign. `None` if the
/// columns have too little room.
fn mend(formulation: &Formulation, row: &ConstraintRow, sign: f64, mut missing: f64, values: &mut [f64]) -> Option<()> {
    for &(c, factor) in row.terms.iter().filter(|(_, factor)| factor * sign > 0.0) {
        let column = &formulation.columns[c.0];
        let wanted = missing / factor.abs();
        let wanted = if column.is_integer { (wanted - INTEGRAL).ceil() } else { wanted };
        let raise = wanted.min(column.upper - values[c.0]).max(0.0);
        values[c.0] += raise;
        missing -= raise * factor.abs();
        if missing <= FEASIBLE {
            return Some(());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2.4 replicas with a spare that half of them need, devices with a price, and loads of replicas beyond the first one.
    fn replicas(devices_max: f64) -> (Formulation, Vec<f64>) {
        let mut f = Formulation::default();
        let x = f.integer(0.0, 9.0);
        let used = f.integer(0.0, 1.0);
        let serving = f.continuous(0.0, 9.0);
        let loaded = f.continuous(0.0, 9.0);
        let devices = f.continuous(0.0, devices_max);
        // the devices come first, so that a later pass mends them
        f.at_most(0.0, vec![(x, 0.5), (devices, -1.0)]);
        f.at_most(1.0, vec![(x, 1.0), (loaded, -1.0)]);
        f.at_most(0.0, vec![(serving, 1.0), (used, 1.0), (x, -1.0)]);
        f.at_least(1.9, vec![(serving, 1.0)]);
        (f, vec![2.4, 0.5, 1.9, 1.4, 1.2])
    }

    #[test]
    fn dependent_columns_are_raised_with_the_integers() {
        let (f, relaxed) = replicas(9.0);
        assert_eq!(round(&f, &[0, 1], relaxed.clone(), Rounding::Up), None);
        let values = round(&f, &[0, 1], relaxed, Rounding::WithDependents).expect("there is room");
        let expected = [3.0, 1.0, 1.9, 2.0, 1.5];
        assert!(values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{values:?}");
    }

    #[test]
    fn spares_raise_replicas_and_these_raise_devices() {
        let (f, mut relaxed) = replicas(9.0);
        relaxed[2] = 2.8;
        let values = round(&f, &[0, 1], relaxed.clone(), Rounding::WithDependents).expect("there is room");
        assert!((values[0] - 4.0).abs() < 1e-9 && (values[4] - 2.0).abs() < 1e-9, "{values:?}");
        assert_eq!(round(&replicas(1.9).0, &[0, 1], relaxed, Rounding::WithDependents), None, "two devices are needed");
    }

    #[test]
    fn whole_solutions_stay_as_they_are() {
        let (f, _) = replicas(9.0);
        let whole = vec![3.0, 1.0, 2.0, 2.0, 1.5];
        for rounding in [Rounding::Up, Rounding::WithDependents] {
            assert_eq!(round(&f, &[0, 1], whole.clone(), rounding), Some(whole.clone()));
        }
    }

    #[test]
    fn a_row_that_only_lower_columns_mend_has_no_solution() {
        let mut f = Formulation::default();
        let x = f.integer(0.0, 5.0);
        f.at_most(2.5, vec![(x, 1.0)]);
        assert_eq!(round(&f, &[0], vec![2.5], Rounding::WithDependents), None);
        assert_eq!(round(&f, &[0], vec![2.0], Rounding::WithDependents), Some(vec![2.0]));
    }
}
