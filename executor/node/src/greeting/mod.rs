//! How do two agents prove to each other that they belong to one fleet?
//!
//! Example: agent 3 dials agent 7. The service has given both the key of this pair.
//!
//! 1. Agent 3 sends [`GREETING`] and [`Dialling::hello`]: both numbers, a nonce, and a proof of the key.
//! 2. Agent 7 checks the version, the numbers and the proof, in this order. Only then it sends [`Admission::answer`]: a
//!    nonce of its own, and a proof over both nonces.
//! 3. Agent 3 checks that proof, and sends [`Dialling::confirm`]: another proof over both nonces. Its messages follow.
//!
//! A proof is the HMAC-SHA256 of the name of its step and of all that was sent. A recorded hello opens nothing, because the
//! third step answers a fresh nonce. A stranger gets no answer: the first message proves a key already, as in WireGuard
//! (Donenfeld 2017, section 5.3).
//!
//! The greeting proves who opens a connection. It neither hides nor protects the bytes that follow. A fleet whose links
//! have TLS greets inside of it.

mod keys;

pub use keys::{LINK_KEY_BYTES, LINK_KEYS_MAX, LinkKey, LinkKeyring, PairKeys, ReceivedKeys, without_link_keys};

use bytes::{Buf, BufMut};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// First bytes of a connection in both directions: they name an agent, and the version of the protocol that follows.
pub const GREETING: [u8; 8] = *b"apport10";
/// The part of the greeting that all versions share.
const NAME_BYTES: usize = 6;
/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;
/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;
/// Bytes of a hello, after the greeting: two numbers, a nonce and a proof for each key.
pub const HELLO_BYTES: usize = 2 * size_of::<u64>() + NONCE_BYTES + LINK_KEYS_MAX * PROOF_BYTES;
/// Bytes of the answer, after the greeting: a nonce and a proof.
pub const ANSWER_BYTES: usize = NONCE_BYTES + PROOF_BYTES;

/// Bytes that no other greeting has.
pub type Nonce = [u8; NONCE_BYTES];

/// Why a greeting is refused. No message repeats a key, a proof or a nonce.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GreetingError {
    /// The other end speaks another version.
    #[error("the other agent speaks version {theirs} of the agents' protocol, this one version {ours}: run the same release of \
             apportion-agent on both", ours = version(&GREETING))]
    Version {
        /// The version that it named.
        theirs: String,
    },
    /// The other end is another program.
    #[error("the other end is no agent")]
    Stranger,
    /// It dials another agent.
    #[error("it dials agent {meant}, and this is agent {own}")]
    OtherAgent {
        /// The number that it dials.
        meant: u64,
        /// The number of the agent that it reached.
        own: u64,
    },
    /// It has a number for which there is no key.
    #[error("it says that it is agent {0}, and the target here has no key for that one")]
    UnknownAgent(u64),
    /// It does not have the key, or it replays a greeting.
    #[error("its proof is wrong: it has no key of this pair of agents that is in force, or it repeats another greeting")]
    Proof,
}

fn version(greeting: &[u8; GREETING.len()]) -> String {
    String::from_utf8_lossy(&greeting[NAME_BYTES..]).into_owned()
}

/// Checks the first bytes of the other end.
///
/// # Errors
/// [`GreetingError::Version`], [`GreetingError::Stranger`].
pub fn check_version(greeting: &[u8; GREETING.len()]) -> Result<(), GreetingError> {
    match greeting {
        ours if *ours == GREETING => Ok(()),
        other if other[..NAME_BYTES] == GREETING[..NAME_BYTES] => Err(GreetingError::Version { theirs: version(other) }),
        _ => Err(GreetingError::Stranger),
    }
}

/// The two agents of a connection. Messages go from one to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkEnds {
    /// The agent that dials.
    pub from: u64,
    /// The agent that accepts.
    pub to: u64,
}

/// A step of the greeting.
#[derive(Clone, Copy, Debug)]
enum GreetingStep {
    Hello,
    Answer,
    Confirmation,
}

impl GreetingStep {
    /// Names of different lengths, so that no proof of one step is a proof of another.
    const fn name(self) -> &'static [u8] {
        match self {
            Self::Hello => b"hello",
            Self::Answer => b"answer",
            Self::Confirmation => b"confirmation",
        }
    }
}

/// All that was sent so far.
#[derive(Clone, Copy, Debug)]
struct Transcript {
    ends: LinkEnds,
    dialled: Nonce,
    /// Zeros before the answer.
    accepted: Nonce,
}

