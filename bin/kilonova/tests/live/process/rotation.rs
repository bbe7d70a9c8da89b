//! A rotation of the cloud's authority, with hosts that renew over TLS.

use std::time::{Duration, Instant};

use jiff::SignedDuration;
use kilonova_node_api::ControlPlane;
use kilonova_node_link::{HostIdentity, Identity, keep_certified};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::join::{joined, open, registration};
use crate::kit::environment::stderr;
use crate::kit::{Cloud, Environment};

/// A host whose agent keeps its certificate valid.
struct Host {
    name: &'static str,
    remote: kilonova_node_link::Remote,
    seen: watch::Receiver<HostIdentity>,
    keeper: JoinHandle<()>,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

fn keep(name: &'static str, (identity, known): (Identity, HostIdentity)) -> Host {
    let remote = known.remote().expect("the client is created");
    let (told, seen) = watch::channel(known.clone());
    let kept = remote.clone();
    let keeper = tokio::spawn(async move {
        let every = Duration::from_millis(50);
        let changed = move |known: &HostIdentity| drop(told.send_replace(known.clone()));
        match keep_certified(kept, identity, known, Vec::new(), every, changed).await {}
    });
    Host { name, remote, seen, keeper }
}

impl Host {
    async fn sees(&mut self, what: &str, so: impl FnMut(&HostIdentity) -> bool) -> HostIdentity {
        let waited = tokio::time::timeout(Duration::from_secs(60), self.seen.wait_for(so)).await;
        waited
            .unwrap_or_else(|_| panic!("{} never sees {what}", self.name))
            .expect("it runs")
            .clone()
    }

    async fn works(&self) {
        let registered = self.remote.register(registration(self.name)).await;
        registered.unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }
}

fn ca(cloud: &Cloud, words: &[&str]) -> Result<Value, String> {
    let output = cloud.place.tool(&[&["ca"], words, &["--format", "json"]].concat());
    match output.status.code() {
        Some(0) => Ok(serde_json::from_slice(&output.stdout).expect("the output is JSON")),
        Some(2) => Err(stderr(&output)),
        code => panic!("{words:?}: {code:?} {}", stderr(&output)),
    }
}

/// Repeats a command until no host delays it.
async fn once_ready(cloud: &Cloud, words: &[&str]) -> Value {
    let begun = Instant::now();
    loop {
        match ca(cloud, words) {
            Ok(done) => return done,
            Err(why) => assert!(begun.elapsed() < Duration::from_secs(60), "{why}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn certificates(pem: &str) -> usize {
    pem.matches("BEGIN CERTIFICATE").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_move_to_the_new_authority_without_a_pause() {
    let (cloud, url) = open(Environment::new());
    let mut hosts = [
        keep("gpu-1", joined(&cloud, &url, "gpu-1", 1).await),
        keep("gpu-2", joined(&cloud, &url, "gpu-2", 2).await),
    ];
    let new = ca(&cloud, &["rotate"]).expect("the rotation begins");
    let new = new["staged"].as_str().expect("a fingerprint").to_owned();
    assert!(ca(&cloud, &["rotate"]).expect_err("one at a time").contains("is staged"));
    for host in &mut hosts {
        let known =
            host.sees("both authorities", |known| certificates(&known.authority) == 2).await;
        let by = kilonova_pki::is_issued_by(&known.certificate, &known.authority, &new);
        assert!(!by.expect("it is read"), "the new authority signs nothing yet");
        host.works().await;
    }
    // A host that is off does not delay the others forever.
    let (asleep, slept) = joined(&cloud, &url, "asleep", 3).await;
    let late = |text: &str| text.contains("asleep") && !text.contains("gpu-");
    let begun = Instant::now();
    loop {
        let why = ca(&cloud, &["activate"]).expect_err("a host does not trust it");
        if late(&why) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{why}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let done = ca(&cloud, &["activate", "--force", "--overlap", "7d"]).expect("it is forced");
    assert_eq!(done["hosts"], serde_json::json!(["asleep"]));
    for host in &mut hosts {
        let by_new = |known: &HostIdentity| {
            kilonova_pki::is_issued_by(&known.certificate, &known.authority, &new)
                .expect("it is read")
        };
        let known = host.sees("a certificate of the new authority", by_new).await;
        assert_eq!(certificates(&known.authority), 2, "the old authority is still trusted");
        host.works().await;
        let list = host.remote.revocations().await.expect("the list arrives");
        assert_eq!(list.crl.matches("BEGIN X509 CRL").count(), 2, "one of each authority");
    }
    let open_since = slept.remote().expect("the client is created");
    open_since
        .register(registration("asleep"))
        .await
        .expect("a certificate of the old authority is valid in the meantime");
    let begun = Instant::now();
    loop {
        let why = ca(&cloud, &["retire"]).expect_err("a host uses it");
        if late(&why) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{why}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The host is switched on in time, and its agent follows the rotation.
    let mut woken = keep("asleep", (asleep, slept.clone()));
    once_ready(&cloud, &["retire"]).await;
    for host in hosts.iter_mut().chain([&mut woken]) {
        let known =
            host.sees("the new authority alone", |known| certificates(&known.authority) == 1);
        let known = known.await;
        assert_eq!(
            kilonova_pki::fingerprint(&known.authority).expect("it is read").to_string(),
            new
        );
        host.works().await;
    }
    // A certificate of the old authority is refused now, at an open connection and at a new one.
    let said = open_since.register(registration("asleep")).await;
    let said = said.expect_err("the old certificate is refused").to_string();
    assert!(said.contains("an authority that is no longer trusted"), "{said}");
    let remote = slept.remote().expect("the client is created");
    let said = remote.register(registration("asleep")).await;
    let said = said.expect_err("the old certificate is refused").to_string();
    assert!(said.contains("is not from the controller's authority"), "{said}");
    let all = ca(&cloud, &["list"]).expect("they are listed");
    let states: Vec<&str> = all["authorities"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["state"].as_str())
        .collect();
    assert_eq!(states, ["retired", "signing"]);
    // New hosts join under the new authority.
    let (_, known) = joined(&cloud, &url, "gpu-3", 4).await;
    assert!(
        known.parsed_certificate().expect("it is read").not_after
            > jiff::Timestamp::now() + SignedDuration::from_hours(24)
    );
    known
        .remote()
        .expect("the client is created")
        .register(registration("gpu-3"))
        .await
        .expect("the host is accepted");
}
