//! The simulated hypervisor across restarts, and its failures.

use std::collections::BTreeMap;
use std::path::Path;

use kilonova_ids::ServerId;
use kilonova_node_api::Boot;

use super::{Failure, Plan, Simulated};
use crate::{Definition, Hypervisor, Step};

fn definition(name: &str) -> Definition {
    Definition {
        server: ServerId::new_v4(),
        name: "instance-00000001".into(),
        display_name: name.into(),
        vcpus: 1,
        memory_mb: 64,
        boot: Boot { image: None, root_gb: 1, ephemeral_gb: 0, swap_mb: 0 },
        devices: Vec::new(),
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
    for (one, running) in [(&on, true), (&off, false)] {
        let found = second.domain(one.server).await.expect("answers").expect("there");
        assert_eq!(found.running, running);
        assert_eq!(found.definition().as_ref(), Ok(one));
    }
    assert!(second.undefine(on.server).await.is_err(), "a running guest is not undefined");
    second.destroy(on.server).await.expect("destroyed");
    second.undefine(on.server).await.expect("undefined");
    second.undefine(on.server).await.expect("undefined twice");
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
    let failure = Failure { step: Step::Start, server_name: "bad*".into(), times: Some(1) };
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
