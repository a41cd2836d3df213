//! How does `apportion import profile` make a profile of reports?

use anyhow::Context;
use apportion_domain::pipeline::BATCH_MAX;
use apportion_import::{GatheredProfile, GivenNames, ProfileFormat, add_profile};
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::input;
use apportion_support::output;
use apportion_wire::{BadInput, ProfileCsvRow, ProfileSet, write_profile_csv};
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::io::Write as _;

/// Arguments of `apportion import profile`.
#[derive(Args, Debug)]
pub struct ImportProfileArgs {
    /// The format: `csv` is a table with a row for each latency, `perf-analyzer` a report of `perf_analyzer -f`,
    /// `model-analyzer` a `metrics-model-inference.csv`, `aiperf` a `profile_export_aiperf.json`, `nexus` a profile of
    /// Nexus.
    #[arg(long, value_parser = PossibleValuesParser::new(ProfileFormat::NAMES))]
    from: String,
    /// Reports of one format.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// The task of rows that name none.
    #[arg(long, default_value = "main")]
    task: String,
    /// The variant of rows that name none.
    #[arg(long)]
    variant: Option<String>,
    /// The hardware type of rows that name none.
    #[arg(long)]
    hardware: Option<String>,
    /// Batch sizes of reports that name none, one for each file, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "N,..", value_parser = clap::value_parser!(u32).range(1..=i64::from(BATCH_MAX)))]
    batch: Vec<u32>,
    /// Leave out larger batches.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch_max: Option<u32>,
    /// Name of the pipeline in a profile that is written as CSV.
    #[arg(long, default_value = "main")]
    pipeline: String,
    /// Where to write: as CSV if the name ends so, else as JSON; JSON on stdout if not given.
    #[arg(long)]
    out: Option<String>,
}

/// Runs the command.
pub fn run(args: &ImportProfileArgs) -> CommandResult {
    if !args.batch.is_empty() && args.batch.len() != args.files.len() {
        let found = format!("{} batch sizes for {} files", args.batch.len(), args.files.len());
        return Err(BadInput::one("--batch", "", found, "one batch size for each file").into());
    }
    let format = ProfileFormat::from_name(&args.from).context("a format of the list")?;
    let mut gathered = GatheredProfile::default();
    for (at, file) in args.files.iter().enumerate() {
        let names = GivenNames {
            task: args.task.clone(),
            variant: args.variant.clone(),
            hardware: args.hardware.clone(),
            batch: args.batch.get(at).copied(),
            batch_max: args.batch_max,
        };
        add_profile(&mut gathered, format, file, &input::read_text(file)?, &names)?;
    }
    let (set, notes) = gathered.finish();
    notes.iter().for_each(|note| eprintln!("{note}"));
    match &args.out {
        Some(out) if out.to_ascii_lowercase().ends_with(".csv") => write_csv(out, &args.pipeline, &set)?,
        Some(out) => {
            let text = output::json(&set)?;
            output::write_file(out, |f| writeln!(f, "{text}"))?;
        }
        None => output::print(&output::json(&set)?)?,
    }
    Ok(Exit::Done)
}

fn write_csv(out: &str, pipeline: &str, set: &ProfileSet) -> Result<(), Failure> {
    if let Some(row) = set.rows.iter().find(|row| row.share != 1.0) {
        let found = format!("a row with the share {}", row.share);
        return Err(BadInput::one(out, "", found, "a name that ends in .json: a profile in CSV has whole devices").into());
    }
    if set.variants.iter().any(|v| v.memory_mib.is_some() || v.load_ms.is_some()) {
        eprintln!("{out}: a profile in CSV has no memory and no load times; a name that ends in .json keeps them");
    }
    let accuracy = |task: &str, variant: &str| {
        set.variants.iter().find(|v| v.task == task && v.variant == variant).and_then(|v| v.accuracy)
    };
    let row = |r: &apportion_wire::MeasuredRow| ProfileCsvRow {
        pipeline: pipeline.to_owned(),
        task: r.task.clone(),
        variant: r.variant.clone(),
        hardware: r.hardware.clone(),
        batch: r.batch,
        latency_ms: r.latency_ms,
        p99_ms: r.p99_ms,
        accuracy: accuracy(&r.task, &r.variant),
    };
    let rows: Vec<ProfileCsvRow> = set.rows.iter().map(row).collect();
    output::write_file(out, |f| write_profile_csv(&rows, f))
}
