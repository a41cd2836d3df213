//! How much memory does a variant take at its peak, loaded and run with its largest batch?
//!
//! The measurement needs a process of its own: nothing else grows in it, and it uses no memory of another variant again.
//! The caller starts this process. It reads the batch from its standard input ([`read_inputs`]) and measures
//! ([`peak_memory_mib`]).
//!
//! On a processor, the figure is the growth of the resident memory, from before the variant is loaded to its highest mark.
//! Pages of shared libraries do not count, because all replicas of an agent share them. On a CUDA device, the figure is the
//! growth of the device's memory in use, as the driver reports it. ONNX Runtime's arena returns no memory while the variant
//! is loaded, so the memory at the end is the peak.

use crate::files::VariantFile;
use crate::whole_queries::whole_queries;
use apportion_executor::backend::{Backend, BackendError, ExecutionSettings, OnnxBackend, Provider};
use apportion_executor::devices::{Devices, VISIBLE_VARIABLE};
use apportion_executor::tensor::{Datatype, Tensor, holds};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use std::path::Path;

/// Measures the peak memory, in MiB, of a variant when it runs this batch; `None` if it cannot be measured.
pub type MemoryProbe<'a> = dyn Fn(&VariantFile, &[Tensor]) -> Result<Option<f64>, BackendError> + 'a;

/// Runs of the batch: ONNX Runtime plans its memory in the first run and allocates it in the second.
const RUNS: usize = 3;
/// Longest header of a batch.
const HEADER_BYTES_MAX: u64 = 1 << 20;
/// Largest batch that is read.
const BATCH_BYTES_MAX: u64 = 16 << 30;
const MIB: f64 = (1 << 20) as f64;

/// One tensor of a batch; its bytes follow the header.
#[derive(Serialize, Deserialize)]
struct Head {
    name: String,
    datatype: String,
    shape: Vec<usize>,
    bytes: usize,
}

/// Writes a batch: a line of JSON, then the tensors' bytes one after the other.
///
/// # Errors
/// The writer's.
pub fn write_inputs(out: &mut impl Write, inputs: &[Tensor]) -> io::Result<()> {
    let head = |t: &Tensor| Head {
        name: t.name.clone(),
        datatype: t.datatype.name().to_owned(),
        shape: t.shape.clone(),
        bytes: t.data.len(),
    };
    serde_json::to_writer(&mut *out, &inputs.iter().map(head).collect::<Vec<_>>())?;
    out.write_all(b"\n")?;
    for tensor in inputs {
        out.write_all(&tensor.data)?;
    }
    out.flush()
}

/// Reads a batch that [`write_inputs`] wrote.
///
/// # Errors
/// The reader's, or that the input is no batch.
pub fn read_inputs(from: &mut impl BufRead) -> io::Result<Vec<Tensor>> {
    let broken = |detail: String| io::Error::new(io::ErrorKind::InvalidData, detail);
    let mut line = Vec::new();
    from.by_ref().take(HEADER_BYTES_MAX).read_until(b'\n', &mut line)?;
    let heads: Vec<Head> = serde_json::from_slice(&line).map_err(|e| broken(format!("the batch's header: {e}")))?;
    let mut tensors = Vec::with_capacity(heads.len());
    for Head { name, datatype, shape, bytes } in heads {
        let datatype =
            Datatype::from_name(&datatype).ok_or_else(|| broken(format!("{name}: unknown datatype {datatype}")))?;
        if bytes as u64 > BATCH_BYTES_MAX {
            return Err(broken(format!("{name}: {bytes} bytes: expected at most {BATCH_BYTES_MAX}")));
        }
        let mut data = Vec::new();
        from.by_ref().take(bytes as u64).read_to_end(&mut data)?;
        let tensor = Tensor { name, datatype, shape, data: Bytes::from(data) };
        if tensor.data.len() != bytes {
            return Err(broken(format!("{}: it ends after {} of {bytes} bytes", tensor.name, tensor.data.len())));
        }
        holds(&tensor.data, &tensor.shape, tensor.datatype).map_err(|e| broken(format!("{}: {e}", tensor.name)))?;
        tensors.push(tensor);
    }
    Ok(tensors)
}

