//! Which options does the command line of `apportion-agent` have?

use apportion_executor::addresses::{AdvertisedAddresses, host, host_and_port};
use apportion_executor::backend::{BackendKind, Provider, PythonSettings, STAGE_TIMEOUT_DEFAULT};
use apportion_executor::gateway::{REQUESTS_MAX, WAITING_BYTES_MAX};
use apportion_executor::peers::LinkProtection;
use apportion_tls::TlsFiles;
use clap::Parser;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Measures what an agent costs: time per hop, large tensors, requests per second, each beside the plainest way to do it.
#[derive(Parser)]
#[command(name = "apportion-agent bench", version)]
pub struct BenchFlags {
    /// Seconds for each figure
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    pub seconds: f64,
    /// Let processors sleep between requests, as an agent with that flag does
    #[arg(long)]
    pub save_power: bool,
    /// Measure the hop of the example `digits` in this folder too. ONNX Runtime runs its variants; its library is found
    /// as an agent finds it
    #[arg(long)]
    pub digits: Option<PathBuf>,
    /// Measure nothing but the hop, at this many requests per second
    #[arg(long, value_parser = rate, conflicts_with = "digits")]
    pub rate: Option<f64>,
    /// How the two agents' links are protected: `plain` or `tls`
    #[arg(long, default_value = "plain", value_parser = links)]
    pub links: LinkProtection,
}

/// Why the value of a flag is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    #[error("expected requests per second from 1 to 1000000")]
    Rate,
    #[error("expected a whole number from 1 to 16777216")]
    Count,
    #[error("expected seconds from 0.01 to 3600")]
    Seconds,
    #[error("expected a number from 0 to 1")]
    Ratio,
    #[error("expected a factor from 1 to 100")]
    Slowness,
    #[error("expected plain or tls")]
    Links,
    /// This text after `remote=` is no URL of a server.
    #[error("{0:?} is no server: expected http://host:port")]
    Server(String),
    #[error("expected onnx, emulated or remote=http://host:port")]
    Backend,
}

fn rate(text: &str) -> Result<f64, FlagError> {
    let rate = text.parse().ok().filter(|r: &f64| (1.0..=1e6).contains(r));
    rate.ok_or(FlagError::Rate)
}

fn links(text: &str) -> Result<LinkProtection, FlagError> {
    match text {
        "plain" => Ok(LinkProtection::Plain),
        "tls" => Ok(LinkProtection::Tls),
        _ => Err(FlagError::Links),
    }
}

fn at_least_one(text: &str) -> Result<usize, FlagError> {
    let count = text.parse().ok().filter(|n| (1..=1 << 24).contains(n));
    count.ok_or(FlagError::Count)
}

fn seconds(text: &str) -> Result<f64, FlagError> {
    let seconds = text.parse().ok().filter(|s: &f64| (0.01..=3_600.0).contains(s));
    seconds.ok_or(FlagError::Seconds)
}

fn ratio(text: &str) -> Result<f64, FlagError> {
    let ratio = text.parse().ok().filter(|r: &f64| (0.0..=1.0).contains(r));
    ratio.ok_or(FlagError::Ratio)
}

fn slowness(text: &str) -> Result<f64, FlagError> {
    let factor = text.parse().ok().filter(|factor: &f64| (1.0..=100.0).contains(factor));
    factor.ok_or(FlagError::Slowness)
}

