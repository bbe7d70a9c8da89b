//! The simulated hypervisor across restarts, and its failures.

use std::collections::BTreeMap;
use std::path::Path;

use kilonova_ids::ServerId;
use kilonova_node_api::{Boot, Departure, Peer};

use super::{Failure, Fate, Plan, Simulated};
use crate::{Definition, Hypervisor, Life, Step};

fn definition(name: &str) -> Definition {
    Definition {
        server: ServerId::new_v4(),
        name: "instance-00000001".into(),
        display_name: name.into(),
        vcpus: 1,
        memory_mb: 64,
        boot: Boot { image: None, root_gb: 1, ephemeral_gb: 0, swap_mb: 0, rebuilt: None },
        devices: Vec::new(),
        interfaces: Vec::new(),
        machine: Default::default(),
        guest: Default::default(),
        rescue: None,
        done: None,
    }
}

fn open(folder: &Path) -> Simulated {
    Simulated::open(folder.join("host"), Plan::default()).expect("opens")
}

#[tokio::test]
async fn domains_and_their_power_survive_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let (on, off) = (definition("on"), definition("off"));
    let first = open(folder.path());
    for one in [&on, &off] {
        first.define(one).await.expect("defined");
    }
    first.start(on.server).await.expect("started");
    drop(first);
    let second = open(folder.path());
    assert_eq!(second.servers().await.expect("listed").len(), 2);
    assert_eq!(second.running().await.expect("listed"), [on.server]);
    for (one, life) in [(&on, Life::Running), (&off, Life::Off)] {
        let found = second.domain(one.server).await.expect("answers").expect("there");
        assert_eq!(found.life, life);
        assert_eq!(found.definition().as_ref(), Ok(one));
    }
    assert!(second.undefine(on.server).await.is_err(), "a running guest is not undefined");
    second.destroy(on.server).await.expect("destroyed");
    second.undefine(on.server).await.expect("undefined");
    second.undefine(on.server).await.expect("undefined twice");
    second.destroy(on.server).await.expect("there is nothing to destroy");
    assert_eq!(open(folder.path()).servers().await.expect("listed"), vec![off.server]);
}

#[tokio::test]
async fn a_file_that_is_no_domain_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("host/domains").join(format!("{}.xml", ServerId::new_v4()));
    crate::write_atomically(&file, b"<domain").expect("written");
    assert!(open(folder.path()).servers().await.expect("listed").is_empty());
    assert!(file.exists());
}

#[tokio::test]
async fn failures_come_at_the_named_step_for_the_named_servers_and_then_stop() {
    let folder = tempfile::tempdir().expect("a folder");
    let (step, fate) = (Step::Start, Fate::Stays);
    let failure = Failure { step, server_name: "bad*".into(), times: Some(1), fate };
    let plan = Plan::new(BTreeMap::new(), vec![failure]);
    let hypervisor = Simulated::open(folder.path().join("host"), plan).expect("opens");
    let (good, bad) = (definition("good"), definition("bad-1"));
    for one in [&good, &bad] {
        hypervisor.define(one).await.expect("defined");
    }
    hypervisor.start(good.server).await.expect("not meant");
    assert_eq!(hypervisor.start(bad.server).await.expect_err("meant").step, Step::Start);
    hypervisor.start(bad.server).await.expect("once only");
    let missing = hypervisor.start(ServerId::new_v4()).await.expect_err("unknown");
    assert!(missing.message.contains("no domain"));
}

