//! How is Slurm asked by slurmrestd, in the place of commands?
//!
//! The interface is `v0.0.38`, which Slurm 22.05 has. Its requests take the words of `sbatch`. It lists the jobs of all
//! users, so the answer may be long.
//!
//! One word of `sbatch` cannot be sent: slurmrestd refuses `B:` in `signal`, and without it no signal reaches the script.
//! It does not read `#SBATCH` lines either. So the script counts the time of its job itself.

use super::command::VARIABLES;
use super::queue::state_of;
use super::script::{EndSignal, job_script};
use crate::agent::{AgentAccess, TOKEN_VARIABLE};
use crate::failure::SubstrateError;
use crate::machine::{MachineRequest, MachineState, ObservedMachine};
use crate::names::hardware_of;
use crate::settings::{SlurmHardware, SlurmOption, SlurmRest, SlurmSettings};
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Map, Value, json};
use std::error::Error;
use std::time::Duration;

/// The program in errors.
const NAME: &str = "slurmrestd";
/// The path of the interface.
const INTERFACE: &str = "slurm/v0.0.38";
/// Longest time of an answer, as of a command.
const ANSWER_MAX: Duration = Duration::from_secs(8);
/// Most bytes of an answer: about 15,000 jobs.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Most characters of a complaint in an error.
const SAID_CHARS_MAX: usize = 400;
/// A time limit of so many minutes or more means none: the numbers of Slurm for "infinite" and "not set" begin here.
const NO_LIMIT_MINUTES: u64 = 0xffff_fffd;

/// Asks one slurmrestd.
pub(super) struct RestClient {
    settings: SlurmRest,
}

impl RestClient {
    pub(super) fn new(settings: SlurmRest) -> Self {
        Self { settings }
    }

    /// The jobs of all users.
    pub(super) async fn jobs(&self) -> Result<Value, SubstrateError> {
        let answer = self.call(Method::GET, "jobs", None).await?;
        match complaint(&answer) {
            Some(said) => Err(SubstrateError::Failed { command: NAME, said }),
            None => Ok(answer),
        }
    }

    /// Submits a job, and returns its number.
    pub(super) async fn submit(&self, submission: &Value) -> Result<String, SubstrateError> {
        let answer = self.call(Method::POST, "job/submit", Some(submission)).await?;
        // A job may be submitted with a warning.
        if let Some(number) = answer["job_id"].as_u64().filter(|number| *number > 0) {
            return Ok(number.to_string());
        }
        let said = complaint(&answer).unwrap_or_else(|| "the answer has no number of a job".to_owned());
        Err(SubstrateError::Failed { command: NAME, said })
    }

    /// Sends a signal to all processes of a job. `KILL` also takes back a job that waits.
    pub(super) async fn kill(&self, job: &str, signal: &str) -> Result<(), SubstrateError> {
        self.call(Method::DELETE, &format!("job/{job}?signal={signal}"), None).await.map(|_| ())
    }

    /// The answer to a request that succeeds.
    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, SubstrateError> {
        let answered = tokio::time::timeout(ANSWER_MAX, self.exchange(method, path, body)).await;
        answered.map_err(|_| SubstrateError::Late { command: NAME, within: ANSWER_MAX })?
    }

    async fn exchange(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, SubstrateError> {
        let request = self.request(method, path)?;
        let request = body.into_iter().fold(request, |request, body| request.json(body));
        let mut response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > ANSWER_BYTES_MAX {
                let said = format!("an answer of more than {ANSWER_BYTES_MAX} bytes");
                return Err(SubstrateError::Failed { command: NAME, said });
            }
        }
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if status.is_success() && answer.is_object() {
            return Ok(answer);
        }
        let said = complaint(&answer).unwrap_or_else(|| clipped(&String::from_utf8_lossy(&bytes)));
        Err(SubstrateError::Failed { command: NAME, said: format!("{status}: {said}") })
    }

    fn request(&self, method: Method, path: &str) -> Result<RequestBuilder, SubstrateError> {
        let SlurmRest { url, socket, user, token_file } = &self.settings;
        let builder = match socket {
            Some(socket) => Client::builder().unix_socket(socket.clone()),
            None => Client::builder(),
        };
        let base = url.as_deref().unwrap_or("http://localhost").trim_end_matches('/');
        let mut request = builder.build().map_err(unreachable)?.request(method, format!("{base}/{INTERFACE}/{path}"));
        if let Some(user) = user {
            request = request.header("X-SLURM-USER-NAME", user);
        }
        if let Some(file) = token_file {
            // A token is replaced before its end, so it is read again for each request.
            let failed = |source| SubstrateError::File { path: file.clone(), source };
            let text = std::fs::read_to_string(file).map_err(failed)?;
            // As `scontrol token` prints it, or the token alone.
            let token = text.trim();
            request = request.header("X-SLURM-USER-TOKEN", token.strip_prefix("SLURM_JWT=").unwrap_or(token));
        }
        Ok(request)
    }
}

