use super::*;
use crate::certificates::LocalAuthority;

const LIFE: Duration = Duration::from_secs(3_600);

fn fleet() -> LocalAuthority {
    LocalAuthority::new("a").expect("an authority")
}

fn numbers(of: &AgentCertificates) -> Vec<u64> {
    of.lock().held.iter().map(HeldCertificate::number).collect()
}

#[test]
fn a_certificate_is_taken_for_a_key_that_asked() {
    let (fleet, own) = (fleet(), AgentCertificates::default());
    let issued = fleet.issue(&own.request(), 7, LIFE).expect("issued");
    let stranger = fleet.issue(&AgentCertificates::default().request(), 7, LIFE).expect("issued");
    assert!(matches!(own.take(&stranger), Err(CertificateTakeError::Trust(_))));
    assert!(own.link(7).is_none() && !own.has_certs());
    own.take(&issued).expect("it is for its key");
    assert!(own.link(7).is_some() && own.link(8).is_none() && own.has_certs());
    assert!(matches!(AgentCertificates::default().take(&issued), Err(CertificateTakeError::NoKey)));
    // The same key again, with another authority of the others.
    own.take(&v1::IssuedCertificate { authorities: vec![fleet.certificate().to_vec(); 3], ..issued }).expect("its own key");
    assert_eq!(own.lock().held[0].number(), 7);
}

#[test]
fn the_certificates_of_two_numbers_are_kept() {
    let (fleet, own) = (fleet(), AgentCertificates::default());
    for number in [7, 7, 8] {
        fleet.certify(&own, number).expect("issued");
    }
    assert_eq!(numbers(&own), [8, 7]);
    assert!(own.link(7).is_some() && own.link(8).is_some());
    fleet.certify(&own, 9).expect("issued");
    assert_eq!(numbers(&own), [9, 8]);
}

#[test]
fn a_refused_certificate_is_shown_no_more() {
    let (fleet, own) = (fleet(), AgentCertificates::default());
    fleet.certify(&own, 7).expect("issued");
    own.forget_newest();
    assert!(!own.has_certs() && own.link(7).is_some(), "other agents decide for themselves");
    fleet.certify(&own, 7).expect("issued");
    assert!(own.has_certs());
}

#[test]
fn the_next_certificate_is_asked_for_at_half_of_the_life() {
    let (fleet, own) = (fleet(), AgentCertificates::default());
    assert_eq!(own.next_request_at(), None);
    let life = Duration::from_secs(100);
    own.take(&fleet.issue(&own.request(), 7, life).expect("issued")).expect("it is for its key");
    let received = own.lock().held[0].received_at();
    let left = own.lock().held[0].life();
    assert!(left <= life && left > life / 2);
    let life = left;
    assert_eq!(own.next_request_at(), Some(received + life / 2));
    // It is due, and was asked for: the next time is later than now.
    own.lock().held[0].has_lived(life / 2);
    let due = own.next_request_at().expect("there is one");
    assert!(due <= Instant::now());
    let _asked = own.request();
    let again = own.next_request_at().expect("there is one");
    assert!(again > Instant::now() && again <= Instant::now() + ASK_AGAIN_MAX);
    // Its life is over.
    own.lock().held[0].has_lived(life / 2);
    assert!(own.link(7).is_none() && !own.has_certs());
}

#[test]
fn certificates_are_kept_for_the_next_start() {
    let (fleet, own) = (fleet(), AgentCertificates::default());
    fleet.certify(&own, 7).expect("issued");
    fleet.certify(&own, 8).expect("issued");
    let bytes = own.encode();
    let again = AgentCertificates::decode(&bytes);
    assert_eq!(numbers(&again), [8, 7]);
    assert!(again.link(7).is_some() && again.has_certs());
    for length in [0, 1, 9, bytes.len() / 4] {
        assert_eq!(numbers(&AgentCertificates::decode(&bytes[..length])), [] as [u64; 0], "{length} bytes");
    }
    assert_eq!(numbers(&AgentCertificates::decode(&bytes[..bytes.len() - 1])), [8]);
    let ended = v1::IssuedCertificate { life_ms: 0, ..fleet.issue(&own.request(), 9, LIFE).expect("issued") };
    own.take(&ended).expect("it is for its key");
    assert_eq!(numbers(&AgentCertificates::decode(&own.encode())), [8], "the ended one is left out");
    assert_eq!(format!("{own:?} {:?}", fleet.issue(b"no request", 1, LIFE).is_err()), "AgentCertificates(2) true");
}
