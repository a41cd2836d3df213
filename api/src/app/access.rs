//! Who may use the HTTP interface, and how does a client show that it may?
//!
//! A token is `apportion_ID_SECRET`. The table has the SHA-256 of the secret, which has 244 random bits.

use super::rate_limit::{RateBuckets, RateDecision, RateLimit};
use sha2::{Digest, Sha256};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::Semaphore;
use uuid::Uuid;

/// The begin of every token of the table.
const PREFIX: &str = "apportion_";
/// Tokens that are looked up at a time. Each takes a connection to the database, and strangers may send as many tokens as
/// they like.
pub const LOOKUPS_MAX: usize = 4;
/// Fewest characters of a configured token.
pub const TOKEN_CHARS_MIN: usize = 16;

/// SHA-256 of a secret.
pub type SecretDigest = [u8; 32];

/// The digest of a secret.
#[must_use]
pub fn digest(secret: &str) -> SecretDigest {
    Sha256::digest(secret.as_bytes()).into()
}

/// A new token. Only its client keeps the text.
pub struct NewToken {
    /// Its identifier.
    pub id: Uuid,
    /// The text for its client.
    pub text: String,
    /// The digest for the table.
    pub digest: SecretDigest,
}

impl NewToken {
    /// A token with a random secret.
    #[must_use]
    pub fn random() -> Self {
        let id = Uuid::now_v7();
        let secret = random_secret();
        Self { id, text: format!("{PREFIX}{}_{secret}", id.simple()), digest: digest(&secret) }
    }
}

/// A random secret: 64 digits of hexadecimal, with 244 random bits.
#[must_use]
pub fn random_secret() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

/// A token of the table, as a client shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownToken {
    /// Its identifier.
    pub id: Uuid,
    /// The digest of its secret.
    pub digest: SecretDigest,
}

impl ShownToken {
    /// The parts of a token; `None` if the text has another form.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        Some(Self { id: Uuid::try_parse(id).ok()?, digest: digest(secret) })
    }
}

/// The configuration of the access over HTTP.
#[derive(Clone, Default)]
pub struct AccessConfig {
    /// A token that allows everything, beside those of the table.
    pub admin_token: Option<String>,
    /// Whether requests need a token. Beyond loopback they always do.
    pub token: TokenRule,
    /// Names of this service in the header `Host`, beside those of loopback. Only for requests without a token.
    pub hosts: Vec<String>,
    /// The requests that each client may send to this process.
    pub rate: RateLimit,
}

/// Whether requests need a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenRule {
    /// Only if the service listens beyond loopback.
    #[default]
    BeyondLoopback,
    /// Always.
    Always,
}

impl fmt::Debug for AccessConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AccessConfig { admin_token, token, hosts, rate } = self;
        let admin_token = admin_token.as_ref().map(|_| "(secret)");
        f.debug_struct("AccessConfig")
            .field("admin_token", &admin_token)
            .field("token", token)
            .field("hosts", hosts)
            .field("rate", rate)
            .finish()
    }
}

/// A client whose requests are counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RateClient {
    /// The client with this token of the table.
    Token(Uuid),
    /// A client without a row: that of the configured token, or all clients on loopback without one. It has this name.
    Named(String),
}

/// The requests of the clients of this process.
pub struct ClientRates {
    begun: Instant,
    buckets: Mutex<RateBuckets<RateClient>>,
}

impl ClientRates {
    fn new(limit: RateLimit) -> Self {
        Self { begun: Instant::now(), buckets: Mutex::new(RateBuckets::new(limit)) }
    }

    /// Decides on a request that comes now.
    pub fn take(&self, client: RateClient) -> RateDecision {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.take(client, self.begun.elapsed())
    }
}

