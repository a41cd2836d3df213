//! How is one signed message posted to a receiver of webhooks?
//!
//! The signature is that of Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`. A receiver has an `http` or `https`
//! URL. Link-local addresses are refused after the resolution of its name, because clouds answer there with the secrets of
//! the machine. Redirects are not followed, and the body of an answer is not read.
//!
//! What belongs here: the secret, the signature, the rule of addresses, one request. What never does: the database, which
//! event is sent, when it is sent again. The commonest addition is a refused range of addresses, in `receiver`.

mod client;
pub mod limits;
mod receiver;
mod secret;

pub use client::{DeliveryFailure, ReceiverAnswer, ReceiverClient, WebhookMessage};
pub use receiver::{ReceiverUrl, ReceiverUrlError, RefusedAddress, is_refused_address};
pub use secret::{WebhookSecret, WebhookSecretError};
