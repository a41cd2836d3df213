//! How many requests may wait at one gateway, and which names does it use?

/// Extensions of the protocol that are there, by their names in Triton.
pub const EXTENSIONS: [&str; 4] = ["binary_tensor_data", "model_configuration", "schedule_policy", "statistics"];
/// What pipelines say that they run on.
pub const PLATFORM: &str = "apportion_pipeline";
/// Most requests that wait for their answers at one gateway; more are refused at once.
pub const REQUESTS_MAX: usize = 16_384;
/// Most bytes of inputs of requests that wait for their answers at one gateway; more are refused at once.
pub const WAITING_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// What a client that comes too early is told to wait, in seconds.
pub const RETRY_AFTER_S: u64 = 1;

/// The header, in gRPC the metadata, that says which variants served a request that said what it needs.
pub const VARIANTS: &str = "apportion-variants";

/// How much may wait at one gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayLimits {
    /// Requests.
    pub requests_max: usize,
    /// Bytes of their inputs.
    pub bytes_max: usize,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self { requests_max: REQUESTS_MAX, bytes_max: WAITING_BYTES_MAX }
    }
}
