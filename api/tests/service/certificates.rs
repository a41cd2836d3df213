//! Certificates of agents: issued, renewed, required, refused.

use crate::support::agent::{Agent, attach, attach_by, fleet, register, try_attach};
use crate::support::plans::store_plan;
use crate::support::{PATIENCE, Service, config_on, new_database, open_dir, service, service_on, service_on_config};
use apportion_api::{AgentCertificateRule, AgentSecurity, LinksSetting, TlsFiles, serve};
use apportion_certificates::{
    AgentKey, AgentSubject, AgentTrust, FleetAuthority, LinkTls, SigningRequest, ValidityPeriod, agent_name, is_named,
};
use apportion_protocol::v1::{self, agent_message, control_client::ControlClient, control_message, refused::Reason};
use apportion_tls::client_tls;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::json;
use sqlx::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tonic::transport::{Channel, Endpoint};

fn certificate_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../process/tls/tests/certificates").join(name)
}

fn key() -> AgentKey {
    AgentKey::generate().expect("a key")
}

fn asking(s: &Service, name: &str, key: &AgentKey) -> v1::Register {
    v1::Register { certificate_request: key.request().expect("a request"), ..register(s, name) }
}

/// The next certificate of a stream.
async fn issued(agent: &mut Agent) -> v1::IssuedCertificate {
    loop {
        match agent.next().await {
            Some(control_message::Message::Certificate(issued)) => return issued,
            Some(_) => {}
            None => panic!("the stream ended before a certificate"),
        }
    }
}

fn links(issued: &v1::IssuedCertificate, key: &AgentKey) -> LinkTls {
    LinkTls::new(&issued.certificate, key.secret(), &issued.authorities).expect("it is for this key")
}

/// Whether this authority has issued the certificate.
fn is_by(authority: &[u8], issued: &v1::IssuedCertificate) -> bool {
    let trust = AgentTrust::new([authority]).expect("an authority");
    trust.check(&CertificateDer::from(issued.certificate.as_slice()), UnixTime::now()).is_ok()
}

/// A service that asks agents for certificates on a port with TLS.
async fn requiring() -> Service {
    service_on_config(|config| {
        let (certificate, key) = (certificate_file("server.pem"), certificate_file("server.key"));
        config.agents_tls = Some(TlsFiles { certificate, key, client_authorities: None });
        config.agent_security.certificates = AgentCertificateRule::Require;
    })
    .await
}

/// A connection with TLS that shows this certificate.
async fn secure(s: &Service, shown: Option<Arc<CertifiedKey>>) -> ControlClient<Channel> {
    let mut tls = client_tls(Some(&certificate_file("authority.pem"))).expect("an authority");
    if let Some(shown) = shown {
        tls.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(CertifiedKey::clone(&shown)));
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
    let url = format!("https://localhost:{}", s.running.grpc().port());
    let channel = Endpoint::from_shared(url).expect("a URL").connect_with_connector(connector).await.expect("a connection");
    ControlClient::new(channel)
}

/// An agent that has joined by the token alone, and its certificate.
async fn first_certificate(s: &Service, name: &str) -> (Arc<CertifiedKey>, v1::IssuedCertificate) {
    let key = key();
    let mut agent = attach_by(secure(s, None).await, asking(s, name, &key)).await;
    agent.welcome().await;
    let issued = issued(&mut agent).await;
    assert!(issued.come_again);
    assert!(agent.next().await.is_none(), "no target, and the end");
    (links(&issued, &key).shown(), issued)
}

/// What an agent hears that shows this certificate.
async fn refused(s: &Service, name: &str, shown: Arc<CertifiedKey>) -> (Reason, String) {
    attach_by(secure(s, Some(shown)).await, asking(s, name, &key())).await.refused().await
}

