//! A slow, obvious two-phase simplex on a dense tableau with Bland's rule: the oracle of the flows.

/// Right-hand sides below this are 0, and so are reduced costs.
const ZERO: f64 = 1e-9;

/// `coefficients . x <= right` or `coefficients . x = right`, with `right >= 0`.
pub struct Row {
    coefficients: Vec<f64>,
    right: f64,
    relation: Relation,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Relation {
    AtMost,
    Equal,
}

impl Row {
    /// `coefficients . x <= right`.
    pub fn at_most(right: f64, coefficients: Vec<f64>) -> Self {
        Self { coefficients, right, relation: Relation::AtMost }
    }

    /// `coefficients . x = right`.
    pub fn equal(right: f64, coefficients: Vec<f64>) -> Self {
        Self { coefficients, right, relation: Relation::Equal }
    }
}

/// The largest `gains . x` over `x >= 0` within the rows; `None` if nothing is within them.
pub fn maximise(gains: &[f64], rows: &[Row]) -> Option<f64> {
    let (n, m) = (gains.len(), rows.len());
    // columns: the variables, one slack or artificial for each row, the right-hand side
    let mut table: Vec<Vec<f64>> = rows
        .iter()
        .enumerate()
        .map(|(i, row)| {
            assert!(row.right >= 0.0, "a right-hand side of at least 0");
            let mut line = row.coefficients.clone();
            line.extend((0..m).map(|j| if i == j { 1.0 } else { 0.0 }));
            line.push(row.right);
            line
        })
        .collect();
    let mut basis: Vec<usize> = (n..n + m).collect();
    let artificial: Vec<bool> = (0..n + m).map(|c| c >= n && rows[c - n].relation == Relation::Equal).collect();
    let first: Vec<f64> = artificial.iter().map(|&a| if a { -1.0 } else { 0.0 }).collect();
    run(&mut table, &mut basis, &first, &vec![false; n + m]);
    let wrong: f64 = (0..m).filter(|&i| artificial[basis[i]]).map(|i| table[i][n + m]).sum();
    if wrong > 1e-7 {
        return None;
    }
    // an artificial that stayed in the basis at 0 must not come back: pivot it out where that is possible
    for i in 0..m {
        let own = (0..n + m).find(|&c| !artificial[c] && table[i][c].abs() > 1e-7);
        if let Some(c) = own.filter(|_| artificial[basis[i]]) {
            pivot(&mut table, i, c);
            basis[i] = c;
        }
    }
    let mut second = gains.to_vec();
    second.resize(n + m, 0.0);
    run(&mut table, &mut basis, &second, &artificial);
    Some((0..m).map(|i| second[basis[i]] * table[i][n + m]).sum())
}

fn run(table: &mut [Vec<f64>], basis: &mut [usize], gains: &[f64], closed: &[bool]) {
    let columns = gains.len();
    loop {
        let gain = |c: usize| gains[c] - (0..basis.len()).map(|i| gains[basis[i]] * table[i][c]).sum::<f64>();
        let Some(enter) = (0..columns).find(|&c| !closed[c] && gain(c) > ZERO) else { return };
        let mut leave: Option<(f64, usize)> = None;
        for i in 0..table.len() {
            if table[i][enter] <= ZERO {
                continue;
            }
            let ratio = table[i][columns] / table[i][enter];
            let better =
                leave.is_none_or(|(least, row)| ratio < least - 1e-12 || (ratio <= least + 1e-12 && basis[i] < basis[row]));
            if better {
                leave = Some((ratio, i));
            }
        }
        let (_, row) = leave.expect("shares are bounded");
        pivot(table, row, enter);
        basis[row] = enter;
    }
}

fn pivot(table: &mut [Vec<f64>], row: usize, column: usize) {
    let by = table[row][column];
    table[row].iter_mut().for_each(|x| *x /= by);
    let line = table[row].clone();
    for (i, other) in table.iter_mut().enumerate() {
        let factor = other[column];
        if i != row && factor != 0.0 {
            other.iter_mut().zip(&line).for_each(|(x, l)| *x -= factor * l);
        }
    }
}

#[test]
fn a_programme_by_hand() {
    // x + y = 1, 2 x <= 1: the better x goes to one half
    let rows = [Row::equal(1.0, vec![1.0, 1.0]), Row::at_most(1.0, vec![2.0, 0.0])];
    assert!((maximise(&[1.0, 0.6], &rows).expect("feasible") - 0.8).abs() < 1e-12);
    let rows = [Row::equal(1.0, vec![1.0, 1.0]), Row::at_most(1.0, vec![2.0, 2.0])];
    assert_eq!(maximise(&[1.0, 0.6], &rows), None);
}
