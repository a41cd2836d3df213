//! Links with TLS.

use super::*;
use crate::certificates::LocalAuthority;

const LIFE: Duration = Duration::from_secs(3_600);

fn fleet() -> LocalAuthority {
    LocalAuthority::new("a").expect("an authority")
}

/// The keys of agent `own` in a fleet whose links have TLS, with the certificate of agent `number`.
fn secure_keys(own: u64, fleet: &LocalAuthority, number: u64) -> LinkKeys {
    let keys = LinkKeys::default();
    keys.follow_target(LinkProtection::Tls, keyring(own));
    fleet.certify(keys.certificates(), number).expect("issued");
    keys
}

/// How agent 2 with these keys sees a link of agent 1, which shows this certificate; and how agent 1 sees it.
async fn link(accepts: LinkKeys, shows: Option<&LinkTls>) -> (Result<(), TalkError>, Result<(), TalkError>) {
    let (listening, address) = listener().await;
    let (events, _heard) = mpsc::channel(4);
    let hearing = accept_with(listening, accepts, events);
    let dialled = match dial(&address, &dialling(1), shows).await {
        Ok(DialledLink::Secure(mut stream)) => stream.shutdown().await.map_err(TalkError::from),
        Ok(DialledLink::Plain(mut stream)) => stream.shutdown().await.map_err(TalkError::from),
        Err(error) => Err(error),
    };
    (hearing.await.expect("no panic"), dialled)
}

#[tokio::test]
async fn messages_come_over_tls_and_large_ones_whole() {
    let fleet = fleet();
    let (listening, address) = listener().await;
    let (events, mut heard) = mpsc::channel(64);
    let hearing = accept_with(listening, secure_keys(2, &fleet, 2), events);
    let (told, mut up) = mpsc::channel(16);
    let mut peers = PeerLinks::new(told, secure_keys(1, &fleet, 1));
    peers.set(&BTreeMap::from([(2, address)]), 1);
    until_up(&mut up).await;
    for request in 0..20 {
        peers.send(2, &part(request, if request % 2 == 0 { LARGE } else { SMALL })).expect("it is queued");
    }
    let mut all = Vec::new();
    for _ in 0..20 {
        // It checks each byte.
        all.push(came(heard.recv().await.expect("all come")));
    }
    all.sort_unstable();
    let sent = (0..20).map(|request| (request, if request % 2 == 0 { LARGE } else { SMALL }));
    assert_eq!(all, sent.collect::<Vec<_>>());
    drop(peers);
    assert!(hearing.await.expect("no panic").is_ok(), "an end between two messages is no fault");
}

#[tokio::test]
async fn wrong_certificates_on_a_link_are_refused_and_counted() {
    let (fleet, other) = (fleet(), LocalAuthority::new("b").expect("an authority"));
    let shown = |keys: &LinkKeys, number: u64| keys.tls(number).expect("it counts");
    let expired = || {
        let keys = LinkKeys::default();
        let issued = fleet.issue(&keys.certificates().request(), 1, Duration::ZERO).expect("issued");
        let long = v1::IssuedCertificate { life_ms: 60_000, ..issued };
        keys.certificates().take(&long).expect("it is for its key");
        keys
    };
    // Trusts the fleet, and has a certificate of the other one.
    let stranger = || {
        let keys = LinkKeys::default();
        let issued = other.issue(&keys.certificates().request(), 1, LIFE).expect("issued");
        let trusting = v1::IssuedCertificate { authorities: vec![fleet.certificate().to_vec()], ..issued };
        keys.certificates().take(&trusting).expect("it is for its key");
        keys
    };
    for (keys, number, said) in [
        (expired(), 1, "expired"),
        (stranger(), 1, "UnknownIssuer"),
        (secure_keys(1, &fleet, 3), 3, "the certificate of another one"),
    ] {
        let before = ReachedLimit::PeerCertificate.counted();
        let (heard, _) = link(secure_keys(2, &fleet, 2), Some(&shown(&keys, number))).await;
        let refused = heard.expect_err(said).to_string();
        assert!(refused.contains(said), "{refused}: expected {said}");
        assert!(ReachedLimit::PeerCertificate.counted() > before, "{said}");
    }
    // The agent that dials checks too: it reaches an agent with the certificate of agent 3.
    let own = secure_keys(1, &fleet, 1);
    let (_, dialled) = link(misplaced_keys(&fleet), Some(&shown(&own, 1))).await;
    let refused = dialled.expect_err("another number").to_string().to_lowercase();
    assert!(refused.contains("not valid for name"), "{refused}");
    assert!(link(secure_keys(2, &fleet, 2), Some(&shown(&own, 1))).await.0.is_ok());
}

