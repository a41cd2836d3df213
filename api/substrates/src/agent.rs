//! What does every agent need to join the service?

/// How agents join the service.
#[derive(Clone)]
pub struct AgentAccess {
    /// The address of the service, `http://host:7071`; several are separated by commas.
    pub join: String,
    /// The token that agents must send. They get it in their environment, not as an argument that others could read.
    pub token: String,
}

/// The variable with the token.
pub(crate) const TOKEN_VARIABLE: &str = "APPORTION_TOKEN";

/// The arguments of an agent that do not depend on the substrate.
pub(crate) fn arguments(access: &AgentAccess, name: &str, hardware: &str, devices: u32) -> Vec<String> {
    let devices = devices.to_string();
    let pairs =
        [("--join", access.join.as_str()), ("--name", name), ("--hardware", hardware), ("--devices", devices.as_str())];
    pairs.into_iter().flat_map(|(key, value)| [key.to_owned(), value.to_owned()]).collect()
}