impl Transcript {
    fn mac(&self, key: &LinkKey, step: GreetingStep) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(key.bytes()).expect("a key of HMAC has any length");
        mac.update(step.name());
        mac.update(&GREETING);
        mac.update(&self.ends.from.to_be_bytes());
        mac.update(&self.ends.to.to_be_bytes());
        mac.update(&self.dialled);
        mac.update(&self.accepted);
        mac
    }

    fn prove(&self, key: &LinkKey, step: GreetingStep) -> [u8; PROOF_BYTES] {
        self.mac(key, step).finalize().into_bytes().into()
    }

    /// Whether this is the proof, in a time that does not depend on it.
    fn is_proven(&self, key: &LinkKey, step: GreetingStep, proof: &[u8]) -> bool {
        self.mac(key, step).verify_slice(proof).is_ok()
    }
}

/// The greeting of the agent that dials.
#[derive(Clone, Debug)]
pub struct Dialling {
    /// The two agents.
    pub ends: LinkEnds,
    /// The keys of the pair.
    pub keys: PairKeys,
    /// Bytes that this agent has never used.
    pub nonce: Nonce,
}

impl Dialling {
    /// The first message, after [`GREETING`].
    #[must_use]
    pub fn hello(&self) -> [u8; HELLO_BYTES] {
        let said = self.transcript([0; NONCE_BYTES]);
        let mut hello = [0; HELLO_BYTES];
        let mut rest = &mut hello[..];
        rest.put_u64(self.ends.from);
        rest.put_u64(self.ends.to);
        rest.put_slice(&self.nonce);
        for key in self.keys.both() {
            rest.put_slice(&said.prove(key, GreetingStep::Hello));
        }
        hello
    }

    /// The last message, if the answer proves that the other agent has a key of the pair.
    ///
    /// # Errors
    /// [`GreetingError::Proof`].
    pub fn confirm(&self, answer: &[u8; ANSWER_BYTES]) -> Result<[u8; PROOF_BYTES], GreetingError> {
        let mut rest = &answer[..];
        let mut accepted = [0; NONCE_BYTES];
        rest.copy_to_slice(&mut accepted);
        let said = self.transcript(accepted);
        let is_shared = |key: &&LinkKey| said.is_proven(key, GreetingStep::Answer, rest);
        let shared = self.keys.both().into_iter().find(is_shared).ok_or(GreetingError::Proof)?;
        Ok(said.prove(shared, GreetingStep::Confirmation))
    }

    fn transcript(&self, accepted: Nonce) -> Transcript {
        Transcript { ends: self.ends, dialled: self.nonce, accepted }
    }
}

/// The greeting of the agent that accepts, once a hello has proven a key.
#[derive(Clone, Debug)]
pub struct Admission {
    said: Transcript,
    key: LinkKey,
}

impl Admission {
    /// Checks a hello. `nonce` is one that this agent has never used.
    ///
    /// # Errors
    /// [`GreetingError::OtherAgent`], [`GreetingError::UnknownAgent`], [`GreetingError::Proof`].
    pub fn of_hello(hello: &[u8; HELLO_BYTES], keyring: &LinkKeyring, nonce: Nonce) -> Result<Self, GreetingError> {
        let mut rest = &hello[..];
        let ends = LinkEnds { from: rest.get_u64(), to: rest.get_u64() };
        let mut dialled = [0; NONCE_BYTES];
        rest.copy_to_slice(&mut dialled);
        if ends.to != keyring.own() {
            return Err(GreetingError::OtherAgent { meant: ends.to, own: keyring.own() });
        }
        let keys = keyring.pair(ends.from).ok_or(GreetingError::UnknownAgent(ends.from))?;
        let said = Transcript { ends, dialled, accepted: [0; NONCE_BYTES] };
        let is_shared =
            |key: &&LinkKey| rest.chunks_exact(PROOF_BYTES).any(|proof| said.is_proven(key, GreetingStep::Hello, proof));
        let key = keys.both().into_iter().find(is_shared).ok_or(GreetingError::Proof)?.clone();
        Ok(Self { said: Transcript { accepted: nonce, ..said }, key })
    }

    /// The answer, after [`GREETING`].
    #[must_use]
    pub fn answer(&self) -> [u8; ANSWER_BYTES] {
        let mut answer = [0; ANSWER_BYTES];
        let mut rest = &mut answer[..];
        rest.put_slice(&self.said.accepted);
        rest.put_slice(&self.said.prove(&self.key, GreetingStep::Answer));
        answer
    }

    /// The number of the agent that has dialled, if its last message is right.
    ///
    /// # Errors
    /// [`GreetingError::Proof`].
    pub fn admit(&self, confirmation: &[u8; PROOF_BYTES]) -> Result<u64, GreetingError> {
        match self.said.is_proven(&self.key, GreetingStep::Confirmation, confirmation) {
            true => Ok(self.said.ends.from),
            false => Err(GreetingError::Proof),
        }
    }
}

#[cfg(test)]
mod tests;
