//! The server's own TLS: the certificate it presents, the URLs that follow from it, and its replacement.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::kit::client::{Answer, connect, raw};
use crate::kit::environment::{repository, stderr};
use crate::kit::{Environment, Serve};

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Replaces the pair with a new one for `localhost`. Returns the certificate's file.
fn write_pair(place: &Environment) -> PathBuf {
    write_pair_of(place, IsCa::NoCa)
}

fn write_pair_of(place: &Environment, is_ca: IsCa) -> PathBuf {
    let key = KeyPair::generate().expect("the key is generated");
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let mut params = CertificateParams::new(names).expect("the names are valid");
    params.is_ca = is_ca;
    let made = params.self_signed(&key).expect("the certificate is signed");
    place.write("key.pem", key.serialize_pem());
    place.write("cert.pem", made.pem())
}

fn place() -> Environment {
    let place = Environment::configured("[api]\ncert = cert.pem\nkey = key.pem\n");
    write_pair(&place);
    place
}

/// A connection after its handshake; the client trusts only the certificate in `file`.
fn handshake(address: SocketAddr, file: &Path) -> std::io::Result<Tls> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(file).expect("the certificate loads"))
        .expect("the root certificate is valid");
    let config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the TLS versions are supported")
            .with_root_certificates(roots)
            .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("the name is valid");
    let client = ClientConnection::new(Arc::new(config), name).expect("the TLS client is created");
    let mut stream = StreamOwned::new(client, connect(address));
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// Sends one request on a connection that stays open. Returns the answer's body.
fn ask(stream: &mut Tls, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost:1\r\n\r\n")
        .expect("the request is sent");
    let mut received = Vec::new();
    loop {
        let mut more = [0; 4096];
        let read = stream.read(&mut more).expect("an answer arrives");
        assert!(read > 0, "the server closed the connection");
        received.extend_from_slice(&more[..read]);
        let text = String::from_utf8_lossy(&received).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if length.and_then(|length| length.parse().ok()) == Some(body.len()) {
            return body.to_owned();
        }
    }
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn links_and_the_admins_files_name_https() {
    let place = place();
    let serve = place.start();
    assert!(serve.output.contains("kilonova: ready on https://127.0.0.1:"), "{}", serve.output);
    let cert = place.file("cert.pem");
    let mut stream = handshake(serve.address, &cert).expect("the TLS handshake succeeds");
    let body = ask(&mut stream, "/identity/v3");
    assert!(body.contains("\"https://localhost:1/identity/v3/\""), "{body}");
    let clouds =
        std::fs::read_to_string(place.state().join("clouds.yaml")).expect("the file exists");
    let url = format!("auth_url: https://{}/identity/v3\n", serve.address);
    assert!(clouds.contains(&url), "{clouds}");
    assert!(clouds.contains(&format!("cacert: \"{}\"", cert.display())), "{clouds}");
    let openrc = std::fs::read_to_string(place.state().join("openrc")).expect("the file exists");
    assert!(openrc.contains(&format!("export OS_CACERT='{}'", cert.display())), "{openrc}");
}

#[test]
fn operators_commands_speak_tls() {
    let place = place();
    // `openssl req -x509` marks a self-signed certificate as an authority.
    for is_ca in [IsCa::NoCa, IsCa::Ca(BasicConstraints::Unconstrained)] {
        write_pair_of(&place, is_ca);
        let _serve = place.start();
        let clouds = place.state().join("clouds.yaml");
        let mut command = Command::new(env!("CARGO_BIN_EXE_kilonova"));
        command.args(["server", "explain", "no-such-server", "--os-cloud", "kilonova", "--clouds"]);
        let output = command.arg(clouds).env_clear().output().expect("the program runs");
        let printed = stderr(&output);
        assert!(printed.contains("no-such-server"), "{printed}");
        assert!(!printed.contains("certificate"), "{printed}");
        assert_eq!(output.status.code(), Some(2), "{printed}");
    }
}

#[test]
fn doctor_examines_the_certificate() {
    let place = place();
    place.start().terminate();
    let report = |words: &[&str], code: i32| {
        let output = place.run("doctor", &[]);
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        for word in words {
            assert!(text.contains(word), "{word:?} is not in: {text}");
        }
    };
    report(&["tls            ok       ", "cert.pem, valid until "], 0);
    let key = KeyPair::generate().expect("the key is generated");
    let mut params = CertificateParams::new(Vec::new()).expect("no name is valid");
    params.not_after = rcgen::date_time_ymd(2024, 1, 1);
    let made = params.self_signed(&key).expect("the certificate is signed");
    place.write("key.pem", key.serialize_pem());
    place.write("cert.pem", made.pem());
    report(&["ERROR (tls)", "has expired", "subject alternative name"], 1);
    let serve = place.start();
    let log = serve.log();
    assert!(log.contains("has expired") && log.contains("subject alternative name"), "{log}");
    drop(serve);
    place.write("key.pem", "nonsense");
    report(&["ERROR (tls)", "it contains no private key"], 1);
}

#[test]
fn new_connections_get_a_replaced_certificate_and_open_ones_continue() {
    let place = place();
    let serve: Serve = place.start();
    let cert = place.file("cert.pem");
    let before = place.write("before.pem", std::fs::read(&cert).expect("the file is readable"));
    let mut old = handshake(serve.address, &before).expect("the TLS handshake succeeds");
    ask(&mut old, "/identity/v3");
    place.write("key.pem", "half a key");
    wait_for("the broken pair is logged", || {
        serve.log().contains("cannot use the changed certificate").then_some(())
    });
    handshake(serve.address, &before).expect("the old pair is still presented");
    write_pair(&place);
    wait_for("the new pair is presented", || handshake(serve.address, &cert).ok());
    assert!(handshake(serve.address, &before).is_err(), "the old pair is no longer presented");
    ask(&mut old, "/identity/v3");
}

#[test]
fn plain_http_on_the_tls_port_gets_400() {
    let place = place();
    let serve = place.start();
    let received = raw(serve.address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let answer = Answer::parse("plain HTTP", &received);
    answer.refused_saying(400, &["requires TLS", "https://"]);
}

#[test]
fn files_that_do_not_fit_are_refused_before_anything_is_made() {
    let place = place();
    write_pair(&Environment::new());
    let other = KeyPair::generate().expect("the key is generated");
    for (key, part) in [
        (other.serialize_pem(), "it is not the key of"),
        ("nonsense".to_owned(), "it contains no private key in PEM form"),
    ] {
        place.write("key.pem", key);
        let output = place.run("serve", &["--listen", "127.0.0.1:0"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
        assert!(!place.state().exists(), "nothing is created");
    }
}

#[test]
fn a_network_in_clear_is_warned_of() {
    let warned = |place: &Environment| {
        let mut command = place.command("serve");
        command.args(["--listen", "0.0.0.0:0"]);
        Serve::start(command, place.file("log")).log().contains("unencrypted from the network")
    };
    assert!(warned(&Environment::new()));
    assert!(!warned(&place()));
}

/// `kilonova node` with the demo's hosts.
fn node(place: &Environment, url: &str, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kilonova"));
    command.args(["node", "--control", url]).args(more);
    command.arg("--nodes").arg(repository().join("examples/nodes/demo.toml"));
    command.arg("--token-file").arg(place.state().join("node.token"));
    command.arg("--state-dir").arg(place.file("hosts")).stdin(Stdio::null());
    command
}

#[test]
fn simulated_hosts_in_another_process_speak_tls() {
    let place = place();
    let serve = place.start();
    let url = format!("https://127.0.0.1:{}", serve.address.port());
    let cert = place.file("cert.pem");
    let empty = place.write("empty.pem", "nothing");
    for (more, words) in [
        (vec![], "--cacert FILE"),
        (vec!["--cacert", empty.to_str().expect("the text is UTF-8")], "empty.pem"),
    ] {
        let output = node(&place, &url, &more).output().expect("the program runs");
        assert!(!output.status.success() && stderr(&output).contains(words), "{}", stderr(&output));
    }
    let mut command = node(&place, &url, &["--cacert", cert.to_str().expect("the text is UTF-8")]);
    let mut hosts =
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
    let token =
        std::fs::read_to_string(place.state().join("metrics.token")).expect("the file is read");
    let up = || {
        let mut stream = handshake(serve.address, &cert).expect("the handshake succeeds");
        let bearer = token.trim();
        let head = format!(
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {bearer}\r\n\
             Connection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("the request is sent");
        let mut text = Vec::new();
        // The server may close the connection without a TLS close_notify.
        drop(stream.read_to_end(&mut text));
        let both = String::from_utf8_lossy(&text).contains("kilonova_hosts{state=\"up\"} 2");
        both.then_some(())
    };
    wait_for("the hosts are up", up);
    hosts.kill().expect("the process is killed");
    hosts.wait().expect("the process has ended");
}
