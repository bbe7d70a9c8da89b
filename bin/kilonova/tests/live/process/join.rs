//! Hosts that join: a real `serve` with a node listener, and the agent's own client.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use kilonova_ids::HostName;
use kilonova_node::Node;
use kilonova_node::topology::Topology;
use kilonova_node_api::{
    Batch, ControlPlane, Deployable, Device, DeviceKind, HandleSlot, Health, Refusal, Registration,
    RevokedHost,
};
use kilonova_node_link::{
    Error, HostIdentity, Identity, Remote, follow_revocations, keep_certified,
};
use kilonova_pki::{Authority, HostCertificateParams, Token};
use rustix::process::Signal;
use rustls::{ClientConnection, StreamOwned};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::kit::client::{connect, raw};
use crate::kit::environment::{repository, stderr};
use crate::kit::{Answer, Cloud, Environment, Serve, cloud};

const DAY: SignedDuration = SignedDuration::from_hours(24);
/// A host of the demo's topology.
const HOST: &str = "virtlab606";

/// A cloud with a node listener, and the listener's URL.
pub(super) fn open(place: Environment) -> (Cloud, String) {
    let serve = place.start_with(|command| {
        command.args(["--node-listen", "127.0.0.1:0"]);
    });
    let url = node_listener(&serve);
    let admin = cloud::admin(&place, &serve);
    (Cloud { serve, place, admin }, url)
}

/// The URL at which hosts reach a controller.
pub(super) fn node_listener(serve: &Serve) -> String {
    let line = serve.output.lines().find_map(|line| line.strip_prefix("kilonova: hosts join at "));
    line.expect("the output names the node listener").to_owned()
}

fn node(cloud: &Cloud, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kilonova"));
    command.arg("node").args(words).args(["--os-cloud", "kilonova", "--clouds"]);
    command.arg(cloud.place.state().join("clouds.yaml")).stdin(Stdio::null());
    let output = command.output().expect("the program runs");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    output
}

pub(super) fn token(cloud: &Cloud, host: &str) -> Token {
    let made = node(cloud, &["enroll", "--host", host, "--format", "json"]);
    let made: Value = serde_json::from_slice(&made.stdout).expect("the output is JSON");
    assert_eq!(made["host"], host);
    made["token"].as_str().expect("a token is present").parse().expect("the token parses")
}

fn addresses(last: u8) -> Vec<IpAddr> {
    vec![IpAddr::from([192, 0, 2, last])]
}

pub(super) async fn joined(
    cloud: &Cloud,
    url: &str,
    host: &str,
    last: u8,
) -> (Identity, HostIdentity) {
    let identity = Identity::at(&cloud.place.file(host));
    let known =
        identity.join(url, &token(cloud, host), &HostName::verbatim(host), addresses(last)).await;
    (identity.clone(), known.expect("the host joins"))
}

pub(super) fn registration(host: &str) -> Registration {
    Registration {
        host: HostName::verbatim(host),
        machine_id: String::new(),
        hypervisor_type: "simulated".into(),
        hypervisor_version: 1,
        host_ip: "192.0.2.1".into(),
        vcpus: 1,
        memory_mb: 1,
        disk_gb: 1,
        ratios: [1.0; 3],
        initial_ratios: [false; 3],
        reserved_memory_mb: 0,
        reserved_cpus: 0,
        reserved_disk_gb: 0,
        traits: Vec::new(),
        devices: Vec::new(),
        agent_version: None,
        attempt: None,
        connector: None,
        routes: None,
        cells: None,
        numa_in_placement: false,
    }
}

/// The same host with a certificate for another validity period.
fn at(
    authority: &Authority,
    known: &HostIdentity,
    now: Timestamp,
    valid: SignedDuration,
) -> HostIdentity {
    let request = kilonova_pki::Request::new(&known.host).expect("the request is created");
    let content = HostCertificateParams { host: &known.host, addresses: &[], valid };
    let (certificate, _) =
        authority.sign(&request.csr, &content, now).expect("the authority signs the request");
    HostIdentity { certificate, key: request.key, ..known.clone() }
}