async fn count(s: &Service, metric: &str) -> u64 {
    let text = s.get("/metrics").await.1;
    let text = text.as_str().expect("a page");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("apportion_{metric} ")));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {metric}: {text}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_gets_certificates_for_its_keys() {
    let s = service().await;
    let (first, second) = (key(), key());
    let mut agent = attach(&s, asking(&s, "a", &first)).await;
    let number = agent.welcome().await.agent;
    let one = issued(&mut agent).await;
    let lasts_ms = AgentSecurity::default().certificate_life.as_millis() as u64;
    assert_eq!((one.agent, one.authorities.len(), one.life_ms, one.come_again), (number, 1, lasts_ms, false));
    let certificate = CertificateDer::from(one.certificate.as_slice());
    assert!(is_named(&certificate, &agent_name(number)) && is_named(&certificate, "127.0.0.1"));
    links(&one, &first);
    // It asks for the next one, by the same stream.
    let request = second.request().expect("a request");
    agent.say(agent_message::Message::CertificateRequest(v1::CertificateRequest { request })).await;
    let two = issued(&mut agent).await;
    assert_eq!((two.agent, &two.authorities), (number, &one.authorities));
    links(&two, &second);
    assert!(count(&s, "agent_certificates_issued_total").await >= 2);
    // A request that nobody has signed, and one without a right form.
    let mut forged = first.request().expect("a request");
    let last = forged.len() - 1;
    forged[last] ^= 1;
    for wrong in [forged, b"no request".to_vec()] {
        let register = v1::Register { certificate_request: wrong, ..register(&s, "b") };
        let Some(control_message::Message::Refused(refused)) = try_attach(&s, register).await else { panic!("refused") };
        assert_eq!(refused.reason(), Reason::Invalid);
        assert!(refused.detail.contains("certificate_request"), "{}", refused.detail);
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_authority_is_known_before_it_signs() {
    let s = service().await;
    let key = key();
    let mut agent = attach(&s, asking(&s, "a", &key)).await;
    agent.welcome().await;
    agent.report();
    let one = issued(&mut agent).await;
    let mut db = sqlx::PgConnection::connect(&s.url).await.expect("our own database");
    let age = "update fleet_authorities set renew_at = clock_timestamp() - interval '1 second'";
    assert_eq!(sqlx::query(age).execute(&mut db).await.expect("a row").rows_affected(), 1);
    let two = issued(&mut agent).await;
    assert_eq!((two.authorities.len(), &two.authorities[1]), (2, &one.authorities[0]));
    assert!(is_by(&one.authorities[0], &two) && !is_by(&two.authorities[0], &two));
    // Its hour is over: it signs, and both count.
    sqlx::query("update fleet_authorities set signs_from = clock_timestamp()").execute(&mut db).await.expect("rows");
    let three = issued(&mut agent).await;
    assert_eq!(three.authorities, two.authorities);
    assert!(is_by(&two.authorities[0], &three));
    links(&three, &key);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_must_show_the_certificate_of_its_agent() {
    let s = requiring().await;
    let (a, _) = first_certificate(&s, "a").await;
    let (b, _) = first_certificate(&s, "b").await;
    let mut agent = attach_by(secure(&s, Some(a.clone())).await, asking(&s, "a", &key())).await;
    let number = agent.welcome().await.agent;
    let again = issued(&mut agent).await;
    assert_eq!((again.agent, again.come_again), (number, false));
    agent.report();

    let before = count(&s, "agents_other_certificate_total").await;
    let (reason, detail) = refused(&s, "a", b.clone()).await;
    assert_eq!(reason, Reason::Certificate, "{detail}");
    assert!(detail.contains("of another agent"), "{detail}");
    assert_eq!(count(&s, "agents_other_certificate_total").await, before + 1);

    // An agent that asks for no certificate, as one of an earlier release.
    let before = count(&s, "agents_without_certificate_total").await;
    let (reason, _) = attach_by(secure(&s, None).await, register(&s, "c")).await.refused().await;
    assert_eq!(reason, Reason::Certificate);
    let file = || v1::FileRequest { token: s.running.token().into(), sha256: "0".repeat(64), offset: 0 };
    let status = secure(&s, None).await.fetch(file()).await.expect_err("without a certificate");
    assert_eq!(status.code(), tonic::Code::Unauthenticated);
    assert_eq!(count(&s, "agents_without_certificate_total").await, before + 2);
    let status = secure(&s, Some(b)).await.fetch(file()).await.expect_err("there is no such file");
    assert_eq!(status.code(), tonic::Code::NotFound);
    // The right certificate with a wrong token is not enough.
    let forged = v1::Register { token: "guess".into(), ..asking(&s, "a", &key()) };
    assert_eq!(attach_by(secure(&s, Some(a)).await, forged).await.refused().await.0, Reason::Token);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_agents_certificate_is_refused() {
    let s = requiring().await;
    let (shown, issued) = first_certificate(&s, "a").await;
    // It has left: its stream was the one that ended, and it may be deleted once it counts as lost.
    let begun = Instant::now();
    while s.delete(&format!("/v1/agents/{}", issued.agent)).await.0 != 204 {
        assert!(begun.elapsed() < PATIENCE, "it never counts as lost");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let before = count(&s, "agents_revoked_certificate_total").await;
    let (reason, detail) = refused(&s, "a", shown.clone()).await;
    assert!(reason == Reason::Certificate && detail.contains("deleted"), "{detail}");
    // It joins again by the token, under its number. Its old certificate stays refused.
    let key = key();
    let back = v1::Register { number: issued.agent, ..asking(&s, "a", &key) };
    let mut agent = attach_by(secure(&s, None).await, back).await;
    assert_eq!(agent.welcome().await.agent, issued.agent);
    let (reason, detail) = refused(&s, "a", shown).await;
    assert!(reason == Reason::Certificate && detail.contains("deleted"), "{detail}");
    assert_eq!(count(&s, "agents_revoked_certificate_total").await, before + 2);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_certificates_and_those_of_others_are_refused() {
    let s = requiring().await;
    let (_, issued) = first_certificate(&s, "a").await;
    let mut db = sqlx::PgConnection::connect(&s.url).await.expect("our own database");
    let row: (Vec<u8>, Vec<u8>) =
        sqlx::query_as("select certificate, key from fleet_authorities").fetch_one(&mut db).await.expect("an authority");
    let now_s = UnixTime::now().as_secs();
    let (past, today) = (
        ValidityPeriod { from_s: now_s - 7_200, until_s: now_s - 3_600 },
        ValidityPeriod { from_s: now_s - 3_600, until_s: now_s + 3_600 },
    );
    let stranger = FleetAuthority::generate("another fleet", today).expect("an authority");
    let forge = |certificate: &[u8], authority_key: &[u8], period| {
        let key = key();
        let authority = FleetAuthority::open(certificate, authority_key).expect("its parts");
        let request = SigningRequest::read(&key.request().expect("a request")).expect("its own");
        let agent = AgentSubject { number: issued.agent, row: "0", name: "a", data_address: "", serial: [1; 16] };
        let made = authority.issue(&request, agent, period).expect("a certificate");
        LinkTls::new(&made, key.secret(), &[certificate.to_vec()]).expect("they fit").shown()
    };
    let before = count(&s, "agents_untrusted_certificate_total").await;
    for (shown, said) in
        [(forge(&row.0, &row.1, past), "expired"), (forge(&stranger.certificate, &stranger.key, today), "UnknownIssuer")]
    {
        let (reason, detail) = refused(&s, "a", shown).await;
        assert!(reason == Reason::Certificate && detail.contains(said), "{detail}: expected {said}");
    }
    assert_eq!(count(&s, "agents_untrusted_certificate_total").await, before + 2);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_service_signs_with_a_new_authority() {
    let s = service().await;
    let mut agent = attach(&s, asking(&s, "a", &key())).await;
    agent.welcome().await;
    let before = issued(&mut agent).await;
    drop(agent);
    let Service { running, dir, url, .. } = s;
    running.stop().await;
    apportion_api::finish_restore(Some(&url), dir.path()).await.expect("it is restored");
    let s = service_on(url, dir).await;
    let mut agent = attach(&s, asking(&s, "a", &key())).await;
    agent.welcome().await;
    let after = issued(&mut agent).await;
    assert_eq!((after.authorities.len(), &after.authorities[1]), (2, &before.authorities[0]));
    assert!(is_by(&after.authorities[0], &after) && !is_by(&before.authorities[0], &after));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_say_how_links_are_protected() {
    let (s, mut agents) = fleet().await;
    let plan = store_plan(&s, 2).await;
    assert_eq!(s.put_target(0, &json!([plan])).await.0, 200);
    assert_eq!(agents[0].target(1).await.links(), v1::target::Links::Plain);
    drop(agents);
    let Service { running, dir, url, .. } = s;
    running.stop().await;
    let mut config = config_on(&url, &dir);
    config.agent_security.links = LinksSetting::Tls;
    let running = serve(config).await.expect("it starts");
    let base = format!("http://{}", running.http());
    let s = Service { running, base, client: reqwest::Client::new(), dir, url };
    let mut agent = attach(&s, register(&s, "a")).await;
    agent.report();
    while agent.target(1).await.links() != v1::target::Links::Tls {}
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn contradicting_settings_do_not_start() {
    let (url, dir) = (new_database().await, open_dir());
    for (certificates, links, said) in [
        (AgentCertificateRule::Require, LinksSetting::Plain, "--agents-tls"),
        (AgentCertificateRule::Off, LinksSetting::Tls, "--agent-certificates accept or require"),
    ] {
        let mut config = config_on(&url, &dir);
        config.agent_security = AgentSecurity { certificates, links, ..AgentSecurity::default() };
        let refused = serve(config).await.err().expect("the settings contradict each other").to_string();
        assert!(refused.contains(said), "{refused}");
    }
}
