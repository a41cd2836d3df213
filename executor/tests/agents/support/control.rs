//! A control plane that welcomes agents in the order in which they come and sends what a test wants.

use super::{keyed, until};
use apportion_executor::certificates::LocalAuthority;
use apportion_protocol::PROTOCOL_VERSION;
use apportion_protocol::v1::{self, agent_message::Message as Told, control_message::Message as Says};
use apportion_protocol::v1::{control_server, refused::Reason};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

/// The token of the fleet.
pub const TOKEN: &str = "secret";

/// What was heard of one agent.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    pub number: u64,
    pub registers: Vec<v1::Register>,
    pub acks: Vec<v1::Ack>,
    pub offered: u64,
    pub ok: u64,
    /// The last times of hops.
    pub hops: Vec<v1::HopTime>,
    /// All times of loads.
    pub loads: Vec<v1::LoadTime>,
    /// The batches of all reports.
    pub groups: Vec<v1::GroupStats>,
    pub reports: u64,
    /// How often it has asked for another certificate.
    pub certificate_requests: usize,
    pub left: bool,
}

impl Heard {
    /// Notes a message of the agent. Whether it was its last one.
    fn note(&mut self, message: Told) -> bool {
        let is_last = matches!(message, Told::Leaving(_));
        match message {
            Told::Ack(ack) => self.acks.push(ack),
            Told::Report(report) => {
                for part in report.arrivals {
                    self.offered += part.bins.iter().map(|n| u64::from(*n)).sum::<u64>();
                    self.ok += part.ok;
                }
                if !report.hops.is_empty() {
                    self.hops = report.hops;
                }
                self.loads.extend(report.loads);
                self.groups.extend(report.groups);
                self.reports += 1;
            }
            Told::Leaving(_) => self.left = true,
            Told::CertificateRequest(_) => self.certificate_requests += 1,
            Told::Register(_) | Told::Want(_) | Told::Measurement(_) => {}
        }
        is_last
    }
}

/// How the control plane is to agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mood {
    /// Refuses all agents for this reason; streams that are up end.
    pub refuses: Option<Reason>,
    /// Gives agents other numbers than it did: by so much higher.
    pub numbers_above: u64,
    /// Takes streams and says nothing.
    pub is_mute: bool,
}

#[derive(Clone)]
struct Plane {
    heard: Arc<Mutex<BTreeMap<String, Heard>>>,
    target: watch::Receiver<Option<v1::Target>>,
    mood: watch::Receiver<Mood>,
    files_url: String,
    files: Arc<BTreeMap<String, String>>,
    certifies: Option<Certifying>,
}

/// Who gives agents their certificates, and how long they count.
#[derive(Clone)]
struct Certifying {
    fleet: Arc<LocalAuthority>,
    life: Duration,
}

impl Certifying {
    fn issue(&self, request: &[u8], agent: u64) -> Says {
        Says::Certificate(self.fleet.issue(request, agent, self.life).expect("a right request"))
    }
}

/// The control plane's test end.
pub struct Control {
    pub url: String,
    heard: Arc<Mutex<BTreeMap<String, Heard>>>,
    target: watch::Sender<Option<v1::Target>>,
    mood: watch::Sender<Mood>,
}

impl Control {
    /// Starts it, and a server for the files of `words`.
    pub async fn start(words: &[&str]) -> Control {
        let files: BTreeMap<String, String> = words.iter().map(|w| (super::toy::digest(w), w.to_string())).collect();
        Self::start_all(serve_files(files), BTreeMap::new(), None).await
    }

    /// Starts it as [`Self::start`] does; it gives agents certificates that count for this long.
    pub async fn start_certifying(words: &[&str], life: Duration) -> Control {
        let files: BTreeMap<String, String> = words.iter().map(|w| (super::toy::digest(w), w.to_string())).collect();
        let fleet = Arc::new(LocalAuthority::new("the test").expect("an authority"));
        Self::start_all(serve_files(files), BTreeMap::new(), Some(Certifying { fleet, life })).await
    }

    /// Starts it; files of `words` are had by its own call only.
    pub async fn start_calling(words: &[&str]) -> Control {
        let files = words.iter().map(|w| (super::toy::digest(w), w.to_string())).collect();
        Self::start_all(String::new(), files, None).await
    }

    async fn start_all(files_url: String, files: BTreeMap<String, String>, certifies: Option<Certifying>) -> Control {
        let ((target, seen), (mood, felt)) = (watch::channel(None), watch::channel(Mood::default()));
        let heard = Arc::default();
        let files = Arc::new(files);
        let plane = Plane { heard: Arc::clone(&heard), target: seen, mood: felt, files_url, files, certifies };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        let server = tonic::transport::Server::builder().tcp_nodelay(true);
        let mut server = server;
        let serving = server
            .add_service(control_server::ControlServer::new(plane))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(serving);
        Control { url, heard, target, mood }
    }

    /// Sends a target to every agent, present and future.
    pub fn send(&self, target: v1::Target) {
        self.target.send_replace(Some(target));
    }

    /// Has no target for anybody any more, as with an empty database.
    pub fn forget_target(&self) {
        self.target.send_replace(None);
    }

