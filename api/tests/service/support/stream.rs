//! A client that follows a list by Server-Sent Events.

use super::{PATIENCE, Service};
use actix_web::web::Bytes;
use futures::StreamExt;
use serde_json::Value;

/// An entry as it came.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamedEntry {
    pub id: String,
    pub event: String,
    pub data: Value,
}

/// A stream of entries.
pub struct EntryStream {
    bytes: std::pin::Pin<Box<dyn futures::Stream<Item = reqwest::Result<Bytes>> + Send>>,
    text: String,
}

impl EntryStream {
    /// Follows the list at this path, after the entry `last`.
    pub async fn follow(s: &Service, path: &str, last: Option<i64>) -> Self {
        let request = s.client.get(format!("{}{path}", s.base));
        let request = last.into_iter().fold(request, |request, last| request.header("last-event-id", last.to_string()));
        let response = request.send().await.expect("an answer");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self::of(response)
    }

    /// The stream of an answer.
    pub fn of(response: reqwest::Response) -> Self {
        assert_eq!(response.status(), 200);
        Self { bytes: Box::pin(response.bytes_stream()), text: String::new() }
    }

    /// The next entry; `None` at the end of the stream. Comments are left out.
    pub async fn next(&mut self) -> Option<StreamedEntry> {
        loop {
            while let Some((part, rest)) = self.text.clone().split_once("\n\n") {
                self.text = rest.to_owned();
                let line = |name: &str| part.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
                let Some(data) = line("data: ") else { continue };
                let data: Value = serde_json::from_str(&data).expect("JSON");
                let (id, event) = (line("id: ").expect("a number"), line("event: ").expect("a kind"));
                return Some(StreamedEntry { id, event, data });
            }
            let chunk = tokio::time::timeout(PATIENCE, self.bytes.next()).await.expect("in time")?;
            self.text += std::str::from_utf8(&chunk.ok()?).expect("UTF-8");
        }
    }
}
