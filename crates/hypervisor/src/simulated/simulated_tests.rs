//! The simulated hypervisor: restarts and failures.

use std::collections::BTreeMap;
use std::path::Path;

use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::{Boot, DomainConfig, OutgoingMigration, Peer};

use super::{Failure, GuestLocation, Plan, Simulated};
use crate::{Definition, DomainState, Hypervisor, Step};

fn definition(name: &str) -> Definition {
    Definition {
        server: ServerId::new_v4(),
        config: DomainConfig {
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
            volumes: Vec::new(),
            numa: None,
        },
        done: None,
        sources: Default::default(),
        kept_machine_type: None,
    }
}

fn open(folder: &Path) -> Simulated {
    Simulated::open(folder.join("host"), Plan::default()).expect("opens")
}

#[tokio::test]
async fn domains_and_their_states_survive_a_restart() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let (on, off) = (definition("on"), definition("off"));
    let first = open(folder.path());
    for one in [&on, &off] {
        first.define(one).await.expect("the domain is defined");
    }
    first.start(on.server).await.expect("the guest is started");
    drop(first);
    let second = open(folder.path());
    assert_eq!(second.servers().await.expect("the domains are listed").len(), 2);
    assert_eq!(second.running().await.expect("the guests are listed"), [on.server]);
    for (one, state) in [(&on, DomainState::Running), (&off, DomainState::Shutoff)] {
        let found = second
            .domain(one.server)
            .await
            .expect("the lookup succeeds")
            .expect("the domain exists");
        assert_eq!(found.state, state);
        assert_eq!(found.definition().as_ref(), Ok(one));
    }
    assert!(second.undefine(on.server).await.is_err(), "a running guest is not undefined");
    second.destroy(on.server).await.expect("the guest is destroyed");
    second.undefine(on.server).await.expect("the domain is undefined");
    second.undefine(on.server).await.expect("undefining twice succeeds");
    second.destroy(on.server).await.expect("destroying an absent domain succeeds");
    assert_eq!(
        open(folder.path()).servers().await.expect("the domains are listed"),
        vec![off.server]
    );
}

#[tokio::test]
async fn a_guest_that_starts_paused_survives_a_restart() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let (first, guest) = (open(folder.path()), definition("paused"));
    first.define(&guest).await.expect("the domain is defined");
    first.start_paused(guest.server).await.expect("the guest is started");
    drop(first);
    let second = open(folder.path());
    let found = second.domain(guest.server).await.expect("the lookup succeeds");
    assert_eq!(found.map(|found| found.state), Some(DomainState::Paused));
    second.unpause(guest.server).await.expect("the guest runs");
    assert_eq!(second.running().await.expect("the guests are listed"), [guest.server]);
}

#[tokio::test]
async fn a_file_without_a_domain_is_left_alone() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let file = folder.path().join("host/domains").join(format!("{}.xml", ServerId::new_v4()));
    crate::write_atomically(&file, b"<domain").expect("the file is written");
    assert!(open(folder.path()).servers().await.expect("the domains are listed").is_empty());
    assert!(file.exists());
}

#[tokio::test]
async fn failures_come_at_the_named_step_for_the_named_servers_and_then_stop() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let (step, guest) = (Step::Start, GuestLocation::Source);
    let failure = Failure { step, server_name: "bad*".into(), times: Some(1), guest };
    let plan = Plan::new(BTreeMap::new(), vec![failure]);
    let hypervisor = Simulated::open(folder.path().join("host"), plan).expect("opens");
    let (good, bad) = (definition("good"), definition("bad-1"));
    for one in [&good, &bad] {
        hypervisor.define(one).await.expect("the domain is defined");
    }
    hypervisor.start(good.server).await.expect("the failure is for another server");
    assert_eq!(
        hypervisor.start(bad.server).await.expect_err("the planned failure happens").step,
        Step::Start
    );
    hypervisor.start(bad.server).await.expect("the failure happens once");
    let missing =
        hypervisor.start(ServerId::new_v4()).await.expect_err("the domain does not exist");
    assert!(missing.message.contains("no domain"));
}

