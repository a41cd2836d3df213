//! How is a model with state measured, which an agent runs step by step?

use apportion_executor::backend::{Backend, BackendError, OnnxBackend, PAST, SteppedBackend};
use std::path::Path;

/// A model with state is measured by whole queries: all rows of a batch begin together, and the last one ends it.
pub(crate) fn whole_queries(model: OnnxBackend, file: &Path) -> Result<Box<dyn Backend>, BackendError> {
    if !model.signature().inputs.iter().any(|input| input.name.starts_with(PAST)) {
        return Ok(Box::new(model));
    }
    let file = file.display().to_string();
    let stepped = SteppedBackend::new(Box::new(model));
    let stepped = stepped.map_err(|error| BackendError::Load { file, detail: error.to_string() });
    stepped.map(|b| Box::new(b) as Box<dyn Backend>)
}
