//! A receiver of webhooks.

use super::{PATIENCE, Service};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::Connection;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The key of the tests, and its text.
pub const KEY: &[u8] = b"0123456789abcdef01234567";
pub const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3";

/// A request as the receiver got it. The names of its headers are in small letters.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Delivery {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }

    pub fn event(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }

    /// The reason in the data of an event of a hold.
    pub fn reason(&self) -> String {
        self.event()["data"]["detail"]["reason"].as_str().unwrap_or_default().to_owned()
    }
}

/// An HTTP server that keeps requests, and answers with the status lines that it was given, then with 204.
pub struct Receiver {
    pub url: String,
    deliveries: Arc<Mutex<Vec<Delivery>>>,
    answers: Arc<Mutex<VecDeque<String>>>,
}

impl Receiver {
    pub async fn with_answers(answers: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/events", listener.local_addr().expect("an address"));
        let deliveries = Arc::new(Mutex::new(Vec::new()));
        let answers = Arc::new(Mutex::new(answers.iter().map(|answer| (*answer).to_owned()).collect::<VecDeque<_>>()));
        let (kept, given) = (deliveries.clone(), answers.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(receive(stream, kept.clone(), given.clone()));
            }
        });
        Self { url, deliveries, answers }
    }

    pub fn answer_next(&self, answers: &[&str]) {
        self.answers.lock().expect("no panic").extend(answers.iter().map(|answer| (*answer).to_owned()));
    }

    pub fn all(&self) -> Vec<Delivery> {
        self.deliveries.lock().expect("no panic").clone()
    }

    /// The deliveries, once there are so many.
    pub async fn first(&self, count: usize) -> Vec<Delivery> {
        let begin = Instant::now();
        loop {
            let all = self.all();
            if all.len() >= count {
                return all;
            }
            assert!(begin.elapsed() < PATIENCE, "{count} deliveries never came: {all:#?}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

async fn receive(mut stream: TcpStream, kept: Arc<Mutex<Vec<Delivery>>>, given: Arc<Mutex<VecDeque<String>>>) {
    let mut bytes = Vec::new();
    let (head, length) = loop {
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return;
        }
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, _)) = text.split_once("\r\n\r\n") else { continue };
        let line = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
        let length: usize = line.expect("a length").parse().expect("a number");
        if bytes.len() >= head.len() + 4 + length {
            break (head.to_owned(), length);
        }
    };
    assert!(head.starts_with("POST /events HTTP/1.1\r\n"), "{head}");
    let headers = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let body = String::from_utf8(bytes[head.len() + 4..][..length].to_vec()).expect("text");
    kept.lock().expect("no panic").push(Delivery { headers, body });
    let answer = given.lock().expect("no panic").pop_front().unwrap_or_else(|| "204 No Content".to_owned());
    let _sent = stream.write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes()).await;
}

/// HMAC-SHA256 as RFC 2104 defines it, without the library of the service.
pub fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; 64];
    block[..key.len()].copy_from_slice(key);
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().to_vec()
}

/// Registers a webhook of this receiver with the secret of the tests.
pub async fn register(s: &Service, name: &str, receiver: &Receiver) {
    let (status, made) = s.put(&format!("/v1/webhooks/{name}"), &json!({"url": receiver.url, "secret": SECRET})).await;
    assert_eq!(status, 201, "{made:#}");
}

/// Makes events of holds with these reasons, each in a transaction of its own.
pub async fn hold(s: &Service, reasons: &[&str]) {
    for reason in reasons {
        let (status, made) = s.put("/v1/hold", &json!({"reason": reason})).await;
        assert!(status == 200 || status == 201, "{made:#}");
    }
}

/// Runs one statement in a database.
pub async fn execute(url: &str, statement: &str) {
    let mut db = sqlx::PgConnection::connect(url).await.expect("our own database");
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned())).execute(&mut db).await.expect("it runs");
}

/// The webhook, once its figure has this value.
pub async fn until_counted(s: &Service, name: &str, figure: &str, value: i64) -> Value {
    s.until(&format!("/v1/webhooks/{name}"), |d| (d[figure] == value).then(|| d.clone())).await
}
