//! How does ONNX Runtime run a variant? Its library is loaded at run time.
//!
//! A session gets the provider that the user asked for, and the CPU's, which ONNX Runtime always adds. One batch is run
//! to see which of the two the runtime really uses (see [`super::provider`]).

use super::batch::{check_inputs, check_rows};
use super::error::{OutletError, RuntimeProfileError, SignatureError};
use super::provider::{ExecutionSettings, Placed, Provider};
use super::{Backend, BackendError, Signature, values};
use apportion_node::tensor::{Tensor, TensorSignature, zero_row};
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
    placed: Placed,
}

impl OnnxBackend {
    /// Loads ONNX Runtime from `library`, unless this process has it, and no variant.
    ///
    /// # Errors
    /// [`BackendError::Runtime`] if the library cannot be used.
    pub fn prepare(library: &Path) -> Result<(), BackendError> {
        runtime(library).map(drop)
    }

    /// Loads ONNX Runtime from `library` (see [`super::find_library`]), unless this process has it. Loads the variant from
    /// `file`, and runs a row of zeros to see where its nodes run.
    ///
    /// # Errors
    /// [`BackendError::Runtime`] if the library cannot be used. [`BackendError::Load`] if the file does not follow the
    /// convention: every input and output is a tensor, and its first dimension is the rows. That dimension is dynamic in
    /// inputs. [`BackendError::Provider`] if the provider cannot be set up, or if it runs none of the graph.
    pub fn load(library: &Path, file: &Path, running: ExecutionSettings) -> Result<Self, BackendError> {
        let name = file.display().to_string();
        let fail = |detail: String| BackendError::Load { file: name.clone(), detail };
        let environment = runtime(library)?;
        if !file.is_file() {
            return Err(fail("there is no such file".to_owned()));
        }
        // What the runtime notes down of the first batch goes with this folder.
        let notes = tempfile::tempdir().map_err(|e| BackendError::Runtime(format!("a folder for its notes: {e}")))?;
        let mut builder = builder(&environment, running.threads, notes.path())
            .map_err(|e| BackendError::Runtime(e.to_string()))?
            .with_execution_providers(running.dispatches())
            .map_err(|e| running.refused(&name, &e.to_string()))?;
        let session = builder.commit_from_file(file).map_err(|e| fail(e.to_string()))?;
        let signature = signature(&session).map_err(|e| fail(e.to_string()))?;
        let mut this = Self { session, signature, placed: Placed::default() };
        this.placed = this.try_out().map_err(|e| fail(e.to_string()))?;
        let ran = this.placed.nodes(running.provider.runtime_name());
        let elsewhere = this.placed.elsewhere(running.provider);
        // A graph that the runtime has folded to nothing has no nodes to run anywhere, which is as good on the CPU.
        if ran == 0 && running.provider != Provider::Cpu {
            let elsewhere = elsewhere.unwrap_or_else(|| "none that was seen".to_owned());
            return Err(running.refused(&name, &format!("it runs none of the nodes: {elsewhere}")));
        }
        if let Some(elsewhere) = elsewhere {
            let asked = running.provider.name();
            tracing::warn!(file = name, asked, ran, elsewhere, "a part of a variant runs on another provider");
        }
        Ok(this)
    }

    /// The nodes that ran, by provider.
    #[must_use]
    pub fn placed(&self) -> &Placed {
        &self.placed
    }

    /// Runs a row of zeros and reads where its nodes ran. Zeros need not be a valid input: what ran before is noted all
    /// the same.
    fn try_out(&mut self) -> Result<Placed, RuntimeProfileError> {
        let zeros: Vec<Tensor> = self.signature.inputs.iter().map(zero_row).collect();
        let ran = self.run(&zeros);
        let file = self.session.end_profiling().map_err(RuntimeProfileError::Runtime)?;
        let text = std::fs::read_to_string(&file).map_err(|error| RuntimeProfileError::File { file, error })?;
        let placed = Placed::read(&text)?;
        if let Err(error) = ran {
            tracing::warn!(%error, "a variant cannot run a row of zeros");
        }
        Ok(placed)
    }
}

impl Backend for OnnxBackend {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        check_inputs(&self.signature.inputs, inputs)?;
        let mut fed = Vec::with_capacity(inputs.len());
        for tensor in inputs {
            fed.push((tensor.name.as_str(), values::input(tensor)?));
        }
        let outputs = self.session.run(fed).map_err(|e| BackendError::Run(e.to_string()))?;
        let specs = &self.signature.outputs;
        let tensor = |spec: &TensorSignature| values::output(spec, &outputs[spec.name.as_str()]);
        specs.iter().map(|s| tensor(s).map_err(|e| BackendError::Run(e.to_string()))).collect()
    }
}

fn builder(environment: &Environment, threads: usize, notes: &Path) -> Result<SessionBuilder, ort::Error> {
    let builder = Session::builder(environment)?.with_intra_threads(threads)?.with_inter_threads(1)?;
    let builder = builder.with_profiling(notes.join("first"))?;
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

fn signature(session: &Session) -> Result<Signature, SignatureError> {
    let specs = |outlets: &[ort::value::Outlet]| -> Result<Vec<TensorSignature>, OutletError> {
        outlets.iter().map(|o| values::spec(o.name(), o.dtype())).collect()
    };
    let inputs = specs(session.inputs()).map_err(SignatureError::Input)?;
    let outputs = specs(session.outputs()).map_err(SignatureError::Output)?;
    let signature = Signature { inputs, outputs };
    if signature.inputs.is_empty() || signature.outputs.is_empty() {
        return Err(SignatureError::Empty);
    }
    if let Some(fixed) = signature.inputs.iter().find(|i| i.shape[0] != -1) {
        return Err(SignatureError::FixedRows { name: fixed.name.clone(), rows: fixed.shape[0] });
    }
    check_rows(&signature.inputs)?;
    Ok(signature)
}

#[cfg(test)]
mod tests;
