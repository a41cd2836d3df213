//! Variants in ONNX files, run by ONNX Runtime, whose library is loaded at run time.
//!
//! Only the CPU provider so far.

use super::batch::check_inputs;
use super::{Backend, BackendError, Signature, values};
use crate::tensor::{Tensor, TensorSpec};
use ort::environment::Environment;
use ort::session::Session;
use ort::session::builder::SessionBuilder;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Threads inside an operator unless told otherwise: a device of an agent is one thread.
pub const THREADS_DEFAULT: usize = 1;

/// The library that this process has loaded and its environment: ONNX Runtime allows one of each.
static RUNTIME: Mutex<Option<(PathBuf, Environment)>> = Mutex::new(None);

/// A variant in an ONNX file, loaded.
pub struct OnnxBackend {
    session: Session,
    signature: Signature,
}

impl OnnxBackend {
    /// Loads ONNX Runtime from `library` (see [`super::find_library`]), unless this process has it, and the variant from
    /// `file`. A batch runs on `threads` threads (0: as many as there are cores).
    ///
    /// # Errors
    /// [`BackendError::Runtime`] if the library cannot be used, [`BackendError::Load`] if the file is no graph that follows
    /// the convention: every input and output a tensor whose first dimension is the rows, which must be dynamic in inputs.
    pub fn load(library: &Path, file: &Path, threads: usize) -> Result<Self, BackendError> {
        let fail = |detail: String| BackendError::Load { file: file.display().to_string(), detail };
        let environment = runtime(library)?;
        if !file.is_file() {
            return Err(fail("there is no such file".to_owned()));
        }
        let mut builder = builder(&environment, threads).map_err(|e| BackendError::Runtime(e.to_string()))?;
        let session = builder.commit_from_file(file).map_err(|e| fail(e.to_string()))?;
        let signature = signature(&session).map_err(fail)?;
        Ok(Self { session, signature })
    }
}

impl Backend for OnnxBackend {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        check_inputs(&self.signature.inputs, inputs).map_err(BackendError::Input)?;
        let mut fed = Vec::with_capacity(inputs.len());
        for tensor in inputs {
            fed.push((tensor.name.as_str(), values::input(tensor).map_err(BackendError::Input)?));
        }
        let outputs = self.session.run(fed).map_err(|e| BackendError::Run(e.to_string()))?;
        let specs = &self.signature.outputs;
        specs.iter().map(|s| values::output(s, &outputs[s.name.as_str()]).map_err(BackendError::Run)).collect()
    }
}

fn builder(environment: &Environment, threads: usize) -> Result<SessionBuilder, ort::Error> {
    let builder = Session::builder(environment)?.with_intra_threads(threads)?.with_inter_threads(1)?;
    // Waiting threads that spin would take the cores from the other devices of this machine.
    Ok(builder.with_config_entry("session.intra_op.allow_spinning", "0")?)
}

/// The environment of the library at `library`, which is loaded on the first call.
fn runtime(library: &Path) -> Result<Environment, BackendError> {
    let fail = |detail: String| BackendError::Runtime(format!("{}: {detail}", library.display()));
    let path = library.canonicalize().map_err(|e| fail(e.to_string()))?;
    let mut loaded = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((other, environment)) = loaded.as_ref() {
        if *other != path {
            return Err(fail(format!("this process already uses {}", other.display())));
        }
        return Ok(environment.clone());
    }
    let environment = ort::init_from(&path).map_err(|e| fail(e.to_string()))?.with_name("apportion").with_telemetry(false);
    let environment = environment.build().map_err(|e| fail(e.to_string()))?;
    *loaded = Some((path, environment.clone()));
    Ok(environment)
}

fn signature(session: &Session) -> Result<Signature, String> {
    let specs = |outlets: &[ort::value::Outlet], what: &str| -> Result<Vec<TensorSpec>, String> {
        outlets.iter().map(|o| values::spec(o.name(), o.dtype()).map_err(|e| format!("{what} {e}"))).collect()
    };
    let signature = Signature { inputs: specs(session.inputs(), "input")?, outputs: specs(session.outputs(), "output")? };
    if signature.inputs.is_empty() || signature.outputs.is_empty() {
        return Err("a variant has at least one input and one output".to_owned());
    }
    if let Some(fixed) = signature.inputs.iter().find(|i| i.shape[0] != -1) {
        let (name, rows) = (&fixed.name, fixed.shape[0]);
        return Err(format!("input {name}: its first dimension is fixed at {rows}; export it with a dynamic batch axis"));
    }
    Ok(signature)
}

#[cfg(test)]
mod tests;
