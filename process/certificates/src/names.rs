//! Which names does a certificate of an agent have?

use rustls::pki_types::ServerName;

/// The end of all names. Nobody can register a name below `internal`.
pub(crate) const SUFFIX: &str = ".agents.apportion.internal";

/// The name of the agent with this number.
#[must_use]
pub fn agent_name(number: u64) -> String {
    format!("agent-{number}{SUFFIX}")
}

/// The name of a row of the service's database, by hexadecimal digits that no other row has. An agent that is deleted and
/// joins again has another row, and may have the same number.
#[must_use]
pub fn row_name(digits: &str) -> String {
    format!("row-{digits}{SUFFIX}")
}

/// The name that the agent with this number must prove on a link.
///
/// # Panics
/// Never: each number makes a name.
#[must_use]
pub fn link_name(number: u64) -> ServerName<'static> {
    ServerName::try_from(agent_name(number)).expect("digits, letters and dots are a name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_its_own_name() {
        let names: std::collections::BTreeSet<String> = [0, 7, 77, u64::MAX].map(agent_name).into();
        assert_eq!(names.len(), 4);
        assert_eq!(link_name(u64::MAX).to_str(), agent_name(u64::MAX));
    }
}
