//! What does every agent need to join the service?

use crate::machine::MachineRequest;

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
pub(crate) fn arguments(access: &AgentAccess, request: &MachineRequest, devices: u32) -> Vec<String> {
    let MachineRequest { name, hardware, zone } = request;
    let devices = devices.to_string();
    let pairs = [("--join", &access.join), ("--name", name), ("--hardware", hardware), ("--devices", &devices)];
    let zone = zone.iter().map(|zone| ("--zone", zone));
    pairs.into_iter().chain(zone).flat_map(|(key, value)| [key.to_owned(), value.clone()]).collect()
}
