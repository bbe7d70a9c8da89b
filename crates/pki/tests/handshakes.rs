//! Mutual authentication in real handshakes in memory.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use std::net::IpAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kilonova_ids::HostName;
use kilonova_pki::{Authority, Fingerprint, HostCertificateParams, Request, Trust};
use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const DAY: SignedDuration = SignedDuration::from_hours(24);

fn now() -> Timestamp {
    Timestamp::now()
}

#[derive(Debug)]
struct Shown(kilonova_pki::Own);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<kilonova_pki::Own> {
        Some(Arc::clone(&self.0))
    }
}

fn authority() -> Authority {
    let (certificate, key) = Authority::make(now()).expect("the authority is created");
    Authority::load(&certificate, &key).expect("the authority is loaded")
}

fn control_plane(authority: &Authority, time: Timestamp) -> ServerConfig {
    let names = ["cloud.example".to_owned(), "192.0.2.1".to_owned()];
    let (pem, key) = authority.control_plane(&names, time).expect("the certificate is created");
    shown(authority, &pem, &key)
}

fn shown(authority: &Authority, pem: &str, key: &str) -> ServerConfig {
    let own =
        kilonova_pki::own(pem, key, authority.certificate()).expect("certificate and key match");
    let trust = Trust::new(&[authority.certificate().clone()]).expect("the authority is valid");
    kilonova_pki::server(trust, Arc::new(Shown(own))).expect("the TLS settings are valid")
}

/// A host's certificate and key.
fn host(authority: &Authority, name: &str, time: Timestamp) -> (String, String) {
    let name = &HostName::verbatim(name);
    let request = Request::new(name).expect("the request is valid");
    let addresses: [IpAddr; 1] = ["192.0.2.9".parse().expect("the address is valid")];
    let content = HostCertificateParams { host: name, addresses: &addresses, valid: DAY * 30 };
    let (pem, message) =
        authority.sign(&request.csr, &content, time).expect("the request is signed");
    assert_eq!((message.name.as_str(), message.serial.len()), (name.as_str(), 32));
    assert_eq!(kilonova_pki::read(&pem).expect("the certificate is valid"), message);
    (pem, request.key)
}

fn certified(authority: &Authority, name: &str, time: Timestamp) -> ClientConfig {
    let (pem, key) = host(authority, name, time);
    kilonova_pki::certified(authority.pem(), &pem, &key).expect("the TLS settings are valid")
}

/// The name in the client's certificate as the server sees it, or the error of either side.
async fn meet(server: ServerConfig, client: ClientConfig) -> Result<Option<String>, String> {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let serving = tokio::spawn(async move {
        let mut stream = TlsAcceptor::from(Arc::new(server)).accept(far).await?;
        let seen = stream.get_ref().1.peer_certificates().map(|chain| chain[0].to_vec());
        stream.write_all(b"hello").await?;
        stream.shutdown().await?;
        Ok::<_, std::io::Error>(seen)
    });
    let dialled = ServerName::try_from("198.51.100.7").expect("the address is valid");
    let received = async {
        let mut stream = TlsConnector::from(Arc::new(client)).connect(dialled, near).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok::<_, std::io::Error>(text)
    };
    let received = received.await;
    let seen = serving.await.expect("the task does not panic");
    assert_eq!(received.as_ref().ok().map(String::as_str), seen.is_ok().then_some("hello"));
    let received = received.map_err(|error| error.to_string())?;
    assert_eq!(received, "hello");
    let seen = seen.map_err(|error| error.to_string())?;
    Ok(seen.map(|der| kilonova_pki::read_der(&der).expect("the certificate is valid").name))
}

#[tokio::test]
async fn hosts_and_the_control_plane_authenticate_at_any_address() {
    let ours = authority();
    let met = meet(control_plane(&ours, now()), certified(&ours, "gpu-1", now())).await;
    assert_eq!(met, Ok(Some("gpu-1".into())));
    let joining = kilonova_pki::joining(ours.fingerprint()).expect("the TLS settings are valid");
    assert_eq!(meet(control_plane(&ours, now()), joining).await, Ok(None));
    let trusting = kilonova_pki::trusting(ours.pem()).expect("the TLS settings are valid");
    assert_eq!(meet(control_plane(&ours, now()), trusting).await, Ok(None));
    // A clock difference of ten minutes is tolerated.
    let early = now() + SignedDuration::from_mins(10);
    let met = meet(control_plane(&ours, early), certified(&ours, "gpu-1", early)).await;
    assert_eq!(met, Ok(Some("gpu-1".into())));
}

#[tokio::test]
async fn foreign_certificates_are_refused_on_both_sides() {
    let (ours, theirs) = (authority(), authority());
    let text = meet(control_plane(&ours, now()), certified(&theirs, "gpu-1", now())).await;
    assert!(text.as_ref().is_err_and(|text| text.contains("UnknownIssuer")), "{text:?}");
    // The host trusts our authority but has a foreign certificate.
    let (pem, key) = host(&theirs, "gpu-1", now());
    let mixed =
        kilonova_pki::certified(ours.pem(), &pem, &key).expect("the TLS settings are valid");
    let text = meet(control_plane(&ours, now()), mixed).await;
    assert!(text.as_ref().is_err_and(|text| text.contains("UnknownCA")), "{text:?}");
    let other = Fingerprint::of(b"another");
    let joining = kilonova_pki::joining(other).expect("the TLS settings are valid");
    let text = meet(control_plane(&ours, now()), joining).await;
    let words = format!("authority is not the one in the token ({other})");
    assert!(text.as_ref().is_err_and(|text| text.contains(&words)), "{text:?}");
}

