//! How much may a project store?
//!
//! Example: the project `shop` may have 1,000 bytes of model files, and has 900. Its client uploads a file of 200 bytes,
//! and is refused.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// Bytes of model files of a project that names no limit: 1 TiB. It stops a runaway client before it fills a usual disk.
pub const PROJECT_FILE_BYTES_MAX: u64 = 1 << 40;
/// Rows of traces of a project that names no limit. A trace has at most 128 MiB, so they are 100 large ones at least.
pub const PROJECT_TRACE_ROWS_MAX: u64 = 1_000_000_000;
/// Highest limit that a project names.
pub const STORAGE_LIMIT_MAX: u64 = 1_000_000_000_000_000;

/// Limits on what a project stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageQuota {
    /// Most bytes of model files that its tokens have stored first, 0 to 1e15; null: 1 TiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Most rows of all traces that its tokens have uploaded, 0 to 1e15; null: 1e9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_rows: Option<u64>,
}

/// A kind of storage with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageKind {
    /// Bytes of model files.
    FileBytes,
    /// Rows of traces.
    TraceRows,
}

impl StorageKind {
    /// The member of a project that limits it.
    const fn member(self) -> &'static str {
        match self {
            Self::FileBytes => "/storage/file_bytes",
            Self::TraceRows => "/storage/trace_rows",
        }
    }

    /// Its unit, for people.
    const fn unit(self) -> &'static str {
        match self {
            Self::FileBytes => "bytes of model files",
            Self::TraceRows => "rows of traces",
        }
    }

    /// How its users make room, for people.
    const fn cure(self) -> &'static str {
        match self {
            Self::FileBytes => "let a client without a project delete files that no pipeline needs",
            Self::TraceRows => "delete traces",
        }
    }
}

/// More than a project may store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageBreach {
    /// The project.
    pub project: String,
    /// The limit.
    pub kind: StorageKind,
    /// The amount that is stored.
    pub used: u64,
    /// The amount that was asked for.
    pub asked: u64,
    /// The amount that the quota permits.
    pub permitted: u64,
}

impl fmt::Display for StorageBreach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { project, kind, used, asked, permitted } = self;
        write!(
            f,
            "project {project} may store {permitted} {}, has {used}, and asks for {asked} more: {}, or raise {} of the \
             project",
            kind.unit(),
            kind.cure(),
            kind.member()
        )
    }
}

impl StorageQuota {
    /// Whether it names no limit, so that the default ones hold.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The amount that the quota permits.
    #[must_use]
    pub fn permitted(&self, kind: StorageKind) -> u64 {
        match kind {
            StorageKind::FileBytes => self.file_bytes.unwrap_or(PROJECT_FILE_BYTES_MAX),
            StorageKind::TraceRows => self.trace_rows.unwrap_or(PROJECT_TRACE_ROWS_MAX),
        }
    }

    /// The breach if a project that has stored `used` stores `asked` more.
    #[must_use]
    pub fn breach(&self, project: &str, kind: StorageKind, used: u64, asked: u64) -> Option<StorageBreach> {
        let permitted = self.permitted(kind);
        let is_over = used.saturating_add(asked) > permitted;
        is_over.then(|| StorageBreach { project: project.to_owned(), kind, used, asked, permitted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breach_names_used_asked_and_limit() {
        let quota = StorageQuota { file_bytes: Some(1_000), trace_rows: None };
        let breach = quota.breach("shop", StorageKind::FileBytes, 900, 200).expect("too much");
        let words = "project shop may store 1000 bytes of model files, has 900, and asks for 200 more";
        assert!(breach.to_string().starts_with(words), "{breach}");
        assert!(breach.to_string().ends_with("or raise /storage/file_bytes of the project"), "{breach}");
    }

    #[test]
    fn a_quota_is_used_up_to_its_limit() {
        let quota = StorageQuota { file_bytes: Some(1_000), trace_rows: Some(0) };
        let is_over = |kind, used, asked| quota.breach("shop", kind, used, asked).is_some();
        use StorageKind::{FileBytes, TraceRows};
        let cases = [
            (FileBytes, 900, 100, false),
            (FileBytes, 900, 101, true),
            (FileBytes, 2_000, 1, true),
            (FileBytes, u64::MAX, u64::MAX, true),
            (TraceRows, 0, 1, true),
        ];
        for (kind, used, asked, expected) in cases {
            assert_eq!(is_over(kind, used, asked), expected, "{kind:?} {used} {asked}");
        }
        let none = StorageQuota::default();
        assert_eq!(none.breach("shop", FileBytes, 0, PROJECT_FILE_BYTES_MAX), None);
        assert!(none.breach("shop", FileBytes, 1, PROJECT_FILE_BYTES_MAX).is_some());
        assert!(none.breach("shop", TraceRows, PROJECT_TRACE_ROWS_MAX, 1).is_some());
    }
}