/// Serves its part of the fleet's target on this machine's devices.
#[derive(Parser)]
#[command(name = "apportion-agent", version, after_help = "`apportion-agent bench` measures what an agent costs.")]
pub struct Flags {
    /// The control plane, for example http://127.0.0.1:7071, or https:// where it has TLS. Several processes of it are
    /// separated by commas: the agent goes to the next one when its stream ends
    #[arg(long, required = true, value_delimiter = ',', value_name = "URL,..")]
    pub join: Vec<String>,
    /// The token that the control plane asks for. Other users of this machine see the flags of a process: give it by the
    /// variable, or by --token-file
    #[arg(long, env = "APPORTION_TOKEN", hide_env_values = true, required_unless_present = "token_file")]
    pub token: Option<String>,
    /// File with this token. It counts before --token
    #[arg(long, env = "APPORTION_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// File with the authorities of the control plane's certificate, as PEM [default: the authorities of this machine]
    #[arg(long, env = "APPORTION_CACERT")]
    pub cacert: Option<PathBuf>,
    /// Unique name in the fleet [default: with --state-dir host name and a part of the agent's id, which are kept there;
    /// else host name and process number]
    #[arg(long)]
    pub name: Option<String>,
    /// Hardware type of the devices
    #[arg(long, default_value = "cpu")]
    pub hardware: String,
    /// How many devices
    #[arg(long, default_value_t = 1)]
    pub devices: u32,
    /// The zone in which this machine stands: a rack, a room, a zone of a cloud. Machines of one zone may fail together
    #[arg(long, env = "APPORTION_ZONE", default_value = "", hide_default_value = true)]
    pub zone: String,
    /// Where clients come in
    #[arg(long, default_value = "127.0.0.1:0")]
    pub http: String,
    /// Where clients come in by gRPC
    #[arg(long, default_value = "127.0.0.1:0")]
    pub ingress_grpc: String,
    /// Where other agents come in
    #[arg(long, default_value = "127.0.0.1:0")]
    pub data: String,
    /// File with the certificate of the two ports for clients and its chain, as PEM. It is read again when it changes
    /// [default: they have no TLS]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// File with the key of this certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Host of these addresses as clients and other agents are told it [default: the host that the agent listens on; for
    /// 0.0.0.0 this machine's address towards the control plane]
    #[arg(long, env = "APPORTION_ADVERTISE", value_parser = host)]
    pub advertise: Option<String>,
    /// HOST:PORT that clients are told, for example of a proxy
    #[arg(long, env = "APPORTION_ADVERTISE_HTTP", value_parser = host_and_port)]
    pub advertise_http: Option<String>,
    /// HOST:PORT that clients of gRPC are told
    #[arg(long, env = "APPORTION_ADVERTISE_GRPC", value_parser = host_and_port)]
    pub advertise_grpc: Option<String>,
    /// HOST:PORT that other agents are told
    #[arg(long, env = "APPORTION_ADVERTISE_DATA", value_parser = host_and_port)]
    pub advertise_data: Option<String>,
    /// Folder of model files, the last target and the agent's id. An agent that starts there again is the same agent, and
    /// serves its last target again
    #[arg(long)]
    pub state_dir: Option<PathBuf>,
    /// How batches are run. `onnx`: here. `emulated`: from their profiles without any variant, and answers are zeros.
    /// `remote=http://host:port`: by a server of the Open Inference Protocol that has the variants under their names
    #[arg(long, default_value = "onnx")]
    pub backend: BackendFlag,
    /// Where the backend `onnx` runs variants: `cpu`, `cuda` or `tensorrt`. With the last two the agent's devices are
    /// CUDA's by number, and a variant that cannot run there fails to load
    #[arg(long, default_value = "cpu")]
    pub provider: Provider,
    /// The ONNX Runtime library [default: where ORT_DYLIB_PATH says, or the system]
    #[arg(long)]
    pub onnxruntime: Option<PathBuf>,
    /// Threads of a device: those of one batch. A variant that asks for more fails to load
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// The Python 3 with NumPy that runs stages in Python, with the rights of this agent [default: they are refused]
    #[arg(long, value_name = "PROGRAM", env = "APPORTION_PYTHON")]
    pub python: Option<PathBuf>,
    /// Seconds that a batch of a stage in Python may take; then its process is ended
    #[arg(long, default_value_t = STAGE_TIMEOUT_DEFAULT.as_secs_f64(), value_parser = seconds)]
    pub python_timeout_s: f64,
    /// Requests that may wait for their answers at this gateway; more get 429 at once
    #[arg(long, default_value_t = REQUESTS_MAX, value_parser = at_least_one)]
    pub requests_max: usize,
    /// MiB of inputs that those requests may have
    #[arg(long, default_value_t = WAITING_BYTES_MAX >> 20, value_parser = at_least_one)]
    pub inputs_mib_max: usize,
    /// Where spans of traced requests go: an OTLP endpoint over gRPC, for example http://127.0.0.1:4317 [default: no
    /// traces]
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,
    /// How many of the requests that do not say whether they are sampled are traced, from 0 to 1
    #[arg(long, env = "OTEL_TRACES_SAMPLER_ARG", default_value_t = 1.0, value_parser = ratio)]
    pub trace_ratio: f64,
    /// Logs on stderr: `text`, or `json` with an object on each line
    #[arg(long, env = "APPORTION_LOG_FORMAT", default_value = "text", value_parser = ["text", "json"])]
    pub log_format: String,
    /// Let processors sleep between requests at any load. Without it they stay awake while 1,000 events a second come, if
    /// the agent may write to /dev/cpu_dma_latency. A hop then takes less than half as long
    #[arg(long)]
    pub save_power: bool,
    /// Record all that the agent's machines are told and do into this file, to replay it
    #[arg(long, hide = true)]
    pub record: Option<PathBuf>,
    /// Batches take at least a time that is drawn around the profile's: devices are emulated
    #[arg(long)]
    pub pace: bool,
    /// Batches of emulated devices take this many times their profile. The service sees a variant that is slower than its
    /// profile
    #[arg(long, default_value_t = 1.0, value_parser = slowness)]
    pub slowness: f64,
}

/// Why there is no token for the control plane.
#[derive(Debug, thiserror::Error)]
pub enum JoinTokenError {
    /// The file cannot be read.
    #[error("--token-file {}: {why}", .file.display())]
    Unreadable { file: PathBuf, why: std::io::Error },
    /// The file has no line with a text.
    #[error("--token-file {}: expected the token in one line", .0.display())]
    Form(PathBuf),
    /// Neither flag was given, or the token is empty.
    #[error("expected --token-file, or --token with a text")]
    Missing,
}

