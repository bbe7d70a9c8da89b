//! Secrets in the database: what a further controller needs, an upgrade from files, and unusable
//! sealing keys.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use kilonova_ids::HostName;
use kilonova_node_api::ControlPlane;
use kilonova_node_link::{HostIdentity, Identity};
use kilonova_pki::{Authority, HostCertificateParams};
use serde_json::Value;

use super::join::{node_listener, open, registration, token};
use crate::kit::cloud::admin;
use crate::kit::environment::stderr;
use crate::kit::{Cloud, Environment, Serve};

const LISTEN: [&str; 4] = ["--listen", "127.0.0.1:0", "--node-listen", "127.0.0.1:0"];

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("the file is read")
}

fn private(path: &Path, text: &str) {
    std::fs::write(path, text).expect("the file is written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .expect("the mode is set");
}

fn folder(path: &Path) {
    let made = std::fs::DirBuilder::new().mode(0o700).recursive(true).create(path);
    made.expect("the directory is created");
}

/// The JSON output of a command.
fn json(place: &Environment, words: &[&str]) -> Value {
    let output = place.tool(&[words, &["--format", "json"]].concat());
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("the output is JSON")
}

fn refused(place: &Environment, words: &[&str]) {
    let output = place.run("serve", &LISTEN);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
}

fn logged(serve: &Serve, words: &str) {
    let begun = Instant::now();
    while !serve.log().contains(words) {
        assert!(begun.elapsed() < Duration::from_secs(30), "not logged: {words}\n{}", serve.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_controller_needs_the_sealing_key_alone() {
    let places = std::thread::spawn(Environment::all).join().expect("the places are created");
    let Some(place) = places.into_iter().find(|place| place.database.is_some()) else {
        return kilonova_testkit::skip(
            "two processes need PostgreSQL; KILONOVA_TEST_POSTGRES names no server",
        );
    };
    let config = "[node]\ntoken = true\n".to_owned();
    let (one, _) = open(place.reconfigured(&config));
    let mut place = Environment::configured(&config);
    place.database.clone_from(&one.place.database);
    refused(
        &place,
        &["the secrets of this cloud are sealed", "seal.key", "copy it from a controller"],
    );
    assert!(!place.state().join("seal.key").exists(), "no other key is created");
    folder(&place.state());
    private(&place.state().join("seal.key"), "7G2qD2m8yQHkqJX6n8bSvP5XbY3m0a4Jj3cJk0y1xYQ=\n");
    refused(&place, &["are sealed with key", "copy the key file of a controller that has it"]);
    place.share_seal(&one.place);
    let serve = place.start_with(|command| {
        command.args(["--node-listen", "127.0.0.1:0"]);
    });
    let url = node_listener(&serve);

    // A token of one controller is valid at the other, and a host joins one with a join token of the other.
    let mut there = admin(&one.place, &one.serve);
    there.address = serve.address;
    there.get("/compute/v2.1/servers").ok(200);
    let identity = Identity::at(&place.file("host"));
    let host = HostName::verbatim("gpu-1");
    let known = identity.join(&url, &token(&one, "gpu-1"), &host, Vec::new()).await;
    let known = known.expect("the host joins");
    let remote = known.remote().expect("the client is created");
    remote.register(registration("gpu-1")).await.expect("the host is accepted");
    for name in ["node.token", "metrics.token"] {
        let copies = [&one.place, &place].map(|place| read(&place.state().join(name)));
        assert_eq!(copies[0], copies[1], "{name}");
    }

    // Keys that are rotated at one controller are used at the other.
    let rotated = json(&one.place, &["keys", "fernet-rotate"]);
    assert_eq!(rotated["primary"], 2);
    logged(&one.serve, "loaded the new token keys");
    let mut there = admin(&one.place, &one.serve);
    there.address = serve.address;
    there.get("/compute/v2.1/servers").ok(200);
    logged(&serve, "loaded the new token keys");
    let listed = json(&place, &["keys", "list"]);
    let roles: Vec<&str> = listed["token_keys"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|key| key["role"].as_str())
        .collect();
    assert_eq!(roles, ["staged", "secondary", "primary"]);

    // The sealing key is changed while both run: first everywhere, then in the database.
    let added = json(&one.place, &["keys", "seal-add"]);
    place.share_seal(&one.place);
    let resealed = json(&one.place, &["keys", "seal-rotate"]);
    assert_eq!(resealed["seals"], added["added"]);
    let output = one.place.tool(&["keys", "fernet-rotate"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let begun = Instant::now();
    while serve.log().matches("loaded the new token keys").count() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(30), "{}", serve.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("Token key 3 signs from now on"), "{text}");
    let secret = read(&place.state().join("seal.key"));
    for log in [one.serve.log(), serve.log()] {
        assert!(secret.lines().filter(|line| line.len() == 44).all(|key| !log.contains(key)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_takes_over_keys_and_authority_from_files() {
    let places = std::thread::spawn(Environment::all).join().expect("the places are created");
    for place in places {
        let state = place.state();
        for name in ["", "keys", "ca"] {
            folder(&state.join(name));
        }
        private(&state.join("keys/1"), "Zl6SvSMPJ_9G1pDyh3b2k4pRtcQ8bS4Yp6tYb1wG9aM=");
        private(&state.join("node.token"), "theoldtoken");
        let (certificate, key) = Authority::make(Timestamp::now()).expect("it is created");
        private(&state.join("ca/ca.crt"), &certificate);
        private(&state.join("ca/ca.key"), &key);
        // A host that joined the earlier version.
        let authority = Authority::load(&certificate, &key).expect("it is loaded");
        let host = HostName::verbatim("gpu-1");
        let request = kilonova_pki::Request::new(&host).expect("the request is made");
        let valid = SignedDuration::from_hours(240);
        let content = HostCertificateParams { host: &host, addresses: &[], valid };
        let signed = authority.sign(&request.csr, &content, Timestamp::now());
        let (signed, _) = signed.expect("the certificate is signed");

        let (cloud, url) = open(place.reconfigured("[node]\ntoken = true\n"));
        let log = cloud.serve.log();
        assert!(
            log.contains("imported the token keys") && log.contains("imported the cloud"),
            "{log}"
        );
        let known = HostIdentity {
            control: url,
            host,
            authority: certificate,
            certificate: signed,
            key: request.key,
        };
        let remote = known.remote().expect("the client is created");
        remote.register(registration("gpu-1")).await.expect("its certificate is valid");
        assert_eq!(read(&state.join("node.token")), "theoldtoken");
        let listed = json(&cloud.place, &["ca", "list"]);
        let ours = authority.fingerprint().to_string();
        assert_eq!(listed["authorities"][0]["fingerprint"], ours);

        // Later starts do not read the files, and leave their removal to the operator.
        let Cloud { mut serve, place, .. } = cloud;
        serve.terminate();
        private(&state.join("keys/1"), "garbage");
        private(&state.join("ca/ca.key"), "garbage");
        let serve = place.start_with(|command| {
            command.args(["--node-listen", "127.0.0.1:0"]);
        });
        assert!(serve.log().contains("are not read any more"), "{}", serve.log());
        let known = HostIdentity { control: node_listener(&serve), ..known };
        let remote = known.remote().expect("the client is created");
        remote.register(registration("gpu-1")).await.expect("its certificate is valid");
        assert_eq!(read(&state.join("keys/1")), "garbage");
    }
}

/// An operator may run a command as root before the service has ever started. A key file owned by root
/// would prevent the service from starting.
#[test]
fn commands_create_no_key_on_a_cloud_that_was_never_started() {
    for place in Environment::all() {
        let mut serve = place.start();
        serve.terminate();
        let key = place.state().join("seal.key");
        std::fs::remove_file(&key).expect("the key exists");
        place.sql("DELETE FROM seal_current");
        place.sql("DELETE FROM sealed_secrets");
        for words in [["keys", "list"], ["keys", "seal-add"], ["ca", "list"], ["ca", "rotate"]] {
            let output = place.tool(&words);
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
            assert!(said.contains("start kilonova serve as the user of the service"), "{said}");
            assert!(!key.exists(), "{words:?}");
        }
    }
}

#[test]
fn unusable_sealing_keys_are_refused_with_advice() {
    let place = Environment::new();
    let file = place.file("seal");
    let configured = |text: String| Environment::configured(&text);
    let by_file = || configured(format!("[seal]\nkey_file = {}\n", file.display()));
    refused(&by_file(), &["does not exist", "openssl rand -base64 32"]);
    private(&file, "correct horse battery staple\n");
    refused(&by_file(), &["line 1 of the key file", "is not a sealing key"]);
    private(&file, "7G2qD2m8yQHkqJX6n8bSvP5XbY3m0a4Jj3cJk0y1xYQ=\n");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644))
        .expect("the mode is set");
    refused(&by_file(), &["mode 0644", &format!("`chmod 600 {}`", file.display())]);
    for (command, words) in [
        ("echo hunter2", "is not a sealing key"),
        ("echo hunter2 >&2; exit 4", "exit status: 4"),
        ("yes", "printed more than"),
    ] {
        let place = configured(format!("[seal]\nkey_command = {command}\n"));
        refused(&place, &["key_command", words]);
        let files: Vec<_> = std::fs::read_dir(place.state()).expect("it is listed").collect();
        assert!(!files.iter().flatten().any(|file| file.file_name() == "seal.key"));
    }
    private(&file, "7G2qD2m8yQHkqJX6n8bSvP5XbY3m0a4Jj3cJk0y1xYQ=\n");
    let by_command = configured(format!("[seal]\nkey_command = cat {}\n", file.display()));
    let mut serve = by_command.start();
    admin(&by_command, &serve).get("/compute/v2.1/servers").ok(200);
    assert!(!by_command.state().join("seal.key").exists());
    serve.terminate();
    // The same key from a file opens the same secrets.
    let by_file = by_command.reconfigured(&format!("[seal]\nkey_file = {}\n", file.display()));
    admin(&by_file, &by_file.start()).get("/compute/v2.1/servers").ok(200);
    let output = by_file.tool(&["keys", "list"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("primary") && text.contains("seals;"),
        "{text}"
    );
    assert!(!text.contains("7G2q"), "{text}");
}

/// True if the process exists and is not a zombie.
fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

#[test]
fn a_command_that_hangs_dies_with_a_killed_controller() {
    let scratch = Environment::new();
    let file = scratch.file("pids");
    let script =
        scratch.write("hangs", format!("sleep 600 & echo $$ $! >{}; wait", file.display()));
    let command = format!("[seal]\nkey_command = sh {}\n", script.display());
    let place = Environment::configured(&command);
    let mut controller = place.command("serve");
    controller.args(LISTEN).stderr(std::process::Stdio::null());
    let mut controller = controller.spawn().expect("the program starts");
    let begun = Instant::now();
    let pids = loop {
        let pids = std::fs::read_to_string(&file).unwrap_or_default();
        if pids.ends_with('\n') {
            break pids;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "the command does not run");
        std::thread::sleep(Duration::from_millis(20));
    };
    let pids: Vec<&str> = pids.split_whitespace().collect();
    assert!(pids.len() == 2 && pids.iter().all(|pid| lives(pid)), "{pids:?}");
    controller.kill().expect("it is killed");
    controller.wait().expect("it is reaped");
    let killed = Instant::now();
    while pids.iter().any(|pid| lives(pid)) {
        assert!(killed.elapsed() < Duration::from_secs(10), "the command outlives the controller");
        std::thread::sleep(Duration::from_millis(20));
    }
}