/// Runs each step once and again, and looks after a restart.
#[tokio::test]
async fn a_guest_is_found_as_it_was_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = definition("one");
    open(folder.path()).define(&one).await.expect("defined");
    type Do = fn(&Simulated, ServerId) -> crate::Answer<'_, ()>;
    let steps: [(Do, Life); 9] = [
        (|h, s| h.start(s), Life::Running),
        (|h, s| h.pause(s), Life::Paused),
        (|h, s| h.unpause(s), Life::Running),
        (|h, s| h.suspend(s), Life::Saved),
        (|h, s| h.resume(s), Life::Running),
        (|h, s| h.pause(s), Life::Paused),
        (|h, s| h.suspend(s), Life::Saved),
        (|h, s| h.destroy(s), Life::Off),
        (|h, s| h.start(s), Life::Running),
    ];
    for (step, life) in steps {
        for _ in 0..2 {
            let hypervisor = open(folder.path());
            step(&hypervisor, one.server).await.expect("done");
            let found = hypervisor.domain(one.server).await.expect("answers").expect("there");
            assert_eq!(found.life, life);
        }
    }
    let hypervisor = open(folder.path());
    let said = hypervisor.console(one.server).await.expect("a log");
    assert_eq!(said.matches("simulated guest instance-00000001 starts").count(), 2, "{said}");
    assert!(said.contains("suspend: running -> suspended"), "{said}");
    let usage = hypervisor.usage(one.server).await.expect("counted");
    assert_eq!((usage.state.as_str(), usage.memory_mb, usage.cpu_ns.len()), ("running", 64, 1));
    hypervisor.destroy(one.server).await.expect("destroyed");
    for refused in [hypervisor.resume(one.server), hypervisor.pause(one.server)] {
        assert!(refused.await.expect_err("refused").message.contains("one is shutdown"));
    }
}

#[tokio::test]
async fn death_on_the_way_to_disk_or_back_leaves_it_in_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = definition("one");
    let hypervisor = open(folder.path());
    hypervisor.define(&one).await.expect("defined");
    hypervisor.start(one.server).await.expect("started");
    let saved = folder.path().join("host/saved").join(one.server.to_string());
    crate::write_atomically(&saved, b"").expect("written");
    let found = open(folder.path()).domain(one.server).await.expect("answers").expect("there");
    assert_eq!(found.life, Life::Running);
    assert!(!saved.exists());
}

#[tokio::test]
async fn a_snapshot_tells_what_the_disk_is_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = definition("one");
    let hypervisor = open(folder.path());
    hypervisor.define(&one).await.expect("defined");
    let file = folder.path().join("snapshots/disk");
    hypervisor.snapshot(one.server, file.clone()).await.expect("written");
    let disk = std::fs::read_to_string(file).expect("readable");
    assert!(disk.contains(&format!("server={}\nimage=none", one.server)), "{disk}");
}

#[tokio::test]
async fn a_guest_that_leaves_unheard_is_where_it_went() {
    for (fate, left) in [(Fate::Goes, Life::Off), (Fate::Stands, Life::Paused)] {
        for was in [Life::Running, Life::Paused] {
            let folder = tempfile::tempdir().expect("a folder");
            let (step, times) = (Step::Migrate, None);
            let failure = Failure { step, server_name: "*".into(), times, fate };
            let plan = Plan::new(BTreeMap::new(), vec![failure]);
            let here = Simulated::open(folder.path().join("here"), plan).expect("opens");
            let there = Simulated::open(folder.path().join("there"), Plan::default());
            let (there, one) = (there.expect("opens"), definition("one"));
            here.define(&one).await.expect("defined");
            here.start(one.server).await.expect("started");
            if was == Life::Paused {
                here.pause(one.server).await.expect("paused");
            }
            let to = |host: &str| {
                let to = Peer { host: host.into(), address: String::new() };
                Departure { to, devices: Vec::new(), force: false }
            };
            for nobody in ["there", "..", "", "/"] {
                let refused = here.depart(one.server, &to(nobody)).await.expect_err("refused");
                assert!(refused.message.contains("nobody waits"), "{refused}");
            }
            there.define(&one).await.expect("defined");
            there.receive(one.server).await.expect("awaited");
            let error = here.depart(one.server, &to("there")).await.expect_err("it says so");
            assert!(error.message.contains("simulated failure"), "{error}");
            for (host, life) in [(&here, left), (&there, was)] {
                let found = host.domain(one.server).await.expect("answers").expect("there");
                assert_eq!(found.life, life, "{fate:?}");
            }
            let again = Simulated::open(folder.path().join("there"), Plan::default());
            let found = again.expect("opens").domain(one.server).await.expect("answers");
            assert_eq!(found.expect("there").life, was);
        }
    }
}