/// Runs each step twice, and compares the state after a restart.
#[tokio::test]
async fn states_survive_a_restart() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let one = definition("one");
    open(folder.path()).define(&one).await.expect("the domain is defined");
    type Do = fn(&Simulated, ServerId) -> crate::DriverFuture<'_, ()>;
    let steps: [(Do, DomainState); 9] = [
        (|h, s| h.start(s), DomainState::Running),
        (|h, s| h.pause(s), DomainState::Paused),
        (|h, s| h.unpause(s), DomainState::Running),
        (|h, s| h.suspend(s), DomainState::Saved),
        (|h, s| h.resume(s), DomainState::Running),
        (|h, s| h.pause(s), DomainState::Paused),
        (|h, s| h.suspend(s), DomainState::Saved),
        (|h, s| h.destroy(s), DomainState::Shutoff),
        (|h, s| h.start(s), DomainState::Running),
    ];
    for (step, state) in steps {
        for _ in 0..2 {
            let hypervisor = open(folder.path());
            step(&hypervisor, one.server).await.expect("the step succeeds");
            let found = hypervisor
                .domain(one.server)
                .await
                .expect("the lookup succeeds")
                .expect("the domain exists");
            assert_eq!(found.state, state);
        }
    }
    let hypervisor = open(folder.path());
    let console_output = hypervisor.console(one.server).await.expect("the console log is readable");
    assert_eq!(
        console_output.matches("simulated guest instance-00000001 starts").count(),
        2,
        "{console_output}"
    );
    assert!(console_output.contains("suspend: running -> suspended"), "{console_output}");
    let usage = hypervisor.usage(one.server).await.expect("the usage is read");
    assert_eq!((usage.state.as_str(), usage.memory_mb, usage.cpu_ns.len()), ("running", 64, 1));
    hypervisor.destroy(one.server).await.expect("the guest is destroyed");
    for refused in [hypervisor.resume(one.server), hypervisor.pause(one.server)] {
        assert!(
            refused.await.expect_err("the step is refused").message.contains("one is shutdown")
        );
    }
}

#[tokio::test]
async fn a_crash_during_suspend_leaves_the_guest_in_memory() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let one = definition("one");
    let hypervisor = open(folder.path());
    hypervisor.define(&one).await.expect("the domain is defined");
    hypervisor.start(one.server).await.expect("the guest is started");
    let saved = folder.path().join("host/saved").join(one.server.to_string());
    crate::write_atomically(&saved, b"").expect("the file is written");
    let found = open(folder.path())
        .domain(one.server)
        .await
        .expect("the lookup succeeds")
        .expect("the domain exists");
    assert_eq!(found.state, DomainState::Running);
    assert!(!saved.exists());
}

#[tokio::test]
async fn a_snapshot_names_the_disk_it_is_of() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let one = definition("one");
    let hypervisor = open(folder.path());
    hypervisor.define(&one).await.expect("the domain is defined");
    let file = folder.path().join("snapshots/disk");
    hypervisor.snapshot(one.server, file.clone()).await.expect("the snapshot is written");
    let disk = std::fs::read_to_string(file).expect("the file is read");
    assert!(disk.contains(&format!("server={}\nimage=none", one.server)), "{disk}");
}

#[tokio::test]
async fn a_migration_that_fails_after_arrival_keeps_the_guest_on_the_destination() {
    for (guest, left) in [
        (GuestLocation::Destination, DomainState::Shutoff),
        (GuestLocation::Both, DomainState::Paused),
    ] {
        for was in [DomainState::Running, DomainState::Paused] {
            let folder = tempfile::tempdir().expect("a temporary directory is created");
            let (step, times) = (Step::Migrate, None);
            let failure = Failure { step, server_name: "*".into(), times, guest };
            let plan = Plan::new(BTreeMap::new(), vec![failure]);
            let here = Simulated::open(folder.path().join("here"), plan).expect("opens");
            let there = Simulated::open(folder.path().join("there"), Plan::default());
            let (there, one) = (there.expect("opens"), definition("one"));
            here.define(&one).await.expect("the domain is defined");
            here.start(one.server).await.expect("the guest is started");
            if was == DomainState::Paused {
                here.pause(one.server).await.expect("the guest is paused");
            }
            let to = |host: &str| {
                let to = Peer { host: HostName::verbatim(host), address: String::new() };
                OutgoingMigration {
                    to,
                    devices: Vec::new(),
                    force: false,
                    volumes: Vec::new(),
                    numa: None,
                    interfaces: Vec::new(),
                }
            };
            for nobody in ["there", "..", "", "/"] {
                let refused = here
                    .migrate_out(one.server, &to(nobody))
                    .await
                    .expect_err("the migration fails");
                assert!(refused.message.contains("no incoming domain"), "{refused}");
            }
            there.define(&one).await.expect("the domain is defined");
            there.prepare_incoming(one.server).await.expect("the domain is incoming");
            let error = here
                .migrate_out(one.server, &to("there"))
                .await
                .expect_err("the planned failure happens");
            assert!(error.message.contains("simulated failure"), "{error}");
            for (host, state) in [(&here, left), (&there, was)] {
                let found = host
                    .domain(one.server)
                    .await
                    .expect("the lookup succeeds")
                    .expect("the domain exists");
                assert_eq!(found.state, state, "{guest:?}");
            }
            let again = Simulated::open(folder.path().join("there"), Plan::default());
            let found =
                again.expect("opens").domain(one.server).await.expect("the lookup succeeds");
            assert_eq!(found.expect("the domain exists").state, was);
        }
    }
}
