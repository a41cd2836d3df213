//! How do the agents of a cluster run batches?

/// How the agents run batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Profiles are played back.
    Emulated,
    /// Variants are run from their files.
    Onnx,
    /// Variants are run by another server, which does not answer.
    Remote,
}

impl Backend {
    /// The value of an agent's `--backend`.
    #[must_use]
    pub const fn flag(self) -> &'static str {
        match self {
            Self::Emulated => "emulated",
            Self::Onnx => "onnx",
            Self::Remote => "remote=http://127.0.0.1:1",
        }
    }
}