#[tokio::test]
async fn no_host_can_impersonate_the_control_plane() {
    let ours = authority();
    let (pem, key) = host(&ours, "gpu-1", now());
    for client in [
        certified(&ours, "gpu-2", now()),
        kilonova_pki::joining(ours.fingerprint()).expect("the TLS settings are valid"),
    ] {
        let text = meet(shown(&ours, &pem, &key), client).await;
        assert!(text.as_ref().is_err_and(|text| text.contains("not valid for name")), "{text:?}");
    }
    let reserved = HostName::verbatim(kilonova_pki::CONTROL_PLANE);
    let content = HostCertificateParams { host: &reserved, addresses: &[], valid: DAY };
    let request = Request::new(&HostName::verbatim("gpu-1")).expect("the request is valid");
    assert!(ours.sign(&request.csr, &content, now()).is_err());
}

#[tokio::test]
async fn expired_and_future_certificates_are_refused() {
    let ours = authority();
    let old = now() - DAY * 40;
    let message = meet(control_plane(&ours, now()), certified(&ours, "gpu-1", old)).await;
    assert!(
        message.as_ref().is_err_and(|message| message.contains("CertificateExpired")),
        "{message:?}"
    );
    let coming = now() + DAY * 3;
    let message = meet(control_plane(&ours, coming), certified(&ours, "gpu-1", now())).await;
    assert!(message.as_ref().is_err_and(|message| message.contains("not valid")), "{message:?}");
    let (pem, _) = host(&ours, "gpu-1", old);
    let message = kilonova_pki::read(&pem).expect("the certificate is valid");
    assert!(message.has_expired(now()) && !message.has_expired(old));
    assert!(message.renew_at() > old + DAY * 15 && message.renew_at() < message.not_after);
}

#[test]
fn authorities_are_distinct() {
    let now = now();
    let (certificate, key) = Authority::make(now).expect("the authority is created");
    let (other, other_key) = Authority::make(now).expect("the authority is created");
    assert!(Authority::load(&certificate, &other_key).is_err());
    assert!(Authority::load("", &key).is_err() && Authority::load(&certificate, "").is_err());
    let (one, two) = (Authority::load(&certificate, &key), Authority::load(&other, &other_key));
    let (one, two) = (one.expect("the first is loaded"), two.expect("the second is loaded"));
    assert_ne!(one.fingerprint(), two.fingerprint());
    let host = HostName::verbatim("h");
    let content = HostCertificateParams { host: &host, addresses: &[], valid: DAY };
    assert!(one.sign("no request", &content, now).is_err());
    assert!(one.control_plane(&["ü".into()], now).is_err());
}

#[tokio::test]
async fn two_authorities_are_trusted_during_a_rotation() {
    let (old, new) = (authority(), authority());
    let bundle = format!("{}{}", old.pem(), new.pem());
    let (pem, key) = old.control_plane(&[], now()).expect("the certificate is created");
    let own = kilonova_pki::own(&pem, &key, old.certificate()).expect("certificate and key match");
    let trust = Trust::new(&[old.certificate().clone()]).expect("the authority is valid");
    let server = kilonova_pki::server(Arc::clone(&trust), Arc::new(Shown(own)))
        .expect("the TLS settings are valid");
    let (pem, key) = host(&new, "gpu-1", now());
    let renewed = kilonova_pki::certified(&bundle, &pem, &key).expect("the TLS settings are valid");
    let said = meet(server.clone(), renewed.clone()).await;
    assert!(said.as_ref().is_err_and(|said| said.contains("UnknownCA")), "{said:?}");
    let both = [old.certificate().clone(), new.certificate().clone()];
    trust.set(&both).expect("the authorities are valid");
    assert_eq!(meet(server.clone(), renewed.clone()).await, Ok(Some("gpu-1".into())));
    let waits = certified(&old, "gpu-2", now());
    assert_eq!(meet(server.clone(), waits).await, Ok(Some("gpu-2".into())));
    trust.set(&both[1..]).expect("the authority is valid");
    assert_eq!(meet(server.clone(), renewed).await, Ok(Some("gpu-1".into())));
    let late = certified(&old, "gpu-2", now());
    assert!(meet(server, late).await.is_err(), "the old authority is not trusted any more");
    assert!(trust.set(&[]).is_err());
    let by = |fingerprint: String| {
        kilonova_pki::is_issued_by(&pem, &bundle, &fingerprint).expect("the certificate is valid")
    };
    assert!(by(new.fingerprint().to_string()) && !by(old.fingerprint().to_string()));
    assert!(!by(Fingerprint::of(b"another").to_string()));
}
