//! How are the service and its agents started on this machine, and how is a pipeline deployed?

use super::console::print_progress;
use super::process::{Process, program_beside_this};
use super::service::{JoinedAgent, Service};
use anyhow::{Context, Result, ensure};
use apportion_support::ports::free_port;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Hardware type of the devices of all experiments on this machine.
pub const HARDWARE: &str = "demo-slot";
/// A device holds its slot for this multiple of the measured time, unless another multiple is asked for.
pub const MULTIPLE: f64 = 10.0;

/// How the agents of a fleet run batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FleetBackend {
    /// Real variants run. Each device is then held until its time has passed.
    #[default]
    Onnx,
    /// The profile is played back, and nothing is computed.
    Emulated,
}

impl FleetBackend {
    /// The value of the agents' option `--backend`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Onnx => "onnx",
            Self::Emulated => "emulated",
        }
    }
}

/// The clock that times the batches of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileClock {
    /// The time that a client waits. Its 99th percentiles are measured.
    Wall,
    /// The processor time of the thread. Other work does not lengthen it. It has means alone.
    Processor,
}

impl ProfileClock {
    /// The value of the option `--clock` of `apportion profile`.
    fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Processor => "processor",
        }
    }
}

/// The processes to start, and the pipeline that they serve.
#[derive(Clone, Debug)]
pub struct FleetSettings {
    /// Agents to start.
    pub agents: u32,
    /// Devices of each agent.
    pub devices: u32,
    /// A device holds its slot until this multiple of the measured time, so that devices are the bottleneck and not cores.
    /// `None`: 10, or the multiple that the free processors and the objective need.
    pub multiple: Option<f64>,
    /// The pipeline to deploy; it must name a validation set.
    pub pipeline: Option<PathBuf>,
    /// Where the service and the agents keep their files and logs; a temporary folder by default.
    pub data_dir: Option<PathBuf>,
}

impl FleetSettings {
    /// The pipeline that was asked for, or else the one that ships with the project.
    ///
    /// # Errors
    /// If neither is there.
    pub fn pipeline_file(&self) -> Result<PathBuf> {
        self.pipeline.clone().map_or_else(find_example_pipeline, Ok)
    }
}

/// The service as a process of its own, with a private database. Dropping it stops the process.
pub struct LocalService {
    process: Process,
    /// The service, as its clients reach it.
    pub service: Service,
    /// The service's URL.
    pub api: String,
    /// The URL where agents join.
    pub grpc: String,
    /// The token that agents show.
    pub token: String,
}

impl LocalService {
    /// Starts it with further arguments, and waits until it is ready. Its files and its log are in `data_dir`.
    ///
    /// # Errors
    /// If a port is taken, or the service does not come up.
    pub async fn start(data_dir: &Path, arguments: &[String]) -> Result<Self> {
        let (http, grpc) = (free_port()?, free_port()?);
        let token = uuid::Uuid::now_v7().to_string();
        let api = format!("http://127.0.0.1:{http}");
        let mut serve = vec!["serve".to_owned()];
        serve.extend(flags(&[
            ("data-dir", data_dir.join("service").display().to_string()),
            ("http", format!("127.0.0.1:{http}")),
            ("grpc", format!("127.0.0.1:{grpc}")),
            ("token", token.clone()),
        ]));
        serve.extend_from_slice(arguments);
        print_progress(&format!("starting the service on {api}, with its own private PostgreSQL"));
        let process = Process::start("service", &std::env::current_exe()?, &serve, data_dir)?;
        let service = Service::new(api.clone())?;
        let started = Self { process, service, api, grpc: format!("http://127.0.0.1:{grpc}"), token };
        if let Err(error) = started.service.wait_until_ready().await {
            let log = std::fs::read_to_string(data_dir.join("service.log")).unwrap_or_default();
            return Err(error.context(format!("the service said:\n{log}")));
        }
        Ok(started)
    }
}

/// Options of a program with their values.
fn flags(pairs: &[(&str, String)]) -> Vec<String> {
    pairs.iter().flat_map(|(name, value)| [format!("--{name}"), value.clone()]).collect()
}