/// The keys of agent 2, which takes a certificate of agent 3 for its own.
fn misplaced_keys(fleet: &LocalAuthority) -> LinkKeys {
    let keys = secure_keys(2, fleet, 2);
    let issued = fleet.issue(&keys.certificates().request(), 3, LIFE).expect("issued");
    keys.certificates().take(&v1::IssuedCertificate { agent: 2, ..issued }).expect("it is for its key");
    keys
}

#[tokio::test]
async fn a_link_without_tls_is_refused_and_counted_where_tls_is_asked_for() {
    let fleet = fleet();
    let before = ReachedLimit::PeerPlain.counted();
    let (heard, _) = link(secure_keys(2, &fleet, 2), None).await;
    assert!(matches!(heard, Err(TalkError::Handshake(HandshakeError::Plain))), "{heard:?}");
    assert!(ReachedLimit::PeerPlain.counted() > before);
    // Where TLS is not asked for, both kinds are admitted.
    let both = secure_keys(2, &fleet, 2);
    both.follow_target(LinkProtection::Plain, keyring(2));
    assert!(link(both.clone(), None).await.0.is_ok());
    let own = secure_keys(1, &fleet, 1);
    assert!(link(both, own.tls(1).as_ref()).await.0.is_ok());
    // An agent without a certificate says so.
    let (heard, _) = link(link_keys(2), own.tls(1).as_ref()).await;
    assert!(matches!(heard, Err(TalkError::Handshake(HandshakeError::NoCertificate))), "{heard:?}");
}

#[tokio::test]
async fn a_new_certificate_drops_no_link() {
    let fleet = fleet();
    let (listening, address) = listener().await;
    let (events, mut heard) = mpsc::channel(4);
    let (accepts, dials) = (secure_keys(2, &fleet, 2), secure_keys(1, &fleet, 1));
    let _hearing = accept_with(listening, accepts.clone(), events);
    let (told, mut up) = mpsc::channel(16);
    let mut peers = PeerLinks::new(told, dials.clone());
    peers.set(&BTreeMap::from([(2, address)]), 1);
    until_up(&mut up).await;
    for (keys, number) in [(&accepts, 2), (&dials, 1), (&accepts, 2)] {
        fleet.certify(keys.certificates(), number).expect("issued");
        peers.send(2, &part(number, SMALL)).expect("it is queued");
        assert_eq!(came(heard.recv().await.expect("it comes")), (number, SMALL));
    }
    assert!(up.try_recv().is_err(), "the link was up all the time");
}

#[tokio::test]
async fn links_are_dialled_again_when_their_protection_changes() {
    let fleet = fleet();
    let (listening, address) = listener().await;
    let (accepts, dials) = (secure_keys(2, &fleet, 2), secure_keys(1, &fleet, 1));
    for (keys, own) in [(&accepts, 2), (&dials, 1)] {
        keys.follow_target(LinkProtection::Plain, keyring(own));
    }
    let (events, mut heard) = mpsc::channel(4);
    let stop = CancellationToken::new();
    tokio::spawn(listen(listening, accepts.clone(), events, stop.clone()));
    let (told, mut up) = mpsc::channel(16);
    let mut peers = PeerLinks::new(told, dials.clone());
    peers.set(&BTreeMap::from([(2, address)]), 1);
    until_up(&mut up).await;
    for (keys, own) in [(&accepts, 2), (&dials, 1)] {
        keys.follow_target(LinkProtection::Tls, keyring(own));
    }
    assert!(matches!(up.recv().await, Some(NodeEvent::PeerDown(2))));
    until_up(&mut up).await;
    peers.send(2, &part(7, SMALL)).expect("it is queued");
    assert_eq!(came(heard.recv().await.expect("it comes")), (7, SMALL));
    stop.cancel();
}
