//! The service: registers pipelines, plans them, stores everything durable in PostgreSQL, and has agents carry plans out.
//!
//! What belongs here: rows ([`store`]), resources ([`http`]), work that takes a while ([`jobs`] and [`analyses`]) and the
//! control plane ([`decide`] and [`act`]). What never does: policies of serving or planning, JSON's shapes (those are
//! `api/wire`).
//!
//! The commonest addition is a resource: a table in a new migration, its rows in `store`, its handlers in `http`, and
//! `api/openapi.json` written anew by its test with `APPORTION_WRITE=1`.

pub mod act;
pub mod analyses;
mod app;
mod audit_entries;
mod certificates;
pub mod database;
pub mod decide;
mod documents;
mod hex;
pub mod http;
pub mod jobs;
pub mod ladder_headroom;
mod printed;
mod restore;
mod serve;
pub mod store;

pub use app::access::{AccessConfig, TOKEN_CHARS_MIN, TokenRule, random_secret};
pub use app::agent_security::{AgentCertificateRule, AgentSecurity, AgentSecurityError, AgentsPort, LinksSetting};
pub use app::model_files::ModelFilePlace;
pub use app::prometheus_access::{AccessError, AllowedPrometheus, TokenPlace};
pub use app::rate_limit::RateLimit;
pub use app::spans::{TracesConfig, TracesError};
pub use apportion_kubernetes::KubernetesAccess;
pub use apportion_substrates::SubstrateSettings;
pub use apportion_tls::TlsFiles;
pub use certificates::CertificateError;
pub use decide::retention::{RetentionError, RetentionPolicy, RowKind};
pub use restore::{RestoreError, RestoreResult, finish_restore};
pub use serve::{RunningService, ScalersConfig, ServeError, ServiceConfig, serve};