/// All started processes. Dropping it stops them, agents first.
pub struct LocalFleet {
    /// The agents.
    pub agents: Vec<Process>,
    service_process: Process,
    /// The service, as its clients reach it.
    pub service: Service,
    /// The service's URL.
    pub api: String,
    /// The URL where agents join.
    pub grpc: String,
    /// The token that agents show.
    pub token: String,
    /// The folder of files and logs.
    pub data_dir: PathBuf,
    _temporary: Option<tempfile::TempDir>,
}

impl LocalFleet {
    /// Starts the service and the agents, and waits for the service.
    ///
    /// # Errors
    /// If a program is not built, a port is taken, or the service does not come up.
    pub async fn start(settings: &FleetSettings) -> Result<Self> {
        Self::start_on(settings, FleetBackend::Onnx).await
    }

    /// The same with agents that run batches in this way.
    ///
    /// # Errors
    /// As [`LocalFleet::start`].
    pub async fn start_on(settings: &FleetSettings, backend: FleetBackend) -> Result<Self> {
        let temporary =
            if settings.data_dir.is_none() { Some(tempfile::tempdir().context("a temporary folder")?) } else { None };
        let data_dir = settings.data_dir.clone().or(temporary.as_ref().map(|t| t.path().to_owned())).context("a folder")?;
        std::fs::create_dir_all(&data_dir).with_context(|| format!("creating {}", data_dir.display()))?;
        let LocalService { process, service, api, grpc, token } = LocalService::start(&data_dir, &[]).await?;
        let mut fleet = Self {
            agents: Vec::new(),
            service_process: process,
            service,
            api,
            grpc,
            token,
            data_dir,
            _temporary: temporary,
        };
        let body = json!({"name": HARDWARE, "price_per_hour": 1.0});
        fleet.service.put(&format!("/v1/hardware/{HARDWARE}"), &body).await?;
        for i in 1..=settings.agents {
            let name = format!("agent-{i}");
            let mut flags = flags(&[
                ("join", fleet.grpc.clone()),
                ("token", fleet.token.clone()),
                ("name", name.clone()),
                ("hardware", HARDWARE.to_owned()),
                ("devices", settings.devices.to_string()),
                ("backend", backend.name().to_owned()),
                ("state-dir", fleet.data_dir.join(&name).display().to_string()),
            ]);
            flags.push("--pace".to_owned());
            fleet.agents.push(Process::start(&name, &program_beside_this("apportion-agent")?, &flags, &fleet.data_dir)?);
        }
        Ok(fleet)
    }

    /// Profiles the pipeline on this machine and registers it, with `apportion profile`. Times are processor times, which
    /// other work does not lengthen, times `multiple`.
    ///
    /// # Errors
    /// If it fails.
    pub async fn profile(&self, file: &Path, multiple: f64) -> Result<()> {
        self.profile_by(ProfileClock::Processor, file, multiple).await
    }

    /// The same with the times of this clock.
    ///
    /// # Errors
    /// If it fails.
    pub async fn profile_by(&self, clock: ProfileClock, file: &Path, multiple: f64) -> Result<()> {
        print_progress("profiling every variant alone, and the validation set through every combination");
        let mut command = tokio::process::Command::new(std::env::current_exe()?);
        command.arg("profile").arg(file).args(["--hardware", HARDWARE, "--register", &self.api]);
        command.args(["--clock", clock.name(), "--multiple", &multiple.to_string()]).stdout(std::process::Stdio::null());
        let status = command.status().await.context("running `apportion profile`")?;
        ensure!(status.success(), "`apportion profile` ended with {status}");
        Ok(())
    }