    /// Changes how it is to agents; streams that are up end, so that they come again.
    pub fn set(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }

    /// What was heard of an agent.
    pub fn heard(&self, name: &str) -> Heard {
        self.heard.lock().expect("no panic").get(name).cloned().unwrap_or_default()
    }

    /// Waits until an agent has applied a generation.
    pub async fn applied(&self, name: &str, generation: u64) {
        let last = || self.heard(name).acks.last().cloned();
        let fits = |a: &v1::Ack| a.applied && a.fence.map(|f| f.generation) == Some(generation);
        until(&format!("{name} applies {generation}"), || last().filter(fits)).await;
    }
}

#[tonic::async_trait]
impl control_server::Control for Plane {
    type AttachStream = ReceiverStream<Result<v1::ControlMessage, Status>>;
    type FetchStream = ReceiverStream<Result<v1::FileChunk, Status>>;

    async fn fetch(&self, request: Request<v1::FileRequest>) -> Result<Response<Self::FetchStream>, Status> {
        let asked = request.into_inner();
        if asked.token != TOKEN {
            return Err(Status::unauthenticated("not one of us"));
        }
        let file = self.files.get(&asked.sha256).ok_or_else(|| Status::not_found(asked.sha256.clone()))?;
        let (outbox, chunks) = mpsc::channel(1);
        let data = file.as_bytes()[asked.offset as usize..].to_vec();
        outbox.try_send(Ok(v1::FileChunk { data, file_bytes: file.len() as u64 })).expect("room for one");
        Ok(Response::new(ReceiverStream::new(chunks)))
    }

    async fn attach(&self, request: Request<Streaming<v1::AgentMessage>>) -> Result<Response<Self::AttachStream>, Status> {
        let (outbox, messages) = mpsc::channel(16);
        tokio::spawn(self.clone().converse(request.into_inner(), outbox));
        Ok(Response::new(ReceiverStream::new(messages)))
    }
}

type Outbox = mpsc::Sender<Result<v1::ControlMessage, Status>>;

impl Plane {
    async fn converse(mut self, mut inbox: Streaming<v1::AgentMessage>, outbox: Outbox) {
        let say = async |message| outbox.send(Ok(v1::ControlMessage { message: Some(message) })).await.is_ok();
        let Ok(Some(v1::AgentMessage { message: Some(Told::Register(register)) })) = inbox.message().await else { return };
        let name = register.name.clone();
        let mood = *self.mood.borrow_and_update();
        if mood.is_mute {
            // It is asked again when it feels otherwise.
            let _changed = self.mood.changed().await;
            return;
        }
        let reason = match &register {
            _ if mood.refuses.is_some() => mood.refuses,
            r if r.token != TOKEN => Some(Reason::Token),
            r if r.protocol_version != PROTOCOL_VERSION => Some(Reason::Version),
            _ => None,
        };
        if let Some(reason) = reason {
            say(Says::Refused(v1::Refused { reason: reason.into(), detail: "not one of us".into() })).await;
            return;
        }
        let request = register.certificate_request.clone();
        let agent = {
            let mut heard = self.heard.lock().expect("no panic");
            let next = heard.len() as u64 + 1;
            let mine = heard.entry(name.clone()).or_insert_with(|| Heard { number: next, ..Heard::default() });
            mine.registers.push(register);
            mine.number + mood.numbers_above
        };
        say(Says::Welcome(v1::Welcome { agent, report_ms: 50, files_url: self.files_url.clone() })).await;
        if let Some(certifies) = &self.certifies {
            say(certifies.issue(&request, agent)).await;
        }
        self.target.mark_changed();
        loop {
            tokio::select! {
                _ = self.mood.changed() => return,
                changed = self.target.changed() => {
                    let Ok(()) = changed else { return };
                    let target = self.target.borrow_and_update().clone();
                    if let Some(target) = target && !say(Says::Target(keyed(target, agent))).await {
                        return;
                    }
                }
                message = inbox.message() => {
                    let Ok(Some(v1::AgentMessage { message: Some(message) })) = message else { return };
                    if let (Some(certifies), Told::CertificateRequest(asked)) = (&self.certifies, &message) {
                        say(certifies.issue(&asked.request, agent)).await;
                    }
                    let mut heard = self.heard.lock().expect("no panic");
                    let mine = heard.get_mut(&name).expect("it has registered");
                    let is_over = mine.note(message);
                    if is_over {
                        return;
                    }
                }
            }
        }
    }
}

/// Serves files by digest from a thread of its own, and gives the URL below which they are.
pub fn serve_files(files: BTreeMap<String, String>) -> String {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/files", listener.local_addr().expect("its address"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut line = String::new();
            if BufReader::new(&stream).read_line(&mut line).is_err() {
                continue;
            }
            let path = line.split(' ').nth(1).unwrap_or_default();
            let file = path.strip_prefix("/files/").and_then(|digest| files.get(digest));
            let (status, body) = file.map_or(("404 Not Found", ""), |body| ("200 OK", body.as_str()));
            let length = body.len();
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
            let _client_gone = stream.write_all(answer.as_bytes());
        }
    });
    url
}
