//! Who signs the certificates of agents, and what do they say?

use crate::error::IssueError;
use crate::names::{SUFFIX, agent_name, row_name};
use crate::request::SigningRequest;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::pki_types::{CertificateDer, ServerName};
use std::fmt;
use std::net::IpAddr;
use time::OffsetDateTime;

/// When a certificate counts, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidityPeriod {
    /// From this second on.
    pub from_s: u64,
    /// Until this second.
    pub until_s: u64,
}

/// The parts of an authority, to be stored. The key is never printed.
pub struct NewAuthority {
    /// Its certificate, as DER. Everyone may have it.
    pub certificate: Vec<u8>,
    /// Its key, as PKCS #8. It is secret.
    pub key: Vec<u8>,
}

impl fmt::Debug for NewAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewAuthority(..)")
    }
}

/// The agent that gets a certificate.
#[derive(Clone, Copy, Debug)]
pub struct AgentSubject<'a> {
    /// Its number.
    pub number: u64,
    /// The hexadecimal digits of its row.
    pub row: &'a str,
    /// Its name.
    pub name: &'a str,
    /// `host:port` where other agents reach it.
    pub data_address: &'a str,
    /// Bytes that no other certificate has.
    pub serial: [u8; 16],
}

/// An authority that signs. It is never printed.
pub struct FleetAuthority(Issuer<'static, KeyPair>);

impl fmt::Debug for FleetAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FleetAuthority(..)")
    }
}

impl FleetAuthority {
    /// Makes an authority. `label` is a text that no other authority has.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn generate(label: &str, validity: ValidityPeriod) -> Result<NewAuthority, IssueError> {
        let key = KeyPair::generate().map_err(IssueError::Make)?;
        let mut params = params(&format!("apportion fleet {label}"), validity)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).map_err(IssueError::Make)?;
        Ok(NewAuthority { certificate: certificate.der().to_vec(), key: key.serialize_der() })
    }

    /// The authority with this certificate and this key.
    ///
    /// # Errors
    /// If one of them is malformed.
    pub fn open(certificate: &[u8], key: &[u8]) -> Result<Self, IssueError> {
        let key = KeyPair::try_from(key).map_err(IssueError::Authority)?;
        let issuer = Issuer::from_ca_cert_der(&CertificateDer::from(certificate), key);
        issuer.map(Self).map_err(IssueError::Authority)
    }

    /// A certificate of an agent, for both ends of TLS.
    ///
    /// # Errors
    /// If the period or a text cannot be written.
    pub fn issue(
        &self,
        request: &SigningRequest,
        agent: AgentSubject<'_>,
        validity: ValidityPeriod,
    ) -> Result<CertificateDer<'static>, IssueError> {
        let mut params = params(agent.name, validity)?;
        params.serial_number = Some(SerialNumber::from_slice(&agent.serial));
        params.subject_alt_names = vec![dns(agent_name(agent.number))?, dns(row_name(agent.row))?];
        params.subject_alt_names.extend(host_name(agent.data_address)?);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&request.key, &self.0).map_err(IssueError::Make)?;
        Ok(certificate.into())
    }
}

fn params(name: &str, validity: ValidityPeriod) -> Result<CertificateParams, IssueError> {
    let mut params = CertificateParams::default();
    params.not_before = moment(validity.from_s)?;
    params.not_after = moment(validity.until_s)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

fn moment(seconds: u64) -> Result<OffsetDateTime, IssueError> {
    let found = i64::try_from(seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    found.ok_or(IssueError::Moment(seconds))
}

fn dns(name: String) -> Result<SanType, IssueError> {
    Ia5String::try_from(name).map(SanType::DnsName).map_err(IssueError::Make)
}

/// The host of an address as a name of the certificate; none if it is no name. An agent chooses its address, so the names
/// of agents do not count here: else it would get the name of another one.
fn host_name(address: &str) -> Result<Option<SanType>, IssueError> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(Some(SanType::IpAddress(ip)));
    }
    let lower = host.to_ascii_lowercase();
    let is_ours = lower.trim_end_matches('.').ends_with(SUFFIX.trim_start_matches('.'));
    match ServerName::try_from(host) {
        Ok(ServerName::DnsName(_)) if !is_ours => dns(host.trim_end_matches('.').to_owned()).map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gives_its_host_and_never_the_name_of_an_agent() {
        let shown = |address: &str| match host_name(address).expect("it can be written") {
            Some(SanType::DnsName(name)) => name.as_str().to_owned(),
            Some(SanType::IpAddress(ip)) => ip.to_string(),
            Some(other) => panic!("{other:?}"),
            None => "none".to_owned(),
        };
        for (address, expected) in [
            ("127.0.0.1:7", "127.0.0.1"),
            ("[::1]:7", "::1"),
            ("gpu-1.example:7", "gpu-1.example"),
            ("agent-3.agents.apportion.internal:7", "none"),
            ("AGENT-3.Agents.Apportion.Internal.:7", "none"),
            ("agents.apportion.internal:7", "none"),
            ("no name:7", "none"),
            ("", "none"),
        ] {
            assert_eq!(shown(address), expected, "{address}");
        }
    }

    #[test]
    fn moments_beyond_all_calendars_are_refused() {
        for seconds in [u64::MAX, 1 << 50] {
            let refused = moment(seconds).expect_err("no calendar has it").to_string();
            assert!(refused.contains(&seconds.to_string()), "{refused}");
        }
    }

    #[test]
    fn no_key_is_printed() {
        let made = FleetAuthority::generate("a", ValidityPeriod { from_s: 0, until_s: 1 }).expect("made");
        let authority = FleetAuthority::open(&made.certificate, &made.key).expect("its own parts");
        assert_eq!(format!("{made:?} {authority:?}"), "NewAuthority(..) FleetAuthority(..)");
        let refused = FleetAuthority::open(&made.certificate, &made.key[1..]).expect_err("a broken key").to_string();
        assert!(refused.contains("authority"), "{refused}");
    }
}
