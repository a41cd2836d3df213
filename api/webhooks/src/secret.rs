//! With which secret is a message signed?

use crate::limits::{SECRET_BYTES_MAX, SECRET_BYTES_MIN};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

/// The begin of every secret, and of no other text.
const PREFIX: &str = "whsec_";

/// A secret that a service and a receiver share. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret(Vec<u8>);

/// Why a text is no secret. The message does not repeat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookSecretError {
    /// It begins otherwise.
    #[error("expected {PREFIX} and base64, as in {PREFIX}MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]
    Prefix,
    /// It goes on otherwise.
    #[error("expected standard base64 with padding after {PREFIX}")]
    Base64,
    /// It is too short to be safe, or too long.
    #[error("{0} bytes after {PREFIX}: expected {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}")]
    Length(usize),
}

impl WebhookSecret {
    /// Reads `whsec_` with base64.
    ///
    /// # Errors
    /// If the text has another form.
    pub fn parse(text: &str) -> Result<Self, WebhookSecretError> {
        let code = text.strip_prefix(PREFIX).ok_or(WebhookSecretError::Prefix)?;
        Self::from_bytes(STANDARD.decode(code).map_err(|_| WebhookSecretError::Base64)?)
    }

    /// The secret of these bytes.
    ///
    /// # Errors
    /// [`WebhookSecretError::Length`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, WebhookSecretError> {
        match (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
            true => Ok(Self(bytes)),
            false => Err(WebhookSecretError::Length(bytes.len())),
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text for its receiver.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }

    /// The value of `webhook-signature` for a message that is sent at this time.
    #[must_use]
    pub fn sign(&self, id: &str, timestamp_s: i64, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of HMAC has any length");
        mac.update(format!("{id}.{timestamp_s}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_specification_has_its_signature() {
        let secret = WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
        let signature = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_is_read_from_its_text() {
        for length in [SECRET_BYTES_MIN, 25, 26, SECRET_BYTES_MAX] {
            let secret = WebhookSecret::from_bytes(vec![7; length]).expect("a length that is allowed");
            assert_eq!(WebhookSecret::parse(&secret.text()), Ok(secret), "{length} bytes");
        }
    }

    #[test]
    fn wrong_secrets_are_refused_without_being_repeated() {
        let code = |bytes: usize| format!("{PREFIX}{}", STANDARD.encode(vec![7; bytes]));
        let cases = [
            (String::new(), WebhookSecretError::Prefix),
            ("AAECAwQFBgcICQoLDA0ODxAREhMUFRYX".to_owned(), WebhookSecretError::Prefix),
            ("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRY".to_owned(), WebhookSecretError::Base64),
            ("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFR-_".to_owned(), WebhookSecretError::Base64),
            (code(SECRET_BYTES_MIN - 1), WebhookSecretError::Length(SECRET_BYTES_MIN - 1)),
            (code(SECRET_BYTES_MAX + 1), WebhookSecretError::Length(SECRET_BYTES_MAX + 1)),
        ];
        for (text, expected) in cases {
            assert_eq!(WebhookSecret::parse(&text), Err(expected), "{text}");
            assert!(text.is_empty() || !expected.to_string().contains(&text), "{expected}");
        }
        let secret = WebhookSecret::from_bytes(vec![b'x'; 24]).expect("a secret");
        assert_eq!(format!("{secret:?}"), "WebhookSecret(..)");
    }
}