/// The values of `--backend`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendFlag {
    Onnx,
    Emulated,
    Remote(String),
}

impl FromStr for BackendFlag {
    type Err = FlagError;

    fn from_str(text: &str) -> Result<Self, FlagError> {
        match text.split_once('=') {
            None if text == BackendKind::Local.name() => Ok(Self::Onnx),
            None if text == BackendKind::Emulated.name() => Ok(Self::Emulated),
            Some(("remote", url)) => match tonic::transport::Uri::from_str(url) {
                Ok(u) if u.scheme_str() == Some("http") && u.host().is_some() && u.query().is_none() => {
                    Ok(Self::Remote(url.into()))
                }
                _ => Err(FlagError::Server(url.to_owned())),
            },
            _ => Err(FlagError::Backend),
        }
    }
}

impl Flags {
    /// The token that the control plane asks for. An empty one counts as missing.
    pub fn join_token(&self) -> Result<String, JoinTokenError> {
        let Some(file) = &self.token_file else {
            return self.token.clone().filter(|token| !token.is_empty()).ok_or(JoinTokenError::Missing);
        };
        let unreadable = |why| JoinTokenError::Unreadable { file: file.clone(), why };
        let text = std::fs::read_to_string(file).map_err(unreadable)?;
        let token = text.trim();
        match token.is_empty() || token.contains(char::is_whitespace) {
            true => Err(JoinTokenError::Form(file.clone())),
            false => Ok(token.to_owned()),
        }
    }

    /// The certificate of the ports for clients.
    pub fn tls(&self) -> Option<TlsFiles> {
        let files = self.tls_cert.clone().zip(self.tls_key.clone());
        files.map(|(certificate, key)| TlsFiles { certificate, key, client_authorities: None })
    }

    /// How stages in Python run, if they do. An empty variable of the environment counts as a missing one.
    pub fn python_settings(&self) -> Option<PythonSettings> {
        let program = self.python.clone().filter(|program| !program.as_os_str().is_empty())?;
        Some(PythonSettings { program, timeout: Duration::from_secs_f64(self.python_timeout_s), threads: self.threads })
    }

    /// What others are told.
    pub fn advertised(&self) -> AdvertisedAddresses {
        let (host, http) = (self.advertise.clone(), self.advertise_http.clone());
        AdvertisedAddresses { host, http, grpc: self.advertise_grpc.clone(), data: self.advertise_data.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_below_one_are_no_slowness() {
        assert_eq!(slowness("1.3"), Ok(1.3));
        for wrong in ["0.9", "101", "NaN", "fast"] {
            assert_eq!(slowness(wrong), Err(FlagError::Slowness), "{wrong}");
        }
    }

    #[test]
    fn the_token_comes_from_a_file_or_a_flag() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        for (name, text) in [("right", "t0k3n\n"), ("empty", "\n"), ("two", "a\nb\n")] {
            std::fs::write(path(name), text).expect("our own folder");
        }
        let token = |given: &[&str]| {
            let begin = ["apportion-agent", "--join", "http://127.0.0.1:7071"];
            let flags = Flags::try_parse_from(begin.iter().chain(given)).expect("flags");
            flags.join_token().map_err(|error| error.to_string())
        };
        assert_eq!(token(&["--token", "flag"]), Ok("flag".into()));
        assert_eq!(token(&["--token", ""]), Err(JoinTokenError::Missing.to_string()));
        assert_eq!(token(&["--token", "flag", "--token-file", &path("right")]), Ok("t0k3n".into()));
        for wrong in ["empty", "two", "none"] {
            let refused = token(&["--token-file", &path(wrong)]).expect_err(wrong);
            assert!(refused.contains(&path(wrong)) && !refused.contains("a\nb"), "{refused}");
        }
    }

    #[test]
    fn links_are_plain_or_tls() {
        assert_eq!((links("plain"), links("tls")), (Ok(LinkProtection::Plain), Ok(LinkProtection::Tls)));
        assert_eq!(links("TLS"), Err(FlagError::Links));
    }

    #[test]
    fn backends_are_read_and_others_refused() {
        assert_eq!("onnx".parse(), Ok(BackendFlag::Onnx));
        assert_eq!("emulated".parse(), Ok(BackendFlag::Emulated));
        assert_eq!("remote=http://gpu1:8000".parse(), Ok(BackendFlag::Remote("http://gpu1:8000".into())));
        for wrong in ["", "Emulated", "remote", "remote=", "remote=gpu1:8000", "remote=https://gpu1", "emulated=1"] {
            assert!(wrong.parse::<BackendFlag>().expect_err(wrong).to_string().contains("expected"), "{wrong}");
        }
    }
}