/// The submission of a machine's job. Its words are those of `sbatch`.
pub(super) fn submission(
    settings: &SlurmSettings,
    hardware: &SlurmHardware,
    access: &AgentAccess,
    request: &MachineRequest,
) -> Value {
    let here = || std::env::current_dir().unwrap_or_default().display().to_string();
    let mut job = json!({
        "name": request.name,
        "comment": format!("Apportion, hardware type {}", request.hardware),
        "tasks": 1,
        "cpus_per_task": hardware.cpus.unwrap_or(hardware.devices),
        "requeue": true,
        "open_mode": "append",
        "standard_output": "%x.log",
        "current_working_directory": settings.directory.clone().unwrap_or_else(here),
        "environment": environment(access),
    });
    for SlurmOption { name, value } in hardware.options() {
        let key = match name {
            "mem" => "memory_per_node",
            "time" => "time_limit",
            same => same,
        };
        job[key] = json!(value);
    }
    json!({"script": job_script(settings, hardware, access, request, EndSignal::ByScript), "job": job})
}

/// The variables of a job: the token, and those that commands pass on.
fn environment(access: &AgentAccess) -> Map<String, Value> {
    let own = VARIABLES.into_iter().filter(|name| !name.starts_with("SLURM_"));
    let own = own.filter_map(|name| Some((name.to_owned(), json!(std::env::var(name).ok()?))));
    own.chain([(TOKEN_VARIABLE.to_owned(), json!(access.token))]).collect()
}

/// The machines of a fleet among the jobs of an answer. `now` is the time since the epoch: Slurm says when a job must end.
pub(super) fn read_jobs(fleet: &str, answer: &Value, now: Duration) -> Result<Vec<ObservedMachine>, SubstrateError> {
    let wrong =
        |found: &Value, expected| SubstrateError::Output { command: NAME, found: clipped(&found.to_string()), expected };
    let jobs = answer["jobs"].as_array().ok_or_else(|| wrong(answer, "jobs, a list"))?;
    let mut machines = Vec::new();
    for job in jobs {
        let name = job["name"].as_str().unwrap_or_default();
        let Some(hardware) = hardware_of(fleet, name) else { continue };
        let number = job["job_id"].as_u64().ok_or_else(|| wrong(&job["job_id"], "job_id, the number of a job"))?;
        let said = job["job_state"].as_str().unwrap_or_default();
        let state = state_of(said).ok_or_else(|| wrong(&job["job_state"], "a state of jobs that man squeue lists"))?;
        let limit = job["time_limit"].as_u64().filter(|minutes| *minutes < NO_LIMIT_MINUTES);
        let ends = job["end_time"].as_u64().map(Duration::from_secs);
        // The time of a job that waits has not begun, and one without a limit has no end.
        let left = ends.filter(|_| limit.is_some() && state == MachineState::Running);
        machines.push(ObservedMachine {
            name: name.to_owned(),
            hardware: hardware.to_owned(),
            handle: number.to_string(),
            state,
            left: left.map(|ends| ends.saturating_sub(now)),
            limit: limit.map(|minutes| Duration::from_secs(minutes.saturating_mul(60))),
            said: format!("job {number} is {said} ({})", job["state_reason"].as_str().unwrap_or("None")),
        });
    }
    Ok(machines)
}

/// The first error of an answer.
fn complaint(answer: &Value) -> Option<String> {
    let error = answer["errors"].as_array()?.first()?;
    let said = ["error", "description"].into_iter().find_map(|key| error[key].as_str());
    Some(clipped(said.map_or_else(|| error.to_string(), str::to_owned).as_str()))
}

/// The error if there is no answer.
fn unreachable(error: reqwest::Error) -> SubstrateError {
    SubstrateError::Failed { command: NAME, said: clipped(&causes(&error.without_url())) }
}

/// An error with its causes, in one line.
fn causes(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |cause| (**cause).source()).map(ToString::to_string);
    causes.collect::<Vec<_>>().join(": ")
}

