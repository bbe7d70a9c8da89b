//! Hosts in a separate process: which hosts are accepted, and that each process survives the other's death.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::kit::environment::{repository, stderr};
use crate::kit::{Cloud, Environment, Serve, Session};

/// A running `kilonova node`, killed at the end.
struct Hosts(Child);

impl Hosts {
    fn start(place: &Environment, control: &str) -> Self {
        let mut command = command(place, control, &place.state().join("node.token"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("the program starts"))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        if self.0.kill().is_ok() {
            drop(self.0.wait());
        }
    }
}

fn command(place: &Environment, control: &str, word: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kilonova"));
    command.args(["node", "--control", control, "--nodes"]);
    command.arg(repository().join("examples/nodes/demo.toml"));
    command.arg("--token-file").arg(word);
    command.arg("--state-dir").arg(place.file("hosts")).stdin(Stdio::null());
    command
}

fn two_hosts(admin: &Session) {
    let begun = Instant::now();
    loop {
        let hosts = admin.get("/compute/v2.1/os-hypervisors").ok(200);
        if hosts["hypervisors"].as_array().is_some_and(|hosts| hosts.len() == 2) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "the hosts are not up: {hosts}");
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// Starts `serve` again at the same address.
fn again(place: &Environment, old: &Serve) -> Serve {
    let mut command = place.command("serve");
    command.args(["--listen", &old.address.to_string()]);
    Serve::start(command, place.file("log"))
}

#[test]
fn servers_boot_on_agents_in_another_process_despite_crashes() {
    for mut cloud in Cloud::all() {
        let mut hosts = Hosts::start(&cloud.place, &cloud.serve.url());
        two_hosts(&cloud.admin);
        let (flavor, image) = (cloud.flavor("small"), cloud.image("tiny"));
        cloud.server(&cloud.admin, "one", &flavor, &image);

        hosts.0.kill().expect("the process is killed");
        hosts.0.wait().expect("the process ends");
        let body = crate::kit::cloud::server("two", &flavor, &image);
        let two = cloud.admin.post("/compute/v2.1/servers", &body).ok(202);
        let two = two["server"]["id"].as_str().expect("an id is present").to_owned();
        let _hosts = Hosts::start(&cloud.place, &cloud.serve.url());
        cloud.wait_for(&cloud.admin, &two, "ACTIVE");

        cloud.serve.kill();
        cloud.serve = again(&cloud.place, &cloud.serve);
        cloud.server(&cloud.admin, "three", &flavor, &image);
    }
}

#[test]
fn agents_need_the_shared_token() {
    let cloud = &Cloud::all()[0];
    let word = std::fs::read_to_string(cloud.place.state().join("node.token"))
        .expect("the token is readable");
    let nobody = cloud.anonymous();
    for stranger in
        [nobody.clone(), cloud.admin.clone(), nobody.with("Authorization", "Bearer wrong")]
    {
        for (method, path) in [
            ("POST", "/node/v1/register"),
            ("GET", "/node/v1/hosts/h/desired?epoch=1&since=0"),
            ("POST", "/node/v1/hosts/h/observed?epoch=1"),
        ] {
            let answer = stranger.send(method, path, "application/json", b"{}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            answer.refused_saying(401, &["node.token"]);
        }
    }
    let node = nobody.with("Authorization", &format!("Bearer {}", word.trim()));
    node.send("POST", "/node/v1/register", "application/json", b"[]").refused(422);
    node.send("POST", "/node/v1/register", "application/json", b"{").refused(422);
    node.get("/node/v1/hosts/h/desired").refused_saying(400, &["epoch"]);
    node.get("/node/v1/hosts/h/desired?epoch=1&since=0").refused_saying(422, &["h", "registered"]);
    node.send("POST", "/node/v1/hosts/h/observed?epoch=1", "application/json", b"[]")
        .refused_saying(422, &["h", "registered"]);
}

#[test]
fn options_are_validated_before_anything_is_created() {
    let cloud = &Cloud::all()[0];
    let (url, word) = (cloud.serve.url(), cloud.place.state().join("node.token"));
    let refused = |control: &str, word: &Path, host: &str, words: &[&str]| {
        let mut command = command(&cloud.place, control, word);
        let output = command.args(["--host", host]).output().expect("the program runs");
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        for word in words {
            assert!(printed.contains(word), "{word:?} is not in: {printed}");
        }
        assert!(!cloud.place.file("hosts").exists());
    };
    refused("127.0.0.1:1", &word, "virtlab606", &["not a URL of a controller"]);
    refused(&url, &word, "nowhere", &["no host nowhere"]);
    refused(&url, &cloud.place.write("empty", ""), "virtlab606", &["the token is empty"]);
    refused(&url, &cloud.place.file("missing"), "virtlab606", &["cannot read", "missing"]);
}

/// An agent that uses a port without hosts learns where they join.
#[test]
fn hosts_at_the_port_of_the_api_are_told_where_to_join() {
    let place = Environment::configured("[node]\ntoken = false\n");
    let serve = place.start();
    let word = place.write("word", "any");
    let log = place.file("hosts.log");
    let mut command = command(&place, &serve.url(), &word);
    command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).expect("it is created"));
    let _hosts = Hosts(command.spawn().expect("the program starts"));
    let begun = Instant::now();
    loop {
        let said = std::fs::read_to_string(&log).expect("the log is UTF-8");
        if said.contains("hosts join at the URL that `kilonova node list` prints") {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