/// Peak memory of a variant in MiB, above the memory of this process and the runtime; `None` if the device does not report
/// it. Call it in a process that does nothing else.
///
/// # Errors
/// As [`OnnxBackend::load`], and if the batch cannot be run.
pub fn peak_memory_mib(
    library: &Path,
    running: ExecutionSettings,
    file: &Path,
    inputs: &[Tensor],
) -> Result<Option<f64>, BackendError> {
    let load_and_run = || -> Result<Box<dyn Backend>, BackendError> {
        let mut backend = whole_queries(OnnxBackend::load(library, file, running)?, file)?;
        for _ in 0..RUNS {
            backend.run(inputs)?;
        }
        Ok(backend)
    };
    match running.provider {
        Provider::Cpu => {
            OnnxBackend::prepare(library)?;
            let before = Resident::now()?;
            // If the mark cannot be reset, it is that of the start of the process, which is not higher.
            let _kept = std::fs::write("/proc/self/clear_refs", "5");
            let backend = load_and_run()?;
            let after = Resident::now()?;
            drop(backend);
            let libraries = after.libraries.saturating_sub(before.libraries);
            Ok(Some(after.highest.saturating_sub(before.now).saturating_sub(libraries) as f64 / MIB))
        }
        Provider::Cuda | Provider::TensorRt => {
            let visible = std::env::var(VISIBLE_VARIABLE).ok();
            let Ok(devices) = Devices::open(visible.as_deref(), running.device.saturating_add(1)) else { return Ok(None) };
            let used = || devices.read_all().into_iter().find(|seen| seen.device == running.device)?.memory_used;
            // The first variant creates CUDA's context, which stays. All replicas of an agent share it.
            drop(load_and_run()?);
            let before = used();
            let backend = load_and_run()?;
            let after = used();
            drop(backend);
            Ok(before.zip(after).map(|(before, after)| after.saturating_sub(before) as f64 / MIB))
        }
    }
}

/// Resident memory of this process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Resident {
    now: u64,
    highest: u64,
    /// Pages of shared libraries, included in both.
    libraries: u64,
}

impl Resident {
    fn now() -> Result<Self, BackendError> {
        let read = |file: &str| std::fs::read_to_string(file).map_err(|e| BackendError::Run(format!("{file}: {e}")));
        Self::parse(&read("/proc/self/status")?, &read("/proc/self/smaps")?)
            .ok_or_else(|| BackendError::Run("/proc/self/status does not say VmRSS and VmHWM".to_owned()))
    }

    fn parse(status: &str, maps: &str) -> Option<Self> {
        let field = |name: &str| status.lines().find_map(|line| kib(line.strip_prefix(name)?));
        let mut libraries = 0;
        let mut is_library = false;
        for line in maps.lines() {
            match line.strip_prefix("Rss:") {
                Some(rest) if is_library => libraries += kib(rest)?,
                Some(_) => {}
                // `7f00-7f10 r-xp 00000000 08:01 42  /usr/lib/libc.so.6`; lines of figures have a name that ends with a
                // colon.
                None if line.split_whitespace().next().is_some_and(|word| !word.ends_with(':')) => {
                    let path = line.split_whitespace().nth(5).unwrap_or_default();
                    is_library = path.ends_with(".so") || path.contains(".so.");
                }
                None => {}
            }
        }
        Some(Self { now: field("VmRSS:")?, highest: field("VmHWM:")?, libraries })
    }
}

/// Bytes of `   12 kB`.
fn kib(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_survives_writing_and_reading() {
        let tensor = |name: &str, datatype, shape: &[usize], data: Vec<u8>| Tensor {
            name: name.to_owned(),
            datatype,
            shape: shape.to_vec(),
            data: data.into(),
        };
        let batch = [
            tensor("image", Datatype::Uint8, &[2, 3], vec![1, 2, 3, 4, 5, 6]),
            tensor("text", Datatype::Bytes, &[1], vec![1, 0, 0, 0, b'\n']),
            tensor("none", Datatype::Fp32, &[0, 4], Vec::new()),
        ];
        let mut bytes = Vec::new();
        write_inputs(&mut bytes, &batch).expect("memory takes everything");
        assert_eq!(read_inputs(&mut bytes.as_slice()).expect("it was written so"), batch);
        for cut in [0, 5, bytes.len() - 1] {
            assert!(read_inputs(&mut &bytes[..cut]).is_err(), "{cut} bytes of {}", bytes.len());
        }
    }

    #[test]
    fn resident_memory_is_read_without_libraries() {
        let status = "Name:\tx\nVmHWM:\t    300 kB\nVmRSS:\t    200 kB\n";
        let maps = "55d0-55e0 r-xp 00000000 08:01 1  /usr/bin/x\nSize: 8 kB\nRss: 40 kB\n\
                    7f00-7f10 r-xp 00000000 08:01 2  /opt/libonnxruntime.so.1.2\nRss: 16 kB\nPss: 16 kB\n\
                    7f20-7f30 rw-p 00000000 00:00 0 \nRss: 100 kB\n\
                    7f40-7f50 r--p 00000000 08:01 3  /usr/lib/libm.so\nRss: 4 kB\n";
        let seen = Resident::parse(status, maps).expect("both marks are there");
        assert_eq!(seen, Resident { now: 200 << 10, highest: 300 << 10, libraries: 20 << 10 });
        assert_eq!(Resident::parse("VmRSS: 1 kB\n", ""), None);
        let own = Resident::now().expect("this is Linux");
        assert!(own.now > 0 && own.highest >= own.now && own.libraries < own.now, "{own:?}");
    }
}
