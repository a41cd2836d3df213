//! The agent (placeholder docs).
pub mod backend;
pub mod tensor;
