use super::*;
use apportion_executor::backend::Signature;
use apportion_executor::measuring::interval::QuantileInterval;
use apportion_executor::tensor::Datatype;
use std::sync::Arc;

/// The time of a batch for each copy that is at work.
const UNIT: Duration = Duration::from_millis(5);

/// The end of a copy that does not work for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Never,
    Fails { after: usize },
    Panics { after: usize },
}

/// A copy on a device that its copies share evenly.
struct SharedCopy {
    at_work: Arc<AtomicUsize>,
    runs: Arc<AtomicUsize>,
    end: End,
    signature: Signature,
}

impl Backend for SharedCopy {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let runs = self.runs.fetch_add(1, Ordering::SeqCst);
        match self.end {
            End::Fails { after } if runs >= after => return Err(BackendError::Run("out of paper".to_owned())),
            End::Panics { after } => assert!(runs < after, "a copy panics on purpose"),
            _ => {}
        }
        let at_work = self.at_work.fetch_add(1, Ordering::SeqCst) + 1;
        sleep(UNIT * u32::try_from(at_work).expect("a few"));
        self.at_work.fetch_sub(1, Ordering::SeqCst);
        Ok(inputs.to_vec())
    }
}

/// A device with copies.
struct Device {
    copies: Vec<Box<dyn Backend>>,
    /// By copy.
    runs: Vec<Arc<AtomicUsize>>,
}

fn device(ends: &[End]) -> Device {
    let (at_work, mut copies, mut runs) = (Arc::new(AtomicUsize::new(0)), Vec::<Box<dyn Backend>>::new(), Vec::new());
    for &end in ends {
        let of_copy = Arc::new(AtomicUsize::new(0));
        runs.push(of_copy.clone());
        let signature = Signature { inputs: Vec::new(), outputs: Vec::new() };
        copies.push(Box::new(SharedCopy { at_work: at_work.clone(), runs: of_copy, end, signature }));
    }
    Device { copies, runs }
}

/// Times batches of one row with this many runs, after three that do not count.
fn profile(device: &mut Device, runs: u32) -> Result<Vec<ProfilePoint>, ShareError> {
    let point = PointRule {
        warm_up_runs: 3,
        repeats_min: runs,
        repeats_max: runs,
        time_max: Duration::ZERO,
        ..PointRule::default()
    };
    let options = MeasureOptions { batches: vec![1], point, ..MeasureOptions::default() };
    let row = Tensor { name: "x".to_owned(), datatype: Datatype::Uint8, shape: vec![1], data: vec![0].into() };
    profile_share(&mut device.copies, &[row], &options)
}

#[test]
fn neighbours_lengthen_batches() {
    let mut half = device(&[End::Never, End::Never]);
    let rows = profile(&mut half, 7).expect("a half");
    let factor = rows[0].interference.expect("neighbours ran");
    assert!(factor > 1.3, "two copies take twice as long: {rows:?}");
    let ran = half.runs[1].load(Ordering::SeqCst);
    assert!(ran >= 3, "the neighbour worked all the time, and ran {ran} batches");
    sleep(4 * UNIT);
    assert_eq!(half.runs[1].load(Ordering::SeqCst), ran, "it has ended");
}

#[test]
fn a_neighbour_that_fails_ends_the_measurement() {
    let mut short = device(&[End::Never, End::Never, End::Fails { after: 2 }]);
    let refused = profile(&mut short, 40).expect_err("a neighbour fails");
    assert!(matches!(&refused, ShareError::Neighbour(BackendError::Run(why)) if why == "out of paper"), "{refused:?}");
    let ran = short.runs[0].load(Ordering::SeqCst);
    assert!((43..86).contains(&ran), "43 runs alone, and few of the 43 beside neighbours: {ran}");
    let before: Vec<usize> = short.runs.iter().map(|runs| runs.load(Ordering::SeqCst)).collect();
    sleep(4 * UNIT);
    assert_eq!(short.runs.iter().map(|runs| runs.load(Ordering::SeqCst)).collect::<Vec<_>>(), before);
}

#[test]
fn a_neighbour_that_panics_is_an_error() {
    for after in [0, 2] {
        let refused = profile(&mut device(&[End::Never, End::Panics { after }]), 10).expect_err("a neighbour panics");
        assert!(matches!(refused, ShareError::Panic), "{refused:?}");
    }
}

#[test]
fn a_failure_of_the_measured_copy_ends_its_neighbours() {
    // It has run 10 batches alone, and fails at its third beside the neighbour.
    let mut failing = device(&[End::Fails { after: 12 }, End::Never]);
    let refused = profile(&mut failing, 7).expect_err("it fails");
    assert!(matches!(&refused, ShareError::Backend(BackendError::Run(why)) if why == "out of paper"), "{refused:?}");
    let ran = failing.runs[1].load(Ordering::SeqCst);
    sleep(4 * UNIT);
    assert!(ran > 0 && failing.runs[1].load(Ordering::SeqCst) == ran, "{ran}");
    // It panics there.
    let mut panicking = device(&[End::Panics { after: 12 }, End::Never]);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| profile(&mut panicking, 7).is_err()));
    assert!(panic.is_err());
    let ran = panicking.runs[1].load(Ordering::SeqCst);
    sleep(4 * UNIT);
    assert_eq!(panicking.runs[1].load(Ordering::SeqCst), ran);
}

fn times(batch: u32, times_ms: &[f64], noise: f64) -> BatchTimes {
    let conditions = TimingConditions { warm_up_runs: 3, is_steady: true, noise };
    BatchTimes { batch, times_ms: times_ms.to_vec(), conditions }
}

#[test]
fn a_share_has_the_time_beside_neighbours() {
    let alone = [times(1, &[4.0, 4.0, 4.0], 0.0), times(2, &[6.0, 6.0, 6.0], 0.0), times(4, &[9.0, 9.0, 9.0], 0.0)];
    // A batch of 1 waits for a turn once: its mean counts. Noise has shortened the batch of 4.
    let beside = [times(1, &[5.0, 5.0, 14.0], 0.2), times(2, &[9.0, 9.0, 9.0], 0.2), times(4, &[8.0, 8.0, 8.0], 0.2)];
    let rows = fit_share(&alone, &beside, 10.0).expect("a share");
    let seen: Vec<_> = rows.iter().map(|row| (row.batch, row.latency_ms, row.interference)).collect();
    // The medians 9 and 8 are pooled to 8.5. So are the means.
    assert_eq!(seen, [(1, 80.0, Some(2.0)), (2, 85.0, Some(85.0 / 60.0)), (4, 90.0, Some(1.0))]);
    assert!(rows.iter().all(|row| row.p99_ms >= row.latency_ms), "{rows:?}");
    assert!(rows.iter().all(|row| row.conditions.noise == 0.2 && row.median == QuantileInterval::default()));
    assert!(rows.is_sorted_by(|a, b| a.latency_ms <= b.latency_ms));
}

#[test]
fn no_neighbour_makes_a_batch_a_hundred_times_as_long() {
    let alone = [times(1, &[4.0], 0.0)];
    let factor = |beside_ms: f64| fit_share(&alone, &[times(1, &[beside_ms], 0.0)], 1.0);
    assert_eq!(factor(400.0).expect("at the limit")[0].interference, Some(INTERFERENCE_MAX));
    let refused = factor(401.0).expect_err("beyond it").to_string();
    assert!(refused.starts_with("a batch of 1 takes 4.000 ms alone and 401.000 ms beside its copies"), "{refused}");
    assert!(refused.contains("expected at most 100 times as long"), "{refused}");
}
