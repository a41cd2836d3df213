//! Which variants does one model file make, and how does a pipeline file name them?

use apportion_domain::Provider;
use apportion_import::yaml_scalar;

/// The precision of a variant's weights and calculations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Precision {
    /// The file as it is.
    Fp32,
    /// Floats of 16 bits.
    Fp16,
    /// Weights of 8 bits. The scale of what they are multiplied by is found for each batch (dynamic quantisation).
    Int8,
}

impl Precision {
    /// Its name on the command line and in names of variants.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Fp16 => "fp16",
            Self::Int8 => "int8",
        }
    }
}

/// The choices that are combined. Threads and providers may be empty: variants then run as their devices do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VariantAxes {
    /// Precisions.
    pub precisions: Vec<Precision>,
    /// Threads of a batch on processors.
    pub threads: Vec<u32>,
    /// Providers.
    pub providers: Vec<Provider>,
}

/// One variant of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedVariant {
    /// Its name: that of the file, and what differs.
    pub name: String,
    /// Its precision, which says its file.
    pub precision: Precision,
    /// Its threads; `None`: those of the device.
    pub threads: Option<u32>,
    /// Its provider; `None`: that of the device.
    pub provider: Option<Provider>,
}

/// The variants of the model named `stem`: all combinations, each once. Providers of GPUs come without threads, because
/// these compute nothing there, and without int8: dynamic quantisation has operators for processors only.
pub fn derive_variants(stem: &str, axes: &VariantAxes) -> Vec<DerivedVariant> {
    let mut variants = Vec::<DerivedVariant>::new();
    for &precision in &axes.precisions {
        for provider in or_none(&axes.providers) {
            let is_on_gpu = provider.is_some_and(Provider::is_on_gpu);
            if is_on_gpu && precision == Precision::Int8 {
                continue;
            }
            for threads in if is_on_gpu { vec![None] } else { or_none(&axes.threads) } {
                let name = variant_name(stem, precision, threads, provider);
                if variants.iter().all(|known| known.name != name) {
                    variants.push(DerivedVariant { name, precision, threads, provider });
                }
            }
        }
    }
    variants
}

fn or_none<T: Copy>(values: &[T]) -> Vec<Option<T>> {
    if values.is_empty() { vec![None] } else { values.iter().copied().map(Some).collect() }
}

/// Names in pipelines have no `>` and `:`, which separate names in paths.
fn variant_name(stem: &str, precision: Precision, threads: Option<u32>, provider: Option<Provider>) -> String {
    let precision = (precision != Precision::Fp32).then(|| precision.name().to_owned());
    let provider = provider.map(|provider| provider.name().to_owned());
    let threads = threads.map(|threads| format!("{threads}t"));
    let parts: Vec<String> =
        [Some(stem.replace(['>', ':'], "-")), precision, provider, threads].into_iter().flatten().collect();
    parts.join("-")
}

/// The variants as a pipeline file lists them. `path` says where the file of a precision lies.
pub fn entries_yaml(variants: &[DerivedVariant], path: impl Fn(Precision) -> String) -> String {
    let entry = |variant: &DerivedVariant| {
        let threads = variant.threads.map_or_else(String::new, |threads| format!(", threads: {threads}"));
        let provider = variant.provider.map_or_else(String::new, |provider| format!(", provider: {provider}"));
        let (name, model) = (yaml_scalar(&variant.name), path(variant.precision));
        format!("  - {{name: {name}, model: {}{threads}{provider}}}\n", yaml_scalar(&model))
    };
    format!("variants:\n{}", variants.iter().map(entry).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_wire::read_pipeline_spec;

    fn names(axes: &VariantAxes) -> Vec<String> {
        derive_variants("m", axes).into_iter().map(|variant| variant.name).collect()
    }

    #[test]
    fn names_say_what_differs() {
        let all = vec![Precision::Fp32, Precision::Fp16, Precision::Int8];
        let plain = VariantAxes { precisions: all.clone(), ..VariantAxes::default() };
        assert_eq!(names(&plain), ["m", "m-fp16", "m-int8"]);
        let axes = VariantAxes { precisions: all, threads: vec![1, 2, 2], providers: vec![Provider::Cpu, Provider::Cuda] };
        let expected = [
            "m-cpu-1t",
            "m-cpu-2t",
            "m-cuda",
            "m-fp16-cpu-1t",
            "m-fp16-cpu-2t",
            "m-fp16-cuda",
            "m-int8-cpu-1t",
            "m-int8-cpu-2t",
        ];
        assert_eq!(names(&axes), expected, "int8 is for processors, and threads too");
        assert_eq!(derive_variants("a>b:c", &plain)[0].name, "a-b-c");
    }

    #[test]
    fn entries_are_a_part_of_a_pipeline_file() {
        let axes = VariantAxes {
            precisions: vec![Precision::Fp32, Precision::Int8],
            threads: vec![2],
            providers: vec![Provider::Cpu],
        };
        let variants = derive_variants("8 bits", &axes);
        let text = entries_yaml(&variants, |precision| format!("my models/{}.onnx", precision.name()));
        let indented: String = text.lines().map(|line| format!("    {line}\n")).collect();
        let yaml = format!("name: p\nslo_ms: 100\ntasks:\n  - name: t\n{indented}");
        let spec = read_pipeline_spec("p.yaml", &yaml).unwrap_or_else(|e| panic!("{e}\n{yaml}"));
        let read: Vec<_> = spec.tasks[0].variants.iter().map(|v| (v.name.as_str(), v.model.as_deref())).collect();
        let expected =
            [("8 bits-cpu-2t", Some("my models/fp32.onnx")), ("8 bits-int8-cpu-2t", Some("my models/int8.onnx"))];
        assert_eq!(read, expected);
        let asked = spec.tasks[0].variants[0].execution();
        assert_eq!((asked.threads, asked.provider), (Some(2), Some(Provider::Cpu)));
    }
}
