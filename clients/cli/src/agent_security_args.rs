//! How do agents prove themselves, by the arguments of `apportion serve`?

use apportion_api::{AgentCertificateRule, AgentSecurity, LinksSetting};
use clap::Args;
use std::time::Duration;

/// Longest life of an agent's certificate, in hours.
const CERTIFICATE_HOURS_MAX: u64 = 7 * 24;

/// The arguments about certificates of agents.
#[derive(Args, Debug)]
pub struct AgentSecurityArgs {
    /// Certificates that the service issues to agents. `accept`: each agent gets one, and is refused if it shows a wrong
    /// one. `require`: a stream that shows none gets one and no target; it needs `--agents-tls`. `off`: there are none.
    #[arg(long, value_name = "RULE", default_value = "accept", value_parser = ["require", "accept", "off"])]
    agent_certificates: String,
    /// How long such a certificate counts. An agent gets the next one after half of this time.
    #[arg(long, value_name = "HOURS", default_value_t = 24,
          value_parser = clap::value_parser!(u64).range(1..=CERTIFICATE_HOURS_MAX))]
    agent_certificate_hours: u64,
    /// How connections between agents are protected, beside the proof of their keys. `tls`: encrypted, with these
    /// certificates at both ends. `plain`: not, for a network that you trust.
    #[arg(long, value_name = "PROTECTION", default_value = "plain", value_parser = ["plain", "tls"])]
    links: String,
}

impl AgentSecurityArgs {
    /// The configuration.
    #[must_use]
    pub fn read(&self) -> AgentSecurity {
        let certificates = match self.agent_certificates.as_str() {
            "require" => AgentCertificateRule::Require,
            "off" => AgentCertificateRule::Off,
            _ => AgentCertificateRule::Accept,
        };
        let links = if self.links == "tls" { LinksSetting::Tls } else { LinksSetting::Plain };
        let certificate_life = Duration::from_secs(self.agent_certificate_hours * 3_600);
        AgentSecurity { certificates, certificate_life, links }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        security: AgentSecurityArgs,
    }

    fn read(words: &[&str]) -> Option<AgentSecurity> {
        let words = std::iter::once("serve").chain(words.iter().copied());
        Command::try_parse_from(words).ok().map(|command| command.security.read())
    }

    #[test]
    fn each_word_has_its_setting() {
        assert_eq!(read(&[]), Some(AgentSecurity::default()));
        let words = ["--agent-certificates", "require", "--agent-certificate-hours", "168", "--links", "tls"];
        let expected = AgentSecurity {
            certificates: AgentCertificateRule::Require,
            certificate_life: Duration::from_secs(168 * 3_600),
            links: LinksSetting::Tls,
        };
        assert_eq!(read(&words), Some(expected));
        let off = read(&["--agent-certificates", "off"]).expect("it is a rule");
        assert_eq!(off.certificates, AgentCertificateRule::Off);
        for wrong in [["--links", "TLS"], ["--agent-certificates", "yes"], ["--agent-certificate-hours", "169"]] {
            assert_eq!(read(&wrong), None, "{wrong:?}");
        }
        assert_eq!(read(&["--agent-certificate-hours", "0"]), None);
    }
}