fn authority(place: &Environment) -> Authority {
    let folder = place.file(&format!("ca-{}", uuid::Uuid::new_v4()));
    let output = place.tool(&["ca", "export", &folder.display().to_string()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let read = |name: &str| std::fs::read_to_string(folder.join(name));
    let (certificate, key) = (read("ca.crt").expect("the file exists"), read("ca.key"));
    Authority::load(&certificate, &key.expect("the file exists")).expect("the authority loads")
}

async fn refused(remote: &Remote, words: &str) {
    let message = remote.register(registration(HOST)).await.expect_err("the host is refused");
    assert!(message.to_string().contains(words), "{words:?} is not in: {message}");
}

/// Opens the display of a server: its host dials the controller's own URL with its certificate, which is valid for
/// the names of `[node] own_url` alone.
fn watch_console(cloud: &Cloud, server: &str) {
    let admin = cloud.admin.with("OpenStack-API-Version", "compute 2.104");
    let body = json!({"remote_console": {"protocol": "vnc", "type": "novnc"}});
    let made =
        admin.post(&format!("/compute/v2.1/servers/{server}/remote-consoles"), &body).ok(200);
    let url = made["remote_console"]["url"].as_str().expect("the URL is present").to_owned();
    let (_, token) = url.rsplit_once("%3D").expect("the URL has a token");
    let mut client = connect(cloud.serve.address);
    let head = format!(
        "GET /console/websockify?token={token} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: binary\r\n\
         Sec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1Ng==\r\n\r\n",
        cloud.serve.address
    );
    client.write_all(head.as_bytes()).expect("the request is sent");
    let mut seen = Vec::new();
    let mut piece = [0; 1024];
    while !seen.windows(12).any(|bytes| bytes == b"RFB 003.008\n") {
        let read = client.read(&mut piece).expect("the console answers");
        assert!(read > 0, "no display: {}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&piece[..read]);
    }
    let log = cloud.serve.log();
    assert!(log.contains("a console begins"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_boot_on_a_host_that_has_joined() {
    // `Environment::all` creates a runtime of its own, so it needs a thread of its own.
    let places = std::thread::spawn(Environment::all).join().expect("the places are created");
    for place in places {
        let (cloud, url) = open(place);
        let (identity, known) = joined(&cloud, &url, HOST, 1).await;
        assert_eq!(identity.read().expect("the identity is readable"), Some(known.clone()));
        let topology = Topology::read(&repository().join("examples/nodes/demo.toml"));
        let topology = topology.expect("the topology is valid");
        let host = topology.hosts.iter().find(|host| host.name == HOST).expect("the file exists");
        let node = Node::simulated(host, &cloud.place.file("nodes")).expect("the node is created");
        let (stop, stopped) = watch::channel(false);
        let remote = known.remote().expect("the client is created");
        let clock = remote.clock().await.expect("the server reports its time").now;
        assert!(
            clock.duration_since(Timestamp::now()).abs() < SignedDuration::from_secs(5),
            "{clock}"
        );
        let running = tokio::spawn(node.run(Arc::new(remote), stopped));
        let (flavor, image) = (cloud.flavor("small"), cloud.image("tiny"));
        let begun = Instant::now();
        while cloud.admin.get("/compute/v2.1/os-hypervisors").ok(200)["hypervisors"][0].is_null() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the host is not there");
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        let server = cloud.server(&cloud.admin, "one", &flavor, &image);
        tokio::task::block_in_place(|| watch_console(&cloud, &server));
        drop(stop);
        running
            .await
            .expect("the task does not panic")
            .expect("the node stops when the signal arrives");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_token_works_once_for_one_host() {
    let (cloud, url) = open(Environment::new());
    let token = token(&cloud, "a");
    let identity = Identity::at(&cloud.place.file("a"));
    let message = identity
        .join(&url, &token, &HostName::verbatim("b"), addresses(1))
        .await
        .expect_err("another host is refused");
    assert!(message.to_string().contains("for host a, but this is host b"), "{message}");
    let other = Token { authority: kilonova_pki::Fingerprint::of(b"x"), ..token.clone() };
    let message = identity
        .join(&url, &other, &HostName::verbatim("a"), addresses(1))
        .await
        .expect_err("an unknown authority is refused");
    assert!(message.to_string().contains("authority is not the one in the token"), "{message}");
    let full = Identity::at(Path::new("/proc/nothing"));
    let message = full
        .join(&url, &token, &HostName::verbatim("a"), addresses(1))
        .await
        .expect_err("the identity cannot be written");
    assert!(matches!(message, Error::Identity { .. }), "{message}");
    identity
        .join(&url, &token, &HostName::verbatim("a"), addresses(1))
        .await
        .expect("the token is still good");
    let message = identity
        .join(&url, &token, &HostName::verbatim("a"), addresses(1))
        .await
        .expect_err("a second use is refused");
    assert!(message.to_string().contains("Host a used this token"), "{message}");
    for file in [cloud.place.file("a/identity.json"), cloud.place.state().join("seal.key")] {
        let mode = std::fs::metadata(&file).expect("the file exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
    let plain = url.replace("https", "http");
    let message = identity
        .join(&plain, &token, &HostName::verbatim("a"), addresses(1))
        .await
        .expect_err("a URL without TLS is refused");
    assert!(message.to_string().contains("such as https://"), "{message}");
    let api = format!("https://{}", cloud.serve.address);
    let message = identity
        .join(&api, &token, &HostName::verbatim("a"), addresses(1))
        .await
        .expect_err("the API's port has no TLS");
    assert!(message.to_string().contains("`kilonova node list`"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_may_act_for_itself_only() {
    let (cloud, url) = open(Environment::new());
    let (_, a) = joined(&cloud, &url, "a", 1).await;
    let remote = a.remote().expect("the client is created");
    let message = remote.register(registration("b")).await.expect_err("another host is refused");
    let words = "belongs to host a, which cannot act for host b";
    assert!(matches!(&message, Refusal::Rejected(why) if why.contains(words)), "{message}");
    let message =
        remote.desired(&HostName::verbatim("b"), 1, 0).await.expect_err("another host is refused");
    assert!(matches!(&message, Refusal::Rejected(why) if why.contains(words)), "{message}");
    let epoch =
        remote.register(registration("a")).await.expect("the host may act for itself").epoch;
    remote.desired(&HostName::verbatim("a"), epoch, 0).await.expect("the host may act for itself");
    // Without a certificate, a client can only join.
    let nobody = kilonova_pki::trusting(&a.authority).expect("the TLS settings are valid");
    let nobody = Remote::certified(&url, nobody).expect("the client is created");
    let message = nobody
        .register(registration("a"))
        .await
        .expect_err("a host without a certificate is refused");
    assert!(
        matches!(&message, Refusal::Rejected(why) if why.contains("no client certificate")),
        "{message}"
    );
    nobody.clock().await.expect("the time needs no certificate");
}

#[tokio::test(flavor = "multi_thread")]
async fn unaccepted_certificates_are_refused_with_a_remedy() {
    let (cloud, url) = open(Environment::new());
    let (_, known) = joined(&cloud, &url, HOST, 1).await;
    let ours = authority(&cloud.place);
    let (made, key) = Authority::make(Timestamp::now()).expect("the authority is created");
    let foreign = Authority::load(&made, &key).expect("the authority loads");
    let of_another =
        at(&foreign, &known, Timestamp::now(), DAY).remote().expect("the client is created");
    refused(&of_another, "is not from the controller's authority").await;
    let old = at(&ours, &known, Timestamp::now() - DAY * 100, DAY * 90)
        .remote()
        .expect("the client is created");
    refused(&old, "considers the certificate of this host expired").await;
    let believes =
        HostIdentity { authority: made, ..known.clone() }.remote().expect("the client is created");
    refused(&believes, "not the controller that this host joined").await;
    let remote = known.remote().expect("the client is created");
    remote.register(registration(HOST)).await.expect("the host is accepted");
    let text = node(&cloud, &["revoke", HOST]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("is revoked"));
    refused(
        &remote,
        &format!("was revoked: create a token with `kilonova node enroll --host {HOST}`"),
    )
    .await;
    let (_, again) = joined(&cloud, &url, HOST, 1).await;
    again
        .remote()
        .expect("the client is created")
        .register(registration(HOST))
        .await
        .expect("the host is accepted again");
    refused(&remote, "was revoked").await;
    let listed = node(&cloud, &["list"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("revoked") && listed.contains("valid"), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_renewed_in_time() {
    let (cloud, url) = open(Environment::new());
    let (identity, known) = joined(&cloud, &url, HOST, 1).await;
    let due = at(&authority(&cloud.place), &known, Timestamp::now() - DAY * 70, DAY * 90);
    let text = serde_json::to_vec(&due).expect("the identity is serialized");
    std::fs::write(cloud.place.file(HOST).join("identity.json"), text)
        .expect("the file is written");
    let remote = due.remote().expect("the client is created");
    let (sender, mut receiver) = watch::channel(None);
    let keeping = tokio::spawn(keep_certified(
        remote.clone(),
        identity.clone(),
        due.clone(),
        addresses(1),
        Duration::from_millis(50),
        move |known: &HostIdentity| drop(sender.send_replace(Some(known.clone()))),
    ));
    let soon = Duration::from_secs(20);
    let new = tokio::time::timeout(soon, receiver.wait_for(Option::is_some)).await;
    let new = new
        .expect("the event arrives in time")
        .expect("the agent reports it")
        .clone()
        .expect("the certificate loads");
    assert_eq!(identity.read().expect("the identity is readable"), Some(new.clone()));
    assert!(
        new.parsed_certificate().expect("the certificate is valid").not_after
            > Timestamp::now() + DAY * 25
    );
    assert!(new.key != due.key && new.certificate != due.certificate);
    remote.register(registration(HOST)).await.expect("the new certificate is accepted");
    // The running agent picks up an identity that an operator replaces by joining again.
    let (_, again) = joined(&cloud, &url, HOST, 1).await;
    let taken = receiver.wait_for(|known| known.as_ref() == Some(&again));
    tokio::time::timeout(soon, taken)
        .await
        .expect("the event arrives in time")
        .expect("the agent reports it");
    remote.register(registration(HOST)).await.expect("the replaced certificate is accepted");
    keeping.abort();
}

/// A host whose long poll is open, and the instant at which that poll ends.
async fn polling(
    known: &HostIdentity,
) -> tokio::task::JoinHandle<(Result<Batch, Refusal>, Instant)> {
    let remote = known.remote().expect("the client is created");
    let epoch = remote.register(registration(HOST)).await.expect("the host is accepted").epoch;
    let first = remote
        .desired(&HostName::verbatim(HOST), epoch, 0)
        .await
        .expect("the host may act for itself");
    let waiting = tokio::spawn(async move {
        let answer =
            remote.desired(&HostName::verbatim(HOST), epoch, first.generation.max(1)).await;
        (answer, Instant::now())
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished(), "the poll is still open");
    waiting
}

/// Sends a request to the node listener without a certificate, as a balancer does.
fn probe(url: &str, authority: &str, path: &str) -> Answer {
    let address = url.strip_prefix("https://").expect("the URL has TLS");
    let address: SocketAddr = address.parse().expect("the URL names an address");
    let config = kilonova_pki::trusting(authority).expect("the TLS settings are valid");
    let client = ClientConnection::new(Arc::new(config), address.ip().into());
    let client = client.expect("the TLS client is created");
    let mut stream = StreamOwned::new(client, connect(address));
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .expect("the request is sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the answer arrives");
    Answer::parse(path, &answer).check()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_port_of_hosts_tells_its_health_and_answers_polls_at_the_end() {
    let (mut cloud, url) = open(Environment::new());
    let (_, known) = joined(&cloud, &url, HOST, 1).await;
    for path in ["/healthz", "/readyz", "/healthcheck"] {
        assert_eq!(probe(&url, &known.authority, path).status, 200, "{path}");
    }
    let waiting = polling(&known).await;
    cloud.serve.signal(Signal::TERM);
    let (answer, _) = waiting.await.expect("the task does not panic");
    let batch = answer.expect("the poll is answered");
    assert!(!batch.complete && batch.documents.is_empty(), "{batch:?}");
    assert_eq!(cloud.serve.wait().code(), Some(0), "{}", cloud.serve.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_poll_ends_with_the_certificate() {
    let (cloud, url) = open(Environment::new());
    let (_, known) = joined(&cloud, &url, HOST, 1).await;
    let waiting = polling(&known).await;
    let begun = Instant::now();
    node(&cloud, &["revoke", HOST]);
    let (answer, ended) = waiting.await.expect("the task does not panic");
    let words = "was revoked";
    assert!(matches!(&answer, Err(Refusal::Rejected(why)) if why.contains(words)), "{answer:?}");
    assert!(ended - begun < Duration::from_secs(10), "{:?}", ended - begun);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_poll_at_another_controller_ends_with_the_certificate() {
    let places = std::thread::spawn(Environment::all).join().expect("the places are created");
    let Some(place) = places.into_iter().find(|place| place.database.is_some()) else {
        return kilonova_testkit::skip(
            "two processes need PostgreSQL; KILONOVA_TEST_POSTGRES names no server",
        );
    };
    let mut other = Environment::new();
    other.database.clone_from(&place.database);
    let (one, url) = open(place);
    other.share_seal(&one.place);
    let serve = other.start_with(|command| {
        command.args(["--node-listen", "127.0.0.1:0"]);
    });
    let (_, known) = joined(&one, &url, HOST, 1).await;
    let known = HostIdentity { control: node_listener(&serve), ..known };
    let waiting = polling(&known).await;
    let begun = Instant::now();
    node(&one, &["revoke", HOST]);
    let (answer, ended) = waiting.await.expect("the task does not panic");
    let words = "was revoked";
    assert!(matches!(&answer, Err(Refusal::Rejected(why)) if why.contains(words)), "{answer:?}");
    let took = ended - begun;
    println!("the poll at the other controller ended after {took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    refused(&known.remote().expect("the client is created"), words).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_receive_the_revocation_list() {
    let (cloud, url) = open(Environment::new());
    let (_, evil) = joined(&cloud, &url, "evil", 1).await;
    let (_, good) = joined(&cloud, &url, "good", 2).await;
    let remote = good.remote().expect("the client is created");
    let before = remote.revocations().await.expect("the answer is a list");
    assert_eq!(before.revoked, []);
    assert_eq!(
        remote.revocations().await.expect("the answer is a list"),
        before,
        "the list is signed once"
    );
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let following = tokio::spawn(follow_revocations(
        remote.clone(),
        Duration::from_millis(50),
        move |list, new| sender.send((list.clone(), new.to_vec())).is_ok(),
    ));
    assert_eq!(
        receiver.recv().await.expect("the first list arrives"),
        (before.clone(), Vec::new())
    );
    node(&cloud, &["revoke", "evil"]);
    let soon = tokio::time::timeout(Duration::from_secs(10), receiver.recv()).await;
    let (list, new) = soon.expect("the event arrives in time").expect("the second list arrives");
    following.abort();
    assert_ne!(list.mark, before.mark);
    let serial = evil.parsed_certificate().expect("the certificate is valid").serial;
    let named = |list: &[RevokedHost]| {
        list.iter().map(|one| (one.host.clone(), one.serial.clone())).collect::<Vec<_>>()
    };
    assert_eq!(named(&list.revoked), [(HostName::verbatim("evil"), serial.clone())]);
    assert_eq!(named(&new), named(&list.revoked));
    assert!(list.crl.starts_with("-----BEGIN X509 CRL-----"), "{}", list.crl);
    // OpenSSL reads the list as libvirt's GnuTLS does: it rejects one host and accepts the other.
    let file = |name: &str, text: &str| {
        let path = cloud.place.file(name);
        std::fs::write(&path, text).expect("the file is written");
        path
    };
    let (ca, crl) = (file("ca.pem", &good.authority), file("crl.pem", &list.crl));
    for (name, certificate, fine) in
        [("good.pem", &good.certificate, true), ("evil.pem", &evil.certificate, false)]
    {
        let output = Command::new("openssl")
            .args(["verify", "-crl_check", "-CAfile"])
            .arg(&ca)
            .arg("-CRLfile")
            .arg(&crl)
            .arg(file(name, certificate))
            .output();
        let output = output.expect("openssl runs");
        let printed = stderr(&output);
        assert_eq!(output.status.success(), fine, "{name}: {printed}");
        assert!(fine || printed.contains("certificate revoked"), "{printed}");
    }
    let refused = evil
        .remote()
        .expect("the client is created")
        .revocations()
        .await
        .expect_err("the host is refused");
    assert!(refused.to_string().contains("was revoked"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_connects_while_users_hold_all_their_connections() {
    let (cloud, url) = open(Environment::configured("[api]\nmax_connections = 4\n"));
    let (_, known) = joined(&cloud, &url, HOST, 1).await;
    let idle: Vec<_> = (0..4).map(|_| connect(cloud.serve.address)).collect();
    // The kernel accepts the connection before the server does.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let refused = raw(cloud.serve.address, b"");
    assert!(refused.starts_with(b"HTTP/1.1 503 "), "{}", String::from_utf8_lossy(&refused));
    let remote = known.remote().expect("the client is created");
    remote.register(registration(HOST)).await.expect("the host is accepted");
    drop(idle);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_host_name_needs_an_operators_permission() {
    let topology = repository().join("examples/nodes/demo.toml");
    let place = Environment::new();
    let serve = place.start_with(|command| {
        command.args(["--node-listen", "127.0.0.1:0", "--nodes"]).arg(topology);
    });
    let url = node_listener(&serve);
    let admin = cloud::admin(&place, &serve);
    let cloud = Cloud { serve, place, admin };
    let begun = Instant::now();
    let is_there = || {
        let all = cloud.admin.get("/compute/v2.1/os-hypervisors").ok(200);
        all["hypervisors"].to_string().contains(HOST)
    };
    while !is_there() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the host is not there");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    let enroll = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kilonova"));
        command.args(["node", "enroll"]).args(words).args(["--os-cloud", "kilonova", "--clouds"]);
        let output = command.arg(cloud.place.state().join("clouds.yaml")).output();
        let output = output.expect("the program runs");
        (
            output.status.success(),
            stderr(&output),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    for (host, words) in [
        (HOST, "--replace"),
        (HOST.to_uppercase().as_str(), "differs from it only in case"),
        ("127.0.0.1", "looks like an address"),
        ("EVIL", "lower case"),
    ] {
        let (fine, message, _) = enroll(&["--host", host]);
        assert!(!fine && message.contains(words), "{host}: {message}");
    }
    // A token for any host does not permit it either.
    let (_, _, made) = enroll(&["--format", "json"]);
    let made: Value = serde_json::from_str(&made).expect("the output is JSON");
    let any: Token =
        made["token"].as_str().expect("a token is present").parse().expect("the token parses");
    for (host, words) in [
        (HOST, "--replace"),
        (HOST.to_uppercase().as_str(), "differs from it only in case"),
        ("EVIL", "lower case"),
        ("10.1", "looks like an address"),
    ] {
        let identity = Identity::at(&cloud.place.file("any"));
        let message = identity
            .join(&url, &any, &HostName::verbatim(host), addresses(9))
            .await
            .expect_err(host);
        assert!(message.to_string().contains(words), "{host}: {message}");
    }
    let (fine, message, made) = enroll(&["--host", HOST, "--replace", "--format", "json"]);
    assert!(fine, "{message}");
    let made: Value = serde_json::from_str(&made).expect("the output is JSON");
    let token: Token =
        made["token"].as_str().expect("a token is present").parse().expect("the token parses");
    let identity = Identity::at(&cloud.place.file("new"));
    identity
        .join(&url, &token, &HostName::verbatim(HOST), addresses(8))
        .await
        .expect("the operator permits the replacement");
    // From now on the host has a certificate, and joins again like any other.
    joined(&cloud, &url, HOST, 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_of_a_host_is_refused_in_a_sentence() {
    let (cloud, url) = open(Environment::new());
    let (_, known) = joined(&cloud, &url, HOST, 1).await;
    let remote = known.remote().expect("the client is created");
    let slot = HandleSlot::TestPci { address: "0000:0c:00.0".into() };
    let deployable = |name: &str| Deployable {
        name: name.into(),
        resource_class: kilonova_ids::ResourceClass::verbatim("FPGA"),
        traits: Vec::new(),
        driver: "fake".into(),
        facts: std::collections::BTreeMap::new(),
        slots: vec![slot.clone()],
    };
    let device = |name: &str| Device {
        address: "0000:0c:00.0".into(),
        card: None,
        one_type: false,
        switch: None,
        peers: Vec::new(),
        mig: None,
        kind: DeviceKind::Fpga,
        vendor_id: "8086".into(),
        product_id: "09c4".into(),
        model: String::new(),
        numa_node: -1,
        health: Health::Healthy,
        deployables: vec![deployable(name)],
    };
    let twice = vec![device("one"), device("two")];
    for (words, wrong) in [
        ("vcpus is -5", Registration { vcpus: -5, ..registration(HOST) }),
        ("two devices have the address", Registration { devices: twice, ..registration(HOST) }),
    ] {
        let text = remote.register(wrong).await;
        assert!(matches!(&text, Err(Refusal::Rejected(why)) if why.contains(words)), "{text:?}");
    }
    remote.register(registration(HOST)).await.expect("the correct registration is accepted");
}
