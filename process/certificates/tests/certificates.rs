//! Certificates of two agents, and links between them without a network.

use apportion_certificates::{
    AgentKey, AgentSubject, AgentTrust, FleetAuthority, IssueError, LinkTls, NewAuthority, REQUEST_BYTES_MAX,
    SigningRequest, TrustError, ValidityPeriod, agent_name, is_named, link_name, row_name,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{ClientConnection, Connection, Error, ServerConnection};
use std::time::Duration;

const DAY_S: u64 = 24 * 3_600;
/// Bytes of a signature of P-256 in a request, with its head.
const SIGNATURE_BYTES_MAX: usize = 75;
/// Bytes of the name of the signature's algorithm. They are not signed.
const ALGORITHM_BYTES: usize = 12;

fn now_s() -> u64 {
    UnixTime::now().as_secs()
}

fn around(from_s: u64, until_s: u64) -> ValidityPeriod {
    ValidityPeriod { from_s, until_s }
}

/// An hour of today in the middle.
fn today() -> ValidityPeriod {
    around(now_s() - 3_600, now_s() + 3_600)
}

fn authority(label: &str) -> NewAuthority {
    FleetAuthority::generate(label, around(now_s() - DAY_S, now_s() + DAY_S)).expect("an authority")
}

struct Issued {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

fn issue(by: &NewAuthority, number: u64, validity: ValidityPeriod) -> Issued {
    let key = AgentKey::generate().expect("a key");
    let request = SigningRequest::read(&key.request().expect("a request")).expect("its own request");
    let row = "0a".repeat(16);
    let agent = AgentSubject { number, row: &row, name: "one", data_address: "127.0.0.1:7", serial: [0x81; 16] };
    let authority = FleetAuthority::open(&by.certificate, &by.key).expect("its own parts");
    let certificate = authority.issue(&request, agent, validity).expect("a certificate").to_vec();
    Issued { certificate, key: key.secret().to_vec() }
}

fn link(of: &Issued, trusts: &[&NewAuthority]) -> LinkTls {
    let authorities: Vec<Vec<u8>> = trusts.iter().map(|authority| authority.certificate.clone()).collect();
    LinkTls::new(&of.certificate, &of.key, &authorities).expect("they fit")
}

/// Carries the bytes of one end to the other.
fn carry(from: &mut Connection, to: &mut Connection) -> Result<(), Error> {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).expect("a vector takes all");
    }
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        to.read_tls(&mut rest).expect("a slice gives all");
        to.process_new_packets()?;
    }
    Ok(())
}

/// The certificate that the agent with number `to` sees when it is dialled.
fn dial(client: &LinkTls, to: u64, server: &LinkTls) -> Result<CertificateDer<'static>, Error> {
    let mut near = Connection::Client(ClientConnection::new(client.client(), link_name(to))?);
    let mut far = Connection::Server(ServerConnection::new(server.server())?);
    while near.is_handshaking() || far.is_handshaking() {
        carry(&mut near, &mut far)?;
        carry(&mut far, &mut near)?;
    }
    Ok(far.peer_certificates().expect("it must show one")[0].clone())
}

#[test]
fn two_agents_of_a_fleet_prove_their_numbers() {
    let fleet = authority("a");
    let (one, two) = (link(&issue(&fleet, 1, today()), &[&fleet]), link(&issue(&fleet, 2, today()), &[&fleet]));
    let seen = dial(&one, 2, &two).expect("both are of the fleet");
    assert!(
        is_named(&seen, &agent_name(1)) && is_named(&seen, &row_name(&"0a".repeat(16))) && is_named(&seen, "127.0.0.1")
    );
    assert!(
        !is_named(&seen, &agent_name(2)) && !is_named(&seen, &row_name(&"0b".repeat(16))) && !is_named(&seen, "no name")
    );
}

