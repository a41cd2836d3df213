//! What does a variant ask of its execution, and can that be?

use crate::spec::VariantSpec;
use apportion_domain::{Invalid, Provider, VARIANT_THREADS_MAX, VariantExecution, VariantRuntime};

impl VariantSpec {
    /// What it asks of its execution. The file was checked, so an unknown provider is none.
    #[must_use]
    pub fn execution(&self) -> VariantExecution {
        let provider = self.provider.as_deref().and_then(Provider::from_name);
        VariantExecution { threads: self.threads, provider }
    }

    /// What is wrong with it; `at` is the pointer of the variant.
    pub(crate) fn execution_problems(&self, at: &str) -> Vec<Invalid> {
        let mut problems = Vec::new();
        if let Some(threads) = self.threads.filter(|threads| !(1..=VARIANT_THREADS_MAX).contains(threads)) {
            let expected = format!("a whole number from 1 to {VARIANT_THREADS_MAX}");
            problems.push(Invalid::new(format!("{at}/threads"), threads, expected));
        }
        if let Some(provider) = self.provider.as_ref().filter(|_| self.file_runtime() == VariantRuntime::Python) {
            let expected = "no provider: a stage in Python chooses its own devices";
            problems.push(Invalid::new(format!("{at}/provider"), format!("{provider:?}"), expected));
        }
        problems
    }
}
