//! Nova and Keystone behind TLS, with a certificate that only `cafile` vouches for. The key was
//! created for this test and protects nothing else.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kilonova_accelerator::EventStatus;
use kilonova_accelerator::nova::{Address, Credentials, Event, HttpNova, Nova, NovaError};
use kilonova_keystone::Login;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

const ANY: &str = "11111111-2222-3333-4444-555555555555";

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name)
}

fn config() -> Arc<ServerConfig> {
    let certificate =
        CertificateDer::from_pem_file(file("certificate.pem")).expect("the certificate is valid");
    let key = PrivateKeyDer::from_pem_file(file("key.pem")).expect("the key is valid");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the TLS versions are supported")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("certificate and key match");
    Arc::new(config)
}

/// Answers a login with a token and everything else with 200, in a thread of its own.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the listener is bound");
    let url = format!("https://{}", listener.local_addr().expect("the listener has an address"));
    let config = config();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let Ok(connection) = ServerConnection::new(Arc::clone(&config)) else { continue };
            std::thread::spawn(move || answer(StreamOwned::new(connection, stream)));
        }
    });
    url
}

fn answer(stream: impl Read + Write) {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut first, mut length, mut token) = (String::new(), 0, false);
        if stream.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                break;
            }
            let line = line.to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().expect("the length is a number");
            }
            token |= line.trim() == "x-auth-token: by-tls";
        }
        stream.read_exact(&mut vec![0; length]).expect("the body arrives");
        let (status, more, body) = match (first.contains("/auth/tokens"), token) {
            (true, _) => (
                "201 Created",
                "X-Subject-Token: by-tls\r\n",
                r#"{"token": {"expires_at": "2999-01-01T00:00:00Z"}}"#,
            ),
            (false, true) => ("200 OK", "", "{}"),
            (false, false) => ("400 Bad Request", "", "{}"),
        };
        let head = format!("HTTP/1.1 {status}\r\n{more}Content-Length: {}\r\n\r\n", body.len());
        let out = stream.get_mut();
        if out.write_all(head.as_bytes()).and_then(|()| out.write_all(body.as_bytes())).is_err() {
            return;
        }
        out.flush().expect("the answer is sent");
    }
}

fn login(url: &str) -> Credentials {
    Credentials::Password(Login {
        auth_url: url.to_owned(),
        username: "cyborg".into(),
        password: "secret".into(),
        user_domain_name: "Default".into(),
        project_name: "service".into(),
        project_domain_name: "Default".into(),
    })
}

fn event() -> Event {
    let id = || ANY.parse().expect("the id is a UUID");
    Event {
        server: ANY.parse().expect("the id is valid"),
        arq: id(),
        status: EventStatus::Completed,
    }
}

#[tokio::test]
async fn only_the_configured_authority_is_trusted() {
    let url = serve();
    let endpoint = format!("{url}/v2.1");
    let cafile = file("certificate.pem");
    let nova = HttpNova::new(Address::at(&endpoint), login(&url), Some(&cafile))
        .expect("the client is created");
    assert_eq!(nova.deliver(&[event()]).await, Ok(()), "Keystone and Nova are reached over TLS");
    // The system's authorities do not vouch for it; without any authority there is no client at
    // all.
    if let Ok(without_ca) =
        HttpNova::new(Address::at(&endpoint), Credentials::Token("by-tls".into()), None)
    {
        let outcome = without_ca.deliver(&[event()]).await;
        let Err(NovaError::Temporary(why)) = outcome else { panic!("{outcome:?}") };
        assert!(why.contains("certificate"), "{why}");
    }
}

#[test]
fn invalid_configurations_are_refused_at_start() {
    for (endpoint, cafile, why) in [
        ("https://nova/v2.1", Some(file("key.pem")), "contains no certificate"),
        ("https://nova/v2.1", Some(file("absent.pem")), "absent.pem"),
        ("ftp://nova/v2.1", None, "must begin with http:// or https://"),
        ("nova", None, "nova"),
    ] {
        let refused = HttpNova::new(Address::at(endpoint), Credentials::None, cafile.as_deref());
        let message = refused.err().unwrap_or_else(|| panic!("{endpoint} was taken"));
        assert!(message.contains(why), "{message}");
    }
}