#[test]
fn wrong_certificates_are_refused_at_both_ends() {
    let (fleet, other) = (authority("a"), authority("b"));
    let good = |number: u64| link(&issue(&fleet, number, today()), &[&fleet]);
    let stranger = |number: u64| link(&issue(&other, number, today()), &[&fleet]);
    let expired = |number: u64| link(&issue(&fleet, number, around(now_s() - 7_200, now_s() - 3_600)), &[&fleet]);
    let early = |number: u64| link(&issue(&fleet, number, around(now_s() + 3_600, now_s() + 7_200)), &[&fleet]);
    for (one, to, two, reason) in [
        (good(1), 3, good(2), "not valid for name"),
        (good(1), 2, stranger(2), "unknownissuer"),
        (stranger(1), 2, good(2), "unknownissuer"),
        (good(1), 2, expired(2), "expired"),
        (expired(1), 2, good(2), "expired"),
        (early(1), 2, good(2), "not valid yet"),
    ] {
        let refused = dial(&one, to, &two).expect_err(reason).to_string().to_lowercase();
        assert!(refused.contains(reason), "{refused}: expected {reason}");
    }
}

#[test]
fn two_authorities_count_while_one_replaces_the_other() {
    let (old, new) = (authority("a"), authority("b"));
    let of = |by: &NewAuthority, number: u64| link(&issue(by, number, today()), &[&new, &old]);
    for (one, two) in [(&old, &new), (&new, &old), (&new, &new)] {
        assert!(dial(&of(one, 1), 2, &of(two, 2)).is_ok());
    }
    // The next one has come, and the old one does not count any more.
    let next = authority("c");
    let late = link(&issue(&next, 2, today()), &[&next, &new]);
    assert!(dial(&of(&old, 1), 2, &late).is_err() && dial(&of(&new, 1), 2, &of(&new, 2)).is_ok());
}

#[test]
fn a_certificate_counts_in_its_period_alone() {
    let (fleet, other) = (authority("a"), authority("b"));
    let trust = AgentTrust::new([fleet.certificate.as_slice()]).expect("an authority");
    let begins_s = now_s();
    let certificate = issue(&fleet, 1, around(begins_s, begins_s + 60)).certificate;
    let check = |certificate: &[u8], at_s: u64| {
        trust.check(&CertificateDer::from(certificate), UnixTime::since_unix_epoch(Duration::from_secs(at_s)))
    };
    assert!(check(&certificate, begins_s).is_ok() && check(&certificate, begins_s + 60).is_ok());
    for at_s in [begins_s - 1, begins_s + 61] {
        assert!(matches!(check(&certificate, at_s), Err(TrustError::Certificate(_))), "at {at_s}");
    }
    assert!(check(&issue(&other, 1, today()).certificate, now_s()).is_err());
    assert!(check(&certificate[1..], begins_s).is_err() && check(b"", begins_s).is_err());
    // An agent's certificate signs no other one.
    let agent = issue(&fleet, 1, today());
    let forged = issue(&NewAuthority { certificate: agent.certificate, key: agent.key }, 2, today());
    assert!(check(&forged.certificate, now_s()).is_err());
}

#[test]
fn a_certificate_needs_its_own_key_and_an_authority() {
    let fleet = authority("a");
    let (one, two) = (issue(&fleet, 1, today()), issue(&fleet, 2, today()));
    let trusted = [fleet.certificate.clone()];
    assert!(matches!(LinkTls::new(&one.certificate, &two.key, &trusted), Err(TrustError::Settings(_))));
    assert!(matches!(LinkTls::new(&one.certificate, &one.key, &[]), Err(TrustError::NoAuthority)));
    assert!(matches!(LinkTls::new(&one.certificate, &one.key, &[vec![1, 2]]), Err(TrustError::Authority(_))));
    assert_eq!(format!("{:?}", link(&one, &[&fleet])), "LinkTls(..)");
}

#[test]
fn malformed_requests_are_refused() {
    let request = AgentKey::generate().expect("a key").request().expect("a request");
    assert!(SigningRequest::read(&request).is_ok());
    for bytes in [0, REQUEST_BYTES_MAX + 1] {
        let refused = SigningRequest::read(&vec![0; bytes]).expect_err("a bound");
        assert!(matches!(refused, IssueError::RequestBytes(found) if found == bytes), "{refused}");
    }
    // Each of these bytes is signed, or says which parts there are. The last one is the signature's.
    for at in (0..request.len() - SIGNATURE_BYTES_MAX - ALGORITHM_BYTES).chain([request.len() - 1]) {
        let mut changed = request.clone();
        changed[at] ^= 1;
        assert!(SigningRequest::read(&changed).is_err(), "byte {at} of {}", request.len());
    }
    assert!(matches!(SigningRequest::read(&request[..request.len() - 1]), Err(IssueError::Request(_))));
}