/// Who may use the HTTP interface.
pub struct AccessPolicy {
    /// Whether a request needs a token.
    pub is_token_required: bool,
    /// The digest of the configured token that allows everything.
    pub admin: Option<SecretDigest>,
    /// The digest of the agents' token.
    pub agent: SecretDigest,
    /// The requests of its clients.
    pub rates: ClientRates,
    /// Places for [`LOOKUPS_MAX`] lookups of tokens.
    pub lookups: Semaphore,
    hosts: Vec<String>,
}

impl AccessPolicy {
    /// The policy of a service that listens at this address.
    #[must_use]
    pub fn new(config: &AccessConfig, address: IpAddr, agent_token: &str) -> Self {
        Self {
            is_token_required: config.token == TokenRule::Always || !address.is_loopback(),
            admin: config.admin_token.as_deref().map(digest),
            agent: digest(agent_token),
            rates: ClientRates::new(config.rate),
            lookups: Semaphore::new(LOOKUPS_MAX),
            hosts: config.hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
        }
    }

    /// Whether a request without a token may name this host (`Host` with or without a port). A page of another site can
    /// make a browser call a service on loopback, by a name of its own that leads there. It cannot choose this header.
    #[must_use]
    pub fn is_own_host(&self, host: &str) -> bool {
        let name = host_name(host).to_ascii_lowercase();
        let is_loopback = name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        is_loopback || name == "localhost" || self.hosts.contains(&name)
    }
}

/// The name in `name`, `name:port` or `[address]:port`.
fn host_name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_token_has_the_digest_of_the_new_one() {
        let new = NewToken::random();
        assert_eq!(ShownToken::read(&new.text), Some(ShownToken { id: new.id, digest: new.digest }));
        assert!(!new.text.contains(&NewToken::random().text[PREFIX.len()..]));
        for broken in ["", "apportion_", "apportion_x_y", &new.text["app".len()..], &new.text.replace('_', "-")] {
            assert_eq!(ShownToken::read(broken), None, "{broken}");
        }
    }

    #[test]
    fn another_secret_has_another_digest() {
        let new = NewToken::random();
        let changed = format!("{}0", &new.text[..new.text.len() - 1]);
        let other = format!("{}1", &new.text[..new.text.len() - 1]);
        let digests = [changed, other].map(|text| ShownToken::read(&text).expect("a token").digest);
        assert_ne!(digests[0], digests[1]);
    }

    #[test]
    fn own_hosts_are_those_of_loopback_and_the_listed_ones() {
        let config = AccessConfig { hosts: vec!["Apportion.example".into()], ..AccessConfig::default() };
        let policy = AccessPolicy::new(&config, IpAddr::from([127, 0, 0, 1]), "agents");
        for own in [
            "localhost",
            "localhost:7070",
            "LOCALHOST:7070",
            "127.0.0.1:1",
            "127.8.9.1",
            "[::1]:7070",
            "[::1]",
            "apportion.example:443",
        ] {
            assert!(policy.is_own_host(own), "{own}");
        }
        for other in ["", "evil.example:7070", "10.0.0.1:7070", "localhost.evil.example", "[::2]:7070", "127.0.0.1.nip.io"]
        {
            assert!(!policy.is_own_host(other), "{other}");
        }
    }

    #[test]
    fn a_token_is_required_beyond_loopback() {
        let required = |config: &AccessConfig, address: &str| {
            AccessPolicy::new(config, address.parse().expect("an address"), "agents").is_token_required
        };
        let open = AccessConfig::default();
        assert!(!required(&open, "127.0.0.1") && !required(&open, "::1"));
        assert!(required(&open, "0.0.0.0") && required(&open, "10.1.2.3") && required(&open, "::"));
        assert!(required(&AccessConfig { token: TokenRule::Always, ..open }, "127.0.0.1"));
    }

    #[test]
    fn a_printed_configuration_has_no_secret() {
        let config = AccessConfig { admin_token: Some("very secret".into()), ..AccessConfig::default() };
        assert!(!format!("{config:?}").contains("very secret"));
    }
}