fn clipped(text: &str) -> String {
    text.chars().take(SAID_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    const NOW: Duration = Duration::from_secs(1_000_000);

    fn job(name: &str, state: &str, limit: Value, end: u64) -> Value {
        json!({
            "job_id": 17, "name": name, "job_state": state, "state_reason": "None", "time_limit": limit, "end_time": end,
        })
    }

    #[test]
    fn jobs_of_the_fleet_are_machines() {
        let jobs = json!({"jobs": [
            job("app.t4.0c9f", "RUNNING", json!(240), 1_014_300), job("app.t4.0c9e", "PENDING", json!(240), 0),
            job("app.t4.0c9d", "RUNNING", json!(4_294_967_294_u64), 9_000_000), job("other", "WHATEVER", json!("x"), 0),
            job("app.a100.01", "NODE_FAIL", Value::Null, 0),
        ]});
        let row = |m: &ObservedMachine| {
            let left = m.left.map(|left| left.as_secs());
            format!("{} {} {} {left:?} {:?} {}", m.handle, m.hardware, m.state.name(), m.limit, m.said)
        };
        let machines = read_jobs("app", &jobs, NOW).expect("they are read");
        assert_eq!(
            machines.iter().map(row).collect::<Vec<_>>(),
            [
                "17 t4 running Some(14300) Some(14400s) job 17 is RUNNING (None)",
                "17 t4 asked None Some(14400s) job 17 is PENDING (None)",
                "17 t4 running None None job 17 is RUNNING (None)",
                "17 a100 lost None None job 17 is NODE_FAIL (None)",
            ]
        );
        for wrong in [json!({}), json!({"jobs": [job("app.t4.01", "NAPPING", json!(1), 0)]})] {
            let said = read_jobs("app", &wrong, NOW).expect_err("another form").to_string();
            assert!(said.starts_with("slurmrestd: ") && said.contains("expected"), "{said}");
        }
    }

    #[test]
    fn a_submission_has_the_words_of_sbatch() {
        let hardware = SlurmHardware {
            devices: 2,
            gres: Some("gpu:t4:2".into()),
            memory: Some("8G".into()),
            time: Some("04:00:00".into()),
            ..SlurmHardware::default()
        };
        let settings = SlurmSettings { directory: Some("/shared".into()), ..SlurmSettings::default() };
        let access = AgentAccess { join: "http://h:7071".into(), token: "secret".into() };
        let request = MachineRequest { name: "app.t4.0c9f".into(), hardware: "t4".into(), zone: None };
        let submission = submission(&settings, &hardware, &access, &request);
        let job = &submission["job"];
        for (key, expected) in [
            ("name", json!("app.t4.0c9f")),
            ("cpus_per_task", json!(2)),
            ("gres", json!("gpu:t4:2")),
            ("memory_per_node", json!("8G")),
            ("time_limit", json!("04:00:00")),
            ("current_working_directory", json!("/shared")),
        ] {
            assert_eq!(job[key], expected, "{key}");
        }
        assert_eq!(job["environment"][TOKEN_VARIABLE], "secret");
        assert!(job.get("signal").is_none(), "slurmrestd refuses B:TERM@60");
        let script = submission["script"].as_str().expect("a script");
        assert!(script.starts_with("#!/bin/bash\n") && !script.contains("secret"), "{script}");
        assert!(script.contains("timeout --foreground --signal=TERM 14340 apportion-agent"), "{script}");
    }

    /// What the client makes of an answer, and the head of its request.
    async fn ask(answer: &str) -> (Result<String, SubstrateError>, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("rest.socket");
        let token_file = folder.path().join("token");
        std::fs::write(&token_file, "SLURM_JWT=ey.secret\n").expect("written");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let settings = SlurmRest {
            socket: Some(socket),
            user: Some("apportion".into()),
            token_file: Some(token_file),
            ..SlurmRest::default()
        };
        let server = async {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut said = Vec::new();
            while !said.ends_with(b"{\"a\":1}") {
                assert!(stream.read_buf(&mut said).await.expect("bytes") > 0, "the request breaks off");
            }
            stream.write_all(answer.as_bytes()).await.expect("a client that reads");
            String::from_utf8(said).expect("text")
        };
        let client = RestClient::new(settings);
        let body = json!({"a": 1});
        tokio::join!(client.submit(&body), server)
    }

    fn answer(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    #[tokio::test]
    async fn a_request_has_user_token_and_path() {
        let (number, said) = ask(&answer("200 OK", "{\"errors\": [], \"job_id\": 17}")).await;
        assert_eq!(number.expect("a number"), "17");
        assert!(said.starts_with("POST /slurm/v0.0.38/job/submit HTTP/1.1\r\n"), "{said}");
        for header in ["x-slurm-user-name: apportion", "x-slurm-user-token: ey.secret"] {
            assert!(said.contains(&format!("\r\n{header}\r\n")), "{said}");
        }
    }

    #[tokio::test]
    async fn a_refusal_has_the_words_of_slurm() {
        let body = "{\"errors\": [{\"error_code\": 2015, \"error\": \"Requested node configuration is not available\"}]}";
        let (refused, _) = ask(&answer("500 Internal Server Error", body)).await;
        let said = refused.expect_err("it is refused").to_string();
        let expected = "slurmrestd has failed: 500 Internal Server Error: Requested node configuration is not available";
        assert_eq!(said, expected);
        let (refused, _) = ask(&answer("200 OK", body)).await;
        assert!(refused.expect_err("no number").to_string().contains("Requested node"));
    }

    #[tokio::test]
    async fn an_absent_slurmrestd_is_an_error() {
        let settings = SlurmRest { socket: Some("/nonexistent/rest.socket".into()), ..SlurmRest::default() };
        let said = RestClient::new(settings).jobs().await.expect_err("nobody answers").to_string();
        assert!(said.starts_with("slurmrestd has failed: "), "{said}");
    }
}
