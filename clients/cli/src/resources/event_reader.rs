//! How do the bytes of a stream of Server-Sent Events become events?
//!
//! Example: `id: 18\nevent: plan\ndata: {"id":18}\n\n` is one event. Lines that begin with `:` say only that the service
//! lives. See section 9.2 of the HTML standard; `retry` is not read.

use serde_json::Value;

/// Longest event, in bytes.
pub const EVENT_BYTES_MAX: usize = 1 << 20;

/// An event of the service.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamedEvent {
    /// Its number.
    pub id: i64,
    /// Its kind.
    pub kind: String,
    /// Its document, as in the list of events.
    pub document: Value,
}

/// The reason why a stream is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// An event has no end.
    #[error("an event of more than {EVENT_BYTES_MAX} bytes")]
    TooLong,
    /// An event is no document with a number.
    #[error("an event that cannot be read: {0:?}: expected `id` with a number and `data` with JSON")]
    Malformed(String),
}

/// Reads the parts of one connection in their order.
#[derive(Debug, Default)]
pub struct EventReader {
    /// The bytes after the last whole event.
    rest: Vec<u8>,
}

impl EventReader {
    /// The events that are whole with these bytes.
    ///
    /// # Errors
    /// If an event is too long or malformed. The connection is of no use after that.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Vec<StreamedEvent>, EventError> {
        self.rest.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.rest.windows(2).position(|pair| pair == b"\n\n") {
            let block: Vec<u8> = self.rest.drain(..end + 2).collect();
            events.extend(event(&String::from_utf8_lossy(&block))?);
        }
        if self.rest.len() > EVENT_BYTES_MAX { Err(EventError::TooLong) } else { Ok(events) }
    }
}

/// The event of a block; `None` if the block has comments only.
fn event(block: &str) -> Result<Option<StreamedEvent>, EventError> {
    let (mut id, mut kind, mut data) = (None, String::new(), None::<String>);
    for line in block.lines().filter(|line| !line.is_empty() && !line.starts_with(':')) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => id = value.parse::<i64>().ok(),
            "event" => value.clone_into(&mut kind),
            "data" => {
                let before = data.take().map_or_else(String::new, |text| text + "\n");
                data = Some(before + value);
            }
            _ => {}
        }
    }
    let Some(data) = data else { return Ok(None) };
    let malformed = || EventError::Malformed(data.chars().take(80).collect());
    let document = serde_json::from_str(&data).map_err(|_| malformed())?;
    Ok(Some(StreamedEvent { id: id.ok_or_else(malformed)?, kind, document }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const STREAM: &str =
        ": here\n\nid: 18\nevent: plan\ndata: {\"id\":18}\n\n: beat\n\nid: 19\nevent: hold\ndata: {\"id\":\ndata: 19}\n\n";

    #[test]
    fn a_stream_may_be_cut_anywhere() {
        let expected = [(18, "plan"), (19, "hold")].map(|(id, kind)| StreamedEvent {
            id,
            kind: kind.to_owned(),
            document: json!({ "id": id }),
        });
        for length in 1..=STREAM.len() {
            let mut reader = EventReader::default();
            let parts = STREAM.as_bytes().chunks(length);
            let found: Vec<StreamedEvent> = parts.flat_map(|part| reader.read(part).expect("a right stream")).collect();
            assert_eq!(found, expected, "in parts of {length}");
        }
    }

    #[test]
    fn a_wrong_stream_is_refused() {
        let read = |text: &str| EventReader::default().read(text.as_bytes());
        assert_eq!(read("id: 1\ndata: {\n\n"), Err(EventError::Malformed("{".to_owned())));
        assert_eq!(read("id: x\ndata: {}\n\n"), Err(EventError::Malformed("{}".to_owned())));
        assert_eq!(read(&"x".repeat(EVENT_BYTES_MAX + 1)), Err(EventError::TooLong));
    }
}
