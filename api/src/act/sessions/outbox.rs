//! What does the service say on an agent's stream?

use apportion_protocol::v1::{self, control_message, refused::Reason};
use tokio::sync::mpsc;
use tonic::Status;

/// Most control messages that wait for one agent. If there are more, its connection takes none.
pub(super) const OUTBOX_MAX: usize = 16;

/// Where the messages for one agent are put.
pub(super) type Outbox = mpsc::Sender<Result<v1::ControlMessage, Status>>;

/// Sends a message; false if the stream is over.
pub(super) async fn send(outbox: &Outbox, message: control_message::Message) -> bool {
    outbox.send(Ok(v1::ControlMessage { message: Some(message) })).await.is_ok()
}

/// Refuses the agent.
pub(super) async fn refuse(outbox: &Outbox, reason: Reason, detail: &str) {
    let refused = v1::Refused { reason: reason.into(), detail: detail.to_string() };
    let _gone = send(outbox, control_message::Message::Refused(refused)).await;
}