    /// Scales the registered profile from one multiple of the measured time to another, so that devices hold their slots
    /// for that long.
    ///
    /// # Errors
    /// If there is no such profile.
    pub async fn scale_profile(&self, pipeline: &str, from: f64, to: f64) -> Result<()> {
        let path = format!("/v1/pipelines/{pipeline}/profiles");
        let mut profile = self.service.get(&path).await?;
        let scale = |times: &mut Value| {
            for time in ["latency_ms", "p99_ms"] {
                if let Some(ms) = times[time].as_f64() {
                    times[time] = (ms / from * to).into();
                }
            }
        };
        for row in profile["rows"].as_array_mut().into_iter().flatten() {
            scale(row);
            row.pointer_mut("/measured/by_shape").and_then(Value::as_array_mut).into_iter().flatten().for_each(scale);
        }
        self.service.put(&path, &profile).await?;
        Ok(())
    }

    /// Changes the registered pipeline.
    ///
    /// # Errors
    /// If the service refuses it.
    pub async fn change_pipeline(&self, pipeline: &str, change: impl FnOnce(&mut Value)) -> Result<()> {
        let path = format!("/v1/pipelines/{pipeline}");
        let mut registered = self.service.get(&path).await?;
        change(&mut registered);
        self.service.put(&path, &registered).await?;
        Ok(())
    }

    /// Waits until all agents have joined. Returns them by name.
    ///
    /// # Errors
    /// If an agent ends, with its last words, or if they take too long.
    pub async fn wait_for_agents(&mut self) -> Result<Vec<JoinedAgent>> {
        let (count, data_dir, agents) = (self.agents.len(), &self.data_dir, &mut self.agents);
        self.service.wait_for_agents(count, || agents.iter_mut().try_for_each(|agent| check_runs(agent, data_dir))).await
    }

    /// Plans for a demand, makes the plan the target, and waits until every ingress is ready. Returns the plan's
    /// identifier.
    ///
    /// # Errors
    /// If there is no plan, or it does not come into force.
    pub async fn deploy(&self, pipeline: &str, demand_qps: f64, agents: &[JoinedAgent]) -> Result<String> {
        let plan = self.service.make_plan(pipeline, demand_qps).await?;
        let id = plan["id"].as_str().context("a plan without an id")?;
        let generation = self.service.set_target(id).await?;
        print_progress(&format!("generation {generation}: {}", describe_groups(&plan["plan"])));
        for agent in agents {
            self.service.wait_until_pipeline_is_ready(&agent.ingress_http, pipeline).await?;
        }
        Ok(id.to_owned())
    }

    /// The number of the service's process.
    #[must_use]
    pub fn service_id(&self) -> u32 {
        self.service_process.id()
    }

    /// Keeps the logs of a failed run, and returns their folder.
    pub fn keep_logs(mut self) -> PathBuf {
        if let Some(temporary) = self._temporary.take() {
            let _ = temporary.keep();
        }
        self.data_dir.clone()
    }
}

/// A process that has ended is an error with the last line of its log.
fn check_runs(process: &mut Process, log_dir: &Path) -> Result<()> {
    let Some(status) = process.ended() else { return Ok(()) };
    let log = log_dir.join(format!("{}.log", process.name()));
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    anyhow::bail!("{} ended with {status}: {}", process.name(), said.lines().last().unwrap_or("its log is empty"))
}

/// The pipeline file that ships with the project: below the working directory, or below a folder above this program.
fn find_example_pipeline() -> Result<PathBuf> {
    let name = Path::new("examples/digits/pipeline.yaml");
    let here = std::env::current_exe().unwrap_or_default();
    let places = std::iter::once(PathBuf::new()).chain(here.ancestors().skip(1).map(Path::to_path_buf));
    let found = places.map(|p| p.join(name)).find(|p| p.exists());
    found.with_context(|| format!("{} does not exist: name a pipeline with --pipeline", name.display()))
}

/// The groups of a plan file in one line.
pub fn describe_groups(plan: &Value) -> String {
    let assignments = plan["pipelines"].as_array().into_iter().flatten().flat_map(|p| p["assignments"].as_array());
    let group = |a: &Value| {
        let text = |key: &str| a[key].as_str().unwrap_or("?").to_owned();
        format!("{} x {} (batch {})", a["replicas"], text("variant"), a["batch"])
    };
    assignments.flatten().map(group).collect::<Vec<_>>().join(", ")
}
