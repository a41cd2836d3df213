//! How does a command follow the events of a service, or its audit, also over lost connections?

use super::event_reader::{EventReader, StreamedEvent};
use crate::http_client::HttpStream;
use crate::service::ServiceClient;
use anyhow::anyhow;
use apportion_support::exit::Failure;
use serde_json::Value;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The list of events.
pub const EVENTS_PATH: &str = "/v1/events";
/// Pause between two attempts to connect.
const RETRY: Duration = Duration::from_secs(1);
/// Longest time without a connection. The service may be upgraded meanwhile.
const AWAY_MAX: Duration = Duration::from_secs(300);

/// The events after one of them, each once and in order.
pub struct EventFeed<'a> {
    client: &'a ServiceClient,
    /// The path of the stream with its filter.
    path: String,
    /// The number of the last event that was given out or is known.
    known: i64,
    connection: Option<Connection>,
    /// Events that were read and not given out.
    waiting: VecDeque<StreamedEvent>,
}

struct Connection {
    response: HttpStream,
    reader: EventReader,
}

impl<'a> EventFeed<'a> {
    /// Connects to the stream of a list with these filters. The first event is the one after number `after`, or the next
    /// one that happens.
    ///
    /// # Errors
    /// If the service cannot be reached, or refuses.
    pub async fn open(
        client: &'a ServiceClient,
        list: &str,
        filters: &[(&str, &str)],
        after: Option<i64>,
    ) -> Result<Self, Failure> {
        let path = client.with_query(&format!("{list}/stream"), filters);
        let known = match after {
            Some(known) => known,
            // With a number from the start, no event is missed between two connections.
            None => newest_number(&client.get(&format!("{list}?limit=1")).await?[0]),
        };
        let response = client.open_stream(&path, known).await?;
        let connection = Some(Connection { response, reader: EventReader::default() });
        Ok(Self { client, path, known, connection, waiting: VecDeque::new() })
    }

    /// The next event, whenever it happens.
    ///
    /// # Errors
    /// If the service stays away for five minutes or refuses, or if the stream is malformed.
    pub async fn next(&mut self) -> Result<StreamedEvent, Failure> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                self.known = event.id;
                return Ok(event);
            }
            let Some(connection) = &mut self.connection else {
                let response = self.connect().await?;
                self.connection = Some(Connection { response, reader: EventReader::default() });
                continue;
            };
            match connection.response.chunk().await {
                Ok(Some(bytes)) => {
                    let events = connection.reader.read(&bytes);
                    self.waiting.extend(events.map_err(|error| anyhow!("{}: {error}", self.path))?);
                }
                // The service ended the stream, or is not there any more.
                Ok(None) | Err(_) => self.connection = None,
            }
        }
    }

    /// Connects again. A service that stops or starts is waited for.
    async fn connect(&self) -> Result<HttpStream, Failure> {
        let begun = Instant::now();
        let mut is_told = false;
        loop {
            match self.client.open_stream(&self.path, self.known).await {
                Err(Failure::Broken(error)) if begun.elapsed() < AWAY_MAX => {
                    if !is_told {
                        eprintln!("{error:#}; trying again");
                    }
                    is_told = true;
                    tokio::time::sleep(RETRY).await;
                }
                answer => return answer,
            }
        }
    }
}

/// The number of the newest entry of a list: its `number`, or its `id` where that is the number; 0 without an entry.
fn newest_number(entry: &Value) -> i64 {
    entry["number"].as_i64().or_else(|| entry["id"].as_i64()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn entries_have_numbers_in_either_place() {
        let cases = [
            (json!({"id": 17, "kind": "hold"}), 17),
            (json!({"id": "0197", "number": 18}), 18),
            (json!({"id": "0197", "number": null}), 0),
            (Value::Null, 0),
        ];
        for (entry, number) in cases {
            assert_eq!(newest_number(&entry), number, "{entry}");
        }
    }
}
