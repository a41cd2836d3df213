//! Which variants does this device measure, and with how many threads? Which of them are dominated?

use apportion_profiler::{PipelineFiles, Provider, THREADS_DEFAULT};
use apportion_support::output::TextTable;
use apportion_wire::{BadInput, ProfileSet};

/// The files without the variants that ask for a provider with other devices than `here`. Standard error names these.
///
/// # Errors
/// If a task has no variant left.
pub fn measured_here(file: &str, mut files: PipelineFiles, here: Provider) -> Result<PipelineFiles, BadInput> {
    for (t, task) in files.tasks.iter_mut().enumerate() {
        task.variants.retain(|variant| {
            let elsewhere = variant.execution.provider.filter(|asked| asked.is_on_gpu() != here.is_on_gpu());
            if let Some(asked) = elsewhere {
                eprintln!("{}/{}: not measured here: its provider is {asked}, and this is {here}", task.name, variant.name);
            }
            elsewhere.is_none()
        });
        if task.variants.is_empty() {
            let (at, expected) = (format!("/tasks/{t}/variants"), format!("a variant that runs with --provider {here}"));
            return Err(BadInput::one(file, at, "only variants of other providers", expected));
        }
    }
    Ok(files)
}

/// The threads of a device: those that are given, else the most that a variant asks for. Standard error says what agents
/// of this hardware type need for that.
pub fn threads(given: Option<u32>, files: &PipelineFiles, hardware: &str) -> usize {
    let asked = files.tasks.iter().flat_map(|task| &task.variants).filter_map(|variant| variant.execution.threads);
    let most = asked.max().map_or(THREADS_DEFAULT, |threads| threads as usize);
    if given.is_none() && most > THREADS_DEFAULT {
        eprintln!("variants ask for {most} threads: agents of the hardware type {hardware} need --threads {most}");
    }
    given.map_or(most, |threads| threads as usize)
}

/// The dominated variants, as a table after others. Empty if there is none.
pub fn dominated_table(set: &ProfileSet) -> String {
    let mut table = TextTable::new(&["task", "variant", "hardware", "dominated by"]);
    let mut is_empty = true;
    for variant in &set.variants {
        for (hardware, by) in &variant.dominated_by {
            table.row([&variant.task, &variant.variant, hardware, by].map(String::clone).to_vec());
            is_empty = false;
        }
    }
    if is_empty { String::new() } else { format!("\n{}", table.text("")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_domain::{VariantExecution, VariantRuntime};
    use apportion_profiler::{TaskFiles, VariantFile};
    use apportion_wire::MeasuredVariant;
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    fn files(asked: &[(&str, Option<u32>, Option<Provider>)]) -> PipelineFiles {
        let variant = |&(name, threads, provider): &(&str, Option<u32>, Option<Provider>)| VariantFile {
            name: name.to_owned(),
            file: PathBuf::new(),
            runtime: VariantRuntime::Onnx,
            execution: VariantExecution { threads, provider },
        };
        let variants = asked.iter().map(variant).collect();
        PipelineFiles {
            tasks: vec![TaskFiles { name: "t".to_owned(), variants, ..TaskFiles::default() }],
            edges: Vec::new(),
            validation: None,
        }
    }

    #[test]
    fn variants_of_other_devices_are_left_out() {
        let all = files(&[
            ("plain", None, None),
            ("cpu", None, Some(Provider::Cpu)),
            ("cuda", None, Some(Provider::Cuda)),
            ("trt", None, Some(Provider::TensorRt)),
        ]);
        let names = |here| {
            let kept = measured_here("p.yaml", all.clone(), here).unwrap_or_else(|e| panic!("{e}"));
            kept.tasks[0].variants.iter().map(|variant| variant.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(Provider::Cpu), ["plain", "cpu"]);
        assert_eq!(names(Provider::TensorRt), ["plain", "cuda", "trt"]);
        let refused = measured_here("p.yaml", files(&[("g", None, Some(Provider::Cuda))]), Provider::Cpu);
        let said = refused.expect_err("nothing is left").to_string();
        assert!(said.contains("/tasks/0/variants") && said.contains("runs with --provider cpu"), "{said}");
    }

    #[test]
    fn a_device_has_the_threads_of_its_largest_variant() {
        let asked = files(&[("a", Some(2), None), ("b", None, None), ("c", Some(4), None)]);
        assert_eq!(threads(None, &asked, "cpu"), 4);
        assert_eq!(threads(Some(3), &asked, "cpu"), 3);
        assert_eq!(threads(None, &files(&[("a", None, None)]), "cpu"), THREADS_DEFAULT);
    }

    #[test]
    fn only_dominated_variants_are_listed() {
        let variant = |name: &str, dominated_by| MeasuredVariant {
            task: "t".to_owned(),
            variant: name.to_owned(),
            dominated_by,
            ..MeasuredVariant::default()
        };
        let free = variant("free", BTreeMap::new());
        let marked = variant("slow", [("cpu".to_owned(), "free".to_owned())].into());
        assert_eq!(dominated_table(&ProfileSet { variants: vec![free.clone()], ..ProfileSet::default() }), "");
        let text = dominated_table(&ProfileSet { variants: vec![free, marked], ..ProfileSet::default() });
        let rows: Vec<Vec<&str>> = text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows, [["t", "slow", "cpu", "free"]], "{text}");
    }
}
