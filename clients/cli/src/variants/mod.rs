//! How does `apportion variants` make variants of one model file: other precisions, threads and providers?

mod choice;
mod convert;

use self::choice::{DerivedVariant, Precision, VariantAxes, derive_variants, entries_yaml};
use self::convert::{ConvertedModel, convert};
use anyhow::Context;
use apportion_domain::{Provider, VARIANT_THREADS_MAX};
use apportion_import::graph::WeightPlace;
use apportion_import::read_graph;
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::input;
use apportion_support::output;
use apportion_support::progress::spinner;
use apportion_wire::BadInput;
use clap::Args;
use std::path::{Path, PathBuf};

/// Most variants of one file.
const VARIANTS_MAX: usize = 64;
const KIB: f64 = 1024.0;

/// Arguments of `apportion variants`.
#[derive(Args, Debug)]
pub struct VariantsArgs {
    /// The ONNX file, whose floats have 32 bits.
    #[arg(value_name = "FILE")]
    file: String,
    /// Precisions, separated by commas. `fp16` and `int8` become files; `fp32` is the file that is there.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "fp32,fp16,int8")]
    precision: Vec<Precision>,
    /// Numbers of threads of a batch on processors, separated by commas [default: those of the device].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=i64::from(VARIANT_THREADS_MAX)))]
    threads: Vec<u32>,
    /// Providers, separated by commas: `cpu`, `cuda`, `tensorrt` [default: that of the device].
    #[arg(long, value_delimiter = ',')]
    provider: Vec<Provider>,
    /// The folder of the new files. It is made if it is not there; files in it are not overwritten.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    out: PathBuf,
    /// The Python 3 that converts files, with the packages onnx and onnxruntime.
    #[arg(long, value_name = "PROGRAM", env = "APPORTION_PYTHON", default_value = "python3")]
    python: PathBuf,
}

/// Runs the command: writes the files and prints their entries for a pipeline file.
pub fn run(args: &VariantsArgs) -> CommandResult {
    let header = read_graph(&args.file, &input::read_bytes(&args.file)?)?;
    if header.weights == WeightPlace::Outside {
        let expected = "one file that contains its weights: variants are single files";
        return Err(BadInput::one(&args.file, "", "its weights are in other files", expected).into());
    }
    let axes =
        VariantAxes { precisions: args.precision.clone(), threads: args.threads.clone(), providers: args.provider.clone() };
    let variants = derive_variants(&stem(&args.file), &axes);
    check_count(&variants)?;
    let on_gpu: Vec<&str> = args.provider.iter().filter(|p| p.is_on_gpu()).map(|p| p.name()).collect();
    if axes.precisions.contains(&Precision::Int8) && !on_gpu.is_empty() {
        eprintln!("left out: int8 on {}: dynamic quantisation has operators for processors only", on_gpu.join(", "));
    }
    std::fs::create_dir_all(&args.out).with_context(|| format!("making {}", args.out.display()))?;
    let model = ConvertedModel { file: &args.file, header: &header };
    for precision in [Precision::Fp16, Precision::Int8] {
        if variants.iter().any(|variant| variant.precision == precision) {
            let out = file_of(args, precision);
            let bar = spinner(&format!("converting {} to {}", args.file, precision.name()));
            let converted = convert(&args.python, model, precision, &out);
            bar.finish_and_clear();
            converted?;
            say_size(&args.file, &out)?;
        }
    }
    output::print(&entries_yaml(&variants, |precision| file_of(args, precision).display().to_string()))?;
    Ok(Exit::Done)
}

fn check_count(variants: &[DerivedVariant]) -> Result<(), BadInput> {
    let count = variants.len();
    if count == 0 {
        let expected = "fp32 or fp16 among the precisions, or cpu among the providers";
        return Err(BadInput::one("--precision", "", "int8 alone, for providers of GPUs", expected));
    }
    if count > VARIANTS_MAX {
        let expected = format!("at most {VARIANTS_MAX}");
        return Err(BadInput::one("--threads", "", format!("{count} variants"), expected));
    }
    Ok(())
}

fn stem(file: &str) -> String {
    Path::new(file).file_stem().map_or_else(|| file.to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// Where the file of a precision lies.
fn file_of(args: &VariantsArgs, precision: Precision) -> PathBuf {
    if precision == Precision::Fp32 {
        return PathBuf::from(&args.file);
    }
    let name = format!("{}-{}.onnx", stem(&args.file), precision.name());
    if args.out == Path::new(".") { PathBuf::from(name) } else { args.out.join(name) }
}

fn say_size(file: &str, out: &Path) -> Result<(), Failure> {
    let bytes = |path: &Path| -> Result<f64, Failure> {
        let about = std::fs::metadata(path).with_context(|| path.display().to_string())?;
        Ok(about.len() as f64)
    };
    let (was, is) = (bytes(Path::new(file))?, bytes(out)?);
    eprintln!("{}: written, {:.0} KiB, {:.0} % of {file}", out.display(), is / KIB, 100.0 * is / was);
    Ok(())
}
