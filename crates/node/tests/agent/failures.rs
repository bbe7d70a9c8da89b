//! Failing steps, an unavailable controller, and fencing.

use kilonova_devices::{Mdev, create};
use kilonova_ids::{HostName, OperationId, ServerId};
use kilonova_node::Error;
use kilonova_node_api::{
    Attachment, Desired, Domain, NO_DISK_STEP, Outcome, Peer, Power, REBUILT_STEP, REMOVED_STEP,
    Verb, Volume,
};

use crate::agent::control::Control;
use crate::agent::crashing_host::Doom;
use crate::agent::host::{GPUS, Host, guest, present, uuids, vgpu};
use crate::agent::volumes::volume;

fn failed(outcome: Outcome) -> (String, String) {
    match outcome {
        Outcome::Failed { step, message } => (step, message),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_failed_build_is_rolled_back_and_can_be_retried() {
    for step in ["create_mdev", "image", "define", "start"] {
        let name = if step == "create_mdev" { "" } else { ", server_name = \"bad*\"" };
        let host = Host::new(&format!("fail = [{{ step = \"{step}\", times = 1{name} }}]"));
        let control = Control::new();
        let node = host.run(&control);
        let server = ServerId::new_v4();
        let domain = guest("bad-1", vec![vgpu(GPUS[0]), vgpu(GPUS[1])]);
        let (at, message) = failed(control.outcome(control.want(server, present(&domain))).await);
        assert_eq!(at, step);
        assert!(!message.is_empty());
        host.assert_empty(&format!("after a failure at {step}"));
        control.expect(control.want(server, present(&domain)), Outcome::Running).await;
        assert_eq!(node.mdevs(), uuids(&domain.config.devices));
        node.stop().await;
    }
}

#[tokio::test]
async fn a_guest_that_once_ran_survives_a_failing_step() {
    let host =
        Host::new("fail = [{ step = \"stop\", times = 1 }, { step = \"reboot\", times = 1 }]");
    let control = Control::new();
    let doom = Doom::new(None);
    let node = host.run_doomed(&control, &doom);
    let server = ServerId::new_v4();
    let mut domain = guest("db", vec![vgpu(GPUS[0])]);
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;

    domain.verb = Some((OperationId::new_v4(), Verb::RebootSoft));
    let steps = || std::mem::take(&mut *doom.log.lock().expect("the lock is not poisoned"));
    steps();
    for expected in [&["reboot", "destroy", "define", "start"][..], &[]] {
        control.expect(control.want(server, present(&domain)), Outcome::Running).await;
        assert_eq!(steps(), expected, "a refused reboot becomes a hard one, once");
    }

    domain.power = kilonova_node_api::Power::Off;
    let (step, _) = failed(control.outcome(control.want(server, present(&domain))).await);
    assert_eq!(step, "stop");
    assert!(node.domain(server).await.expect("the domain still exists").1);
    assert_eq!(node.mdevs(), uuids(&domain.config.devices));
    node.stop().await;
}

#[tokio::test]
async fn a_failed_deletion_is_retried() {
    let (host, control) = (Host::new("fail = [{ step = \"destroy\", times = 1 }]"), Control::new());
    let node = host.run(&control);
    let server = ServerId::new_v4();
    control
        .expect(control.want(server, present(&guest("db", vec![vgpu(GPUS[0])]))), Outcome::Running)
        .await;
    let generation = control.want(server, Desired::Absent);
    assert_eq!(failed(control.outcome(generation).await).0, "destroy");
    control.expect(generation, Outcome::Absent).await;
    node.stop().await;
    host.assert_empty("after the second attempt");
}

/// The database lost a deletion that the host has not carried out yet: the guest stays.
#[tokio::test]
async fn a_document_that_came_back_ends_the_removal() {
    let (host, control) = (Host::new("fail = [{ step = \"destroy\", times = 1 }]"), Control::new());
    let node = host.run(&control);
    let server = ServerId::new_v4();
    let desired = present(&guest("db", vec![vgpu(GPUS[0])]));
    let built = control.want(server, desired.clone());
    control.expect(built, Outcome::Running).await;
    let gone = control.want(server, Desired::Absent);
    assert_eq!(failed(control.outcome(gone).await).0, "destroy");
    control.go_back(server, built, desired);
    control.expect(built, Outcome::Running).await;
    // The removal would have been retried by now.
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    assert!(node.domain(server).await.expect("the domain exists").1, "the guest runs");
    assert!(control.with(|state| state.observations.iter().all(|one| one.generation != gone)));
    node.stop().await;
}

/// The database lost a deletion that the host has carried out: no empty guest takes the place of the removed one, even
/// after a restart of the agent. A later document may create the guest.
#[tokio::test]
async fn a_document_from_before_a_removal_creates_no_guest() {
    let (host, control) = (Host::new(""), Control::new());
    let node = host.run(&control);
    let server = ServerId::new_v4();
    let domain = guest("db", vec![vgpu(GPUS[0])]);
    let built = control.want(server, present(&domain));
    control.expect(built, Outcome::Running).await;
    control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
    node.stop().await;
    let from = Peer { host: HostName::verbatim("gpu2"), address: "192.0.2.2".into() };
    let moved = Domain { from: Some(from), ..domain.clone() };
    let off = Domain { power: Power::Off, existing: true, ..domain.clone() };
    let incoming = Domain { power: Power::Incoming, ..moved.clone() };
    control.go_back(server, built, present(&domain));
    let node = host.run(&control);
    for (which, earlier) in [&domain, &moved, &off, &incoming].into_iter().enumerate() {
        if which > 0 {
            control.go_back(server, built, present(earlier));
        }
        let (step, message) = failed(control.outcome(built).await);
        assert_eq!(step, REMOVED_STEP, "{which}: {message}");
        assert!(message.contains("has lost"), "{message}");
        host.assert_empty("after the refusal");
    }
    control.go_back(server, built, present(&Domain { power: Power::AsIs, ..domain.clone() }));
    control.expect(built, Outcome::Absent).await;
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    assert_eq!(node.mdevs(), uuids(&domain.config.devices));
    control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
    node.stop().await;
    host.assert_empty("after the deletion");
}

/// The guest after the rebuild of an operation.
fn rebuilt(domain: &Domain) -> Domain {
    let mut anew = domain.clone();
    anew.config.boot.rebuilt = Some(OperationId::new_v4());
    anew
}

/// A document of a later operation, which may have the number of a lost one.
fn later(control: &Control, server: ServerId, domain: &Domain) -> i64 {
    control.with(|state| state.generation += 100);
    control.want(server, present(domain))
}

/// The database lost rebuilds that the host has carried out: neither an earlier document nor a later one for an earlier
/// rebuild replaces the disks, even after a restart of the agent. A rebuild that the host has not seen does.
#[tokio::test]
async fn a_document_from_before_a_rebuild_keeps_the_disks() {
    let fails = "fail = [{ step = \"image\", times = 1, server_name = \"bad*\" }]";
    let (host, control) = (Host::new(fails), Control::new());
    let node = host.run(&control);
    let server = ServerId::new_v4();
    let domain = guest("db", vec![vgpu(GPUS[0])]);
    let built = control.want(server, present(&domain));
    control.expect(built, Outcome::Running).await;
    let first = rebuilt(&domain);
    control.expect(control.want(server, present(&first)), Outcome::Running).await;
    let mut bad = rebuilt(&domain);
    bad.config.display_name = "bad".into();
    assert_eq!(failed(control.outcome(control.want(server, present(&bad))).await).0, "image");
    let last = rebuilt(&domain);
    control.expect(control.want(server, present(&last)), Outcome::Running).await;
    node.stop().await;

    let doom = Doom::new(None);
    control.go_back(server, built, present(&domain));
    let node = host.run_doomed(&control, &doom);
    let off = Domain { power: Power::Off, existing: true, ..first.clone() };
    let verb = Some((OperationId::new_v4(), Verb::RebootHard));
    let reboot = Domain { verb, ..domain.clone() };
    for (which, earlier) in [&domain, &off, &bad, &reboot].into_iter().enumerate() {
        let generation = if which == 0 { built } else { later(&control, server, earlier) };
        let (step, message) = failed(control.outcome(generation).await);
        assert_eq!(step, REBUILT_STEP, "{which}: {message}");
        assert!(message.contains("has lost"), "{message}");
        let (is, runs) = node.domain(server).await.expect("the guest stays");
        assert!(runs, "{which}");
        assert_eq!(is.config.boot.rebuilt, last.config.boot.rebuilt, "{which}");
    }
    let steps = std::mem::take(&mut *doom.log.lock().expect("the lock is not poisoned"));
    assert_eq!(steps, Vec::<String>::new(), "nothing was done to the guest");
    let as_is = Domain { power: Power::AsIs, ..domain.clone() };
    control.expect(later(&control, server, &as_is), Outcome::Running).await;
    control.expect(later(&control, server, &last), Outcome::Running).await;
    for anew in [rebuilt(&domain), rebuilt(&domain)] {
        control.expect(later(&control, server, &anew), Outcome::Running).await;
        let (is, _) = node.domain(server).await.expect("the guest exists");
        assert_eq!(is.config.boot.rebuilt, anew.config.boot.rebuilt);
    }
    control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
    node.stop().await;
    host.assert_empty("after the deletion");
}

/// A guest may be rebuilt on another host and come back. The removal tells its documents apart; a later document for the
/// earlier rebuild is refused too.
#[tokio::test]
async fn a_document_from_before_a_rebuild_elsewhere_keeps_the_disks() {
    let (host, control) = (Host::new(""), Control::new());
    let node = host.run(&control);
    let server = ServerId::new_v4();
    let domain = guest("db", vec![vgpu(GPUS[0])]);
    let built = control.want(server, present(&domain));
    control.expect(built, Outcome::Running).await;
    control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
    let back = rebuilt(&domain);
    control.expect(control.want(server, present(&back)), Outcome::Running).await;
    control.go_back(server, built, present(&domain));
    assert_eq!(failed(control.outcome(built).await).0, REBUILT_STEP);
    let generation = later(&control, server, &domain);
    assert_eq!(failed(control.outcome(generation).await).0, REBUILT_STEP);
    let (is, _) = node.domain(server).await.expect("the guest stays");
    assert_eq!(is.config.boot.rebuilt, back.config.boot.rebuilt);
    // A removal makes the host forget nothing, and permits a guest with the disks of any rebuild.
    control.expect(later(&control, server, &back), Outcome::Running).await;
    control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
    node.stop().await;
    host.assert_empty("after the deletion");
}

/// After an unshelve, the value of the guest's disks is `None` again. A document with the rebuild from before the guest
/// was shelved does not replace these disks, whether it has its old generation or a later one.
#[tokio::test]
async fn a_document_from_before_an_unshelve_keeps_the_disks() {
    for early in [false, true] {
        let (host, control) = (Host::new(""), Control::new());
        let node = host.run(&control);
        let server = ServerId::new_v4();
        let domain = guest("db", vec![vgpu(GPUS[0])]);
        control.expect(control.want(server, present(&domain)), Outcome::Running).await;
        let first = rebuilt(&domain);
        let built = control.want(server, present(&first));
        control.expect(built, Outcome::Running).await;
        control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
        control.expect(control.want(server, present(&domain)), Outcome::Running).await;
        if !early {
            control.go_back(server, built, present(&first));
            assert_eq!(failed(control.outcome(built).await).0, REBUILT_STEP);
        }
        let generation = later(&control, server, &first);
        assert_eq!(failed(control.outcome(generation).await).0, REBUILT_STEP, "{early}");
        let (is, runs) = node.domain(server).await.expect("the guest stays");
        assert!(runs, "{early}");
        assert_eq!(is.config.boot.rebuilt, None, "{early}");
        control.expect(later(&control, server, &rebuilt(&domain)), Outcome::Running).await;
        control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
        node.stop().await;
        host.assert_empty("after the deletion");
    }
}

/// A guest with a root volume has no root disk that a document from before a rebuild could replace: it follows the document,
/// and keeps the rebuild. Such a document may also begin another rebuild, while the guest has no root volume.
#[tokio::test]
async fn a_guest_with_a_root_volume_follows_a_document_from_before_a_rebuild() {
    let (host, control) = (Host::new(""), Control::new());
    let node = host.run(&control);
    let server = ServerId::new_v4();
    let mut released = guest("db", vec![]);
    released.config.boot.root_gb = 0;
    let mut domain = released.clone();
    domain.config.volumes.push(Volume { boot_index: Some(0), ..volume("vda") });
    let built = control.want(server, present(&domain));
    control.expect(built, Outcome::Running).await;
    let last = rebuilt(&domain);
    control.expect(control.want(server, present(&last)), Outcome::Running).await;
    control.go_back(server, built, present(&domain));
    control.expect(built, Outcome::Running).await;
    let stopped = Domain { power: Power::Off, existing: true, ..domain.clone() };
    control.expect(later(&control, server, &stopped), Outcome::Stopped).await;
    control.expect(later(&control, server, &domain), Outcome::Running).await;
    let released = Domain { power: Power::Off, ..released };
    for _ in 0..2 {
        control.expect(later(&control, server, &released), Outcome::Stopped).await;
        let (is, _) = node.domain(server).await.expect("the guest stays");
        assert_eq!(is.config.boot.rebuilt, last.config.boot.rebuilt);
        assert!(is.config.volumes.is_empty());
    }
    let anew = rebuilt(&domain);
    control.expect(later(&control, server, &anew), Outcome::Running).await;
    let (is, _) = node.domain(server).await.expect("the guest exists");
    assert_eq!(is.config.boot.rebuilt, anew.config.boot.rebuilt);
    control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
    node.stop().await;
    host.assert_empty("after the deletion");
}

/// The disks are not replaced unless the rebuild is recorded.
#[tokio::test]
async fn a_rebuild_that_cannot_be_recorded_fails() {
    let (host, control) = (Host::new(""), Control::new());
    let doom = Doom::new(None);
    let node = host.run_doomed(&control, &doom);
    let server = ServerId::new_v4();
    let domain = guest("db", vec![]);
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    let in_the_way = host.folder("rebuilds").join("in the way");
    std::fs::create_dir_all(&in_the_way).expect("the directory is created");
    doom.log.lock().expect("the lock is not poisoned").clear();
    let anew = rebuilt(&domain);
    assert_eq!(failed(control.outcome(control.want(server, present(&anew))).await).0, "define");
    let steps = doom.log.lock().expect("the lock is not poisoned").clone();
    assert!(!steps.iter().any(|step| step == "image"), "{steps:?}");
    std::fs::remove_dir_all(host.folder("rebuilds")).expect("the directory is removed");
    control.expect(control.want(server, present(&anew)), Outcome::Running).await;
    node.stop().await;
}

/// The state directory of a host may be full. The agent then remembers a removal, and writes it with the next one.
#[tokio::test]
async fn a_removal_that_cannot_be_recorded_succeeds() {
    let (host, control) = (Host::new(""), Control::new());
    let node = host.run(&control);
    let server = ServerId::new_v4();
    let desired = present(&guest("db", vec![vgpu(GPUS[0])]));
    let built = control.want(server, desired.clone());
    control.expect(built, Outcome::Running).await;
    let in_the_way = host.folder("removed").join("in the way");
    std::fs::create_dir_all(&in_the_way).expect("the directory is created");
    control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
    control.go_back(server, built, desired.clone());
    assert_eq!(failed(control.outcome(built).await).0, REMOVED_STEP);
    std::fs::remove_dir_all(host.folder("removed")).expect("the directory is removed");
    let other = ServerId::new_v4();
    control.expect(control.want(other, desired), Outcome::Running).await;
    control.expect(control.want(other, Desired::Absent), Outcome::Absent).await;
    let text = std::fs::read_to_string(host.folder("removed")).expect("the file exists");
    for server in [server, other] {
        assert!(text.contains(&server.to_string()), "{text}");
    }
    node.stop().await;
    host.assert_empty("after the removals");
}

/// The rollback of a build is not a removal that a document has requested.
#[tokio::test]
async fn a_rollback_is_not_recorded_as_a_removal() {
    let (host, control) = (Host::new("fail = [{ step = \"start\", times = 1 }]"), Control::new());
    let node = host.run(&control);
    let generation = control.want(ServerId::new_v4(), present(&guest("db", vec![])));
    assert_eq!(failed(control.outcome(generation).await).0, "start");
    node.stop().await;
    assert!(!host.folder("removed").exists());
}

/// A guest whose disks should exist is not created empty, and is not rolled back if it fails.
#[tokio::test]
async fn an_existing_guest_is_neither_created_nor_rolled_back() {
    let (host, control) = (Host::new("fail = [{ step = \"start\", times = 1 }]"), Control::new());
    let node = host.run(&control);
    let server = ServerId::new_v4();
    let domain = guest("db", vec![vgpu(GPUS[0])]);
    let existing = Domain { existing: true, ..domain.clone() };
    let (step, message) = failed(control.outcome(control.want(server, present(&existing))).await);
    assert_eq!(step, NO_DISK_STEP, "{message}");
    assert!(message.contains("neither the guest nor its root disk"), "{message}");
    host.assert_empty("after the refusal");
    let from = Peer { host: HostName::verbatim("gpu2"), address: "192.0.2.2".into() };
    let moved = Domain { from: Some(from), ..existing.clone() };
    let (step, message) = failed(control.outcome(control.want(server, present(&moved))).await);
    assert_eq!(step, NO_DISK_STEP, "no host has the disks of a guest that has arrived: {message}");
    let off = Domain { power: Power::Off, ..domain };
    control.expect(control.want(server, present(&off)), Outcome::Stopped).await;
    let (step, _) = failed(control.outcome(control.want(server, present(&existing))).await);
    assert_eq!(step, "start");
    assert!(node.domain(server).await.is_some(), "the guest stays");
    control.expect(control.want(server, present(&existing)), Outcome::Running).await;
    node.stop().await;
}

/// A host that has lost the domain of a guest keeps its disks, whether or not the agent has its records: a document from
/// before their rebuild does not replace them. Another rebuild does, and is recorded.
#[tokio::test]
async fn a_document_from_before_a_rebuild_keeps_disks_without_a_domain() {
    for forgets in [false, true] {
        let (host, control, doom) = (Host::new(""), Control::new(), Doom::new(None));
        let node = host.run_doomed(&control, &doom);
        let server = ServerId::new_v4();
        let domain = guest("db", vec![]);
        let built = control.want(server, present(&domain));
        control.expect(built, Outcome::Running).await;
        let last = rebuilt(&domain);
        control.expect(control.want(server, present(&last)), Outcome::Running).await;
        node.stop().await;
        let disks = doom.disks_of(server).expect("the guest has disks");
        host.lose_domain(server);
        if forgets {
            std::fs::remove_dir_all(host.folder("notes")).expect("the directory is removed");
            std::fs::remove_file(host.folder("rebuilds")).expect("the file is removed");
        }
        control.go_back(server, built, present(&domain));
        let node = host.run_doomed(&control, &doom);
        let verb = Some((OperationId::new_v4(), Verb::RebootHard));
        let reboot = Domain { verb, ..domain.clone() };
        for (which, earlier) in [&domain, &reboot].into_iter().enumerate() {
            let generation = if which == 0 { built } else { later(&control, server, earlier) };
            let (step, message) = failed(control.outcome(generation).await);
            assert_eq!(step, REBUILT_STEP, "{which}: {message}");
            assert_eq!(doom.disks_of(server), Some(disks), "{which}");
        }
        control.expect(later(&control, server, &last), Outcome::Running).await;
        assert_eq!(doom.disks_of(server), Some(disks), "the guest has its disks again");
        node.stop().await;
        host.lose_domain(server);
        let anew = rebuilt(&domain);
        let generation = later(&control, server, &anew);
        let node = host.run_doomed(&control, &doom);
        control.expect(generation, Outcome::Running).await;
        let replaced = doom.disks_of(server).expect("the guest has disks");
        assert_eq!(replaced.rebuilt, anew.config.boot.rebuilt);
        let generation = later(&control, server, &last);
        assert_eq!(failed(control.outcome(generation).await).0, REBUILT_STEP);
        assert_eq!(doom.disks_of(server), Some(replaced));
        node.stop().await;
    }
}

/// The rollback of a failed start removes no disks that were on the host before, also if the agent has lost its note of
/// the guest.
#[tokio::test]
async fn a_failed_start_keeps_disks_without_a_domain_and_a_note() {
    let host = Host::new("fail = [{ step = \"start\", times = 1, server_name = \"bad*\" }]");
    let (control, doom) = (Control::new(), Doom::new(None));
    let node = host.run_doomed(&control, &doom);
    let server = ServerId::new_v4();
    let mut domain = guest("db", vec![]);
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    node.stop().await;
    let disks = doom.disks_of(server).expect("the guest has disks");
    host.lose_domain(server);
    std::fs::remove_dir_all(host.folder("notes")).expect("the directory is removed");
    domain.config.display_name = "bad".into();
    let generation = later(&control, server, &domain);
    let node = host.run_doomed(&control, &doom);
    assert_eq!(failed(control.outcome(generation).await).0, "start");
    assert_eq!(doom.disks_of(server), Some(disks));
    control.expect(later(&control, server, &domain), Outcome::Running).await;
    assert_eq!(doom.disks_of(server), Some(disks));
    node.stop().await;
}

/// Nor does the rollback of a failed fetch, or of a rebuild that fails before it replaces the disks.
#[tokio::test]
async fn a_failed_replacement_keeps_disks_without_a_domain_and_a_note() {
    let host = Host::new("fail = [{ step = \"image\", times = 1, server_name = \"bad*\" }]");
    let (control, doom) = (Control::new(), Doom::new(None));
    let server = ServerId::new_v4();
    let from = Peer { host: HostName::verbatim("gpu2"), address: "192.0.2.2".into() };
    let moved = Domain { from: Some(from), ..guest("db", vec![]) };
    let node = host.run_doomed(&control, &doom);
    control.expect(control.want(server, present(&moved)), Outcome::Running).await;
    node.stop().await;
    let disks = doom.disks_of(server).expect("the guest has disks");
    host.lose_domain(server);
    let mut again = moved.clone();
    again.config.display_name = "bad".into();
    let mut anew = rebuilt(&guest("db", vec![]));
    anew.config.devices = vec![Attachment::Pci { address: "0000:99:00.0".into() }];
    for (domain, wanted) in [(&again, "image"), (&anew, "define")] {
        std::fs::remove_dir_all(host.folder("notes")).expect("the directory is removed");
        let generation = later(&control, server, domain);
        let node = host.run_doomed(&control, &doom);
        let (step, message) = failed(control.outcome(generation).await);
        assert_eq!(step, wanted, "{message}");
        assert_eq!(doom.disks_of(server), Some(disks), "{wanted}");
        node.stop().await;
    }
}

/// A guest whose root disk is a volume follows a document from before a rebuild, but keeps its local disks, also if its
/// host has lost the domain. A new rebuild replaces them.
#[tokio::test]
async fn local_disks_beside_a_volume_are_kept_without_a_domain() {
    let (host, control, doom) = (Host::new(""), Control::new(), Doom::new(None));
    let server = ServerId::new_v4();
    let mut domain = guest("db", vec![]);
    domain.config.boot.root_gb = 0;
    let node = host.run_doomed(&control, &doom);
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    let last = rebuilt(&domain);
    control.expect(control.want(server, present(&last)), Outcome::Running).await;
    node.stop().await;
    let disks = doom.disks_of(server).expect("the guest has disks");
    host.lose_domain(server);
    let generation = later(&control, server, &domain);
    let node = host.run_doomed(&control, &doom);
    control.expect(generation, Outcome::Running).await;
    assert_eq!(doom.disks_of(server), Some(disks));
    node.stop().await;
    host.lose_domain(server);
    let anew = rebuilt(&domain);
    let generation = later(&control, server, &anew);
    let node = host.run_doomed(&control, &doom);
    control.expect(generation, Outcome::Running).await;
    let replaced = doom.disks_of(server).expect("the guest has disks");
    assert_eq!(replaced.rebuilt, anew.config.boot.rebuilt);
    node.stop().await;
}

/// A document that requires the disks of a rebuild does not replace earlier ones. A later document of the rebuild does.
#[tokio::test]
async fn disks_from_before_a_required_rebuild_are_kept() {
    let (host, control, doom) = (Host::new(""), Control::new(), Doom::new(None));
    let server = ServerId::new_v4();
    let domain = guest("db", vec![]);
    let node = host.run_doomed(&control, &doom);
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    node.stop().await;
    let disks = doom.disks_of(server).expect("the guest has disks");
    host.lose_domain(server);
    let anew = rebuilt(&domain);
    let required = Domain { existing: true, ..anew.clone() };
    let generation = later(&control, server, &required);
    let node = host.run_doomed(&control, &doom);
    let (step, message) = failed(control.outcome(generation).await);
    assert!(step == "define" && message.contains("from before the rebuild"), "{step}: {message}");
    assert_eq!(doom.disks_of(server), Some(disks));
    control.expect(later(&control, server, &anew), Outcome::Running).await;
    let replaced = doom.disks_of(server).expect("the guest has disks");
    assert_eq!(replaced.rebuilt, anew.config.boot.rebuilt);
    node.stop().await;
}

/// The other host of a move may still have the disks as they were before the move. They do not replace those that the
/// guest has used since, if its host has lost the domain.
#[tokio::test]
async fn disks_that_a_move_has_brought_are_not_fetched_again() {
    let (host, control, doom) = (Host::new(""), Control::new(), Doom::new(None));
    let server = ServerId::new_v4();
    let from = Peer { host: HostName::verbatim("gpu2"), address: "192.0.2.2".into() };
    let moved = Domain { from: Some(from), ..guest("db", vec![]) };
    let node = host.run_doomed(&control, &doom);
    let mut generation = control.want(server, present(&moved));
    control.expect(generation, Outcome::Running).await;
    node.stop().await;
    let disks = doom.disks_of(server).expect("the guest has disks");
    let off = Domain { power: Power::Off, existing: true, ..moved.clone() };
    let verb = Some((OperationId::new_v4(), Verb::RebootHard));
    let reboot = Domain { verb, ..moved.clone() };
    for (again, outcome) in [
        (None, Outcome::Running),
        (Some(&off), Outcome::Stopped),
        (Some(&reboot), Outcome::Running),
    ] {
        if host.folder("running").exists() {
            host.lose_domain(server);
        }
        if let Some(again) = again {
            generation = later(&control, server, again);
        }
        control.with(|state| state.observations.clear());
        let node = host.run_doomed(&control, &doom);
        control.expect(generation, outcome).await;
        assert_eq!(doom.disks_of(server), Some(disks));
        node.stop().await;
    }
    host.lose_domain(server);
    let incoming = Domain { power: Power::Incoming, ..moved };
    control.go_back(server, generation, present(&incoming));
    let node = host.run_doomed(&control, &doom);
    let (step, message) = failed(control.outcome(generation).await);
    assert!(step == "define" && message.contains("has lost"), "{step}: {message}");
    assert_eq!(doom.disks_of(server), Some(disks));
    node.stop().await;
}

/// A document creates a guest once. If its host then loses the guest and its disk, only a later document creates an
/// empty one.
#[tokio::test]
async fn a_document_that_was_carried_out_creates_no_empty_guest() {
    let (host, control) = (Host::new(""), Control::new());
    let node = host.run(&control);
    let server = ServerId::new_v4();
    let domain = guest("db", vec![]);
    let built = control.want(server, present(&domain));
    control.expect(built, Outcome::Running).await;
    node.stop().await;
    host.lose_domain(server);
    control.with(|state| state.observations.clear());
    let node = host.run(&control);
    let (step, message) = failed(control.outcome(built).await);
    assert_eq!(step, NO_DISK_STEP, "{message}");
    assert!(node.domain(server).await.is_none());
    let verb = Some((OperationId::new_v4(), Verb::RebootHard));
    let reboot = Domain { verb, ..domain };
    control.expect(control.want(server, present(&reboot)), Outcome::Running).await;
    node.stop().await;
}

#[tokio::test]
async fn a_foreign_device_is_never_used_or_removed() {
    let (host, control) = (Host::new(""), Control::new());
    let node = host.run(&control);
    let wanted = vgpu(GPUS[0]);
    let Attachment::Mdev { uuid, .. } = wanted else { panic!("an mdev") };
    let foreign = Mdev { uuid, parent: GPUS[1].into(), mdev_type: "nvidia-35".into() };
    create(&*node.parts.sysfs, &foreign).expect("the device is created");
    let generation = control.want(ServerId::new_v4(), present(&guest("db", vec![wanted])));
    let (step, message) = failed(control.outcome(generation).await);
    assert_eq!(step, "create_mdev");
    assert!(message.contains("already exists on 0000:85:00.0"), "{message}");
    assert_eq!(node.mdevs(), [uuid]);
    node.stop().await;
}

#[tokio::test]
async fn a_missing_function_fails_the_build() {
    let (host, control) = (Host::new(""), Control::new());
    let node = host.run(&control);
    let device = Attachment::Pci { address: "0000:99:00.0".into() };
    let generation = control.want(ServerId::new_v4(), present(&guest("db", vec![device])));
    let (step, message) = failed(control.outcome(generation).await);
    assert_eq!(step, "define");
    assert!(message.contains("0000:99:00.0"), "{message}");
    node.stop().await;
    host.assert_empty("after the failure");
}

#[tokio::test]
async fn newer_documents_overtake_older_ones() {
    let (host, control) = (Host::new("times_ms = { image = 1500 }"), Control::new());
    let doom = Doom::new(None);
    let node = host.run_doomed(&control, &doom);
    let server = ServerId::new_v4();
    let built = control.want(server, present(&guest("db", vec![vgpu(GPUS[0])])));
    tokio::time::timeout(std::time::Duration::from_secs(20), async {
        while !doom.log.lock().expect("the lock is not poisoned").iter().any(|step| step == "image")
        {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    })
    .await
    .expect("the build begins");
    let gone = control.want(server, Desired::Absent);
    control.expect(gone, Outcome::Absent).await;
    assert!(!doom.log.lock().expect("the lock is not poisoned").iter().any(|step| step == "start"));
    assert!(control.with(|state| state.observations.iter().all(|one| one.generation != built)));
    node.stop().await;
    host.assert_empty("after the deletion");
}

#[tokio::test]
async fn calls_to_an_unavailable_control_plane_are_retried() {
    let (host, control) = (Host::new(""), Control::new());
    control.with(|state| state.unavailable = 3);
    let node = host.run(&control);
    let generation = control.want(ServerId::new_v4(), present(&guest("db", vec![vgpu(GPUS[0])])));
    control.expect(generation, Outcome::Running).await;
    control.with(|state| state.unavailable = 4);
    let generation = control.want(ServerId::new_v4(), present(&guest("db2", vec![vgpu(GPUS[0])])));
    control.expect(generation, Outcome::Running).await;
    node.stop().await;
}

#[tokio::test]
async fn a_fenced_agent_stops() {
    let (host, control) = (Host::new(""), Control::new());
    let node = host.run(&control);
    control.until("registration", |state| state.registrations.first().map(|_| ())).await;
    control.fence();
    let error = node.ended().await.expect_err("the agent is fenced");
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
}

#[tokio::test]
async fn a_rejected_agent_reports_the_reason() {
    let (host, control) = (Host::new(""), Control::new());
    control.with(|state| state.rejected = Some("the host is unknown".into()));
    let error = host.run(&control).ended().await.expect_err("the host is rejected").to_string();
    assert_eq!(error, "host gpu1: the controller refused it: the host is unknown");
}

const EIO: i32 = 5;
const EBUSY: i32 = 16;
const ENOSPC: i32 = 28;

#[tokio::test]
async fn devices_created_before_a_failure_are_removed() {
    for error in [EIO, EBUSY, ENOSPC] {
        let (host, control) = (Host::new(""), Control::new());
        let node = host.run_refusing(&control, vec![("/create", 2, error)]);
        let server = ServerId::new_v4();
        let domain = guest("db", vec![vgpu(GPUS[0]), vgpu(GPUS[1]), vgpu(GPUS[1])]);
        let (step, message) = failed(control.outcome(control.want(server, present(&domain))).await);
        assert_eq!(step, "create_mdev");
        assert!(message.contains("cannot create mediated device"), "{message}");
        assert!(message.contains(&format!("os error {error}")), "{message}");
        host.assert_empty("after the last of three devices failed");
        control.expect(control.want(server, present(&domain)), Outcome::Running).await;
        assert_eq!(node.mdevs(), uuids(&domain.config.devices));
        node.stop().await;
    }
}

#[tokio::test]
async fn a_device_in_use_delays_the_deletion() {
    let (host, control) = (Host::new(""), Control::new());
    let node = host.run_refusing(&control, vec![("/remove", 1, EBUSY)]);
    let server = ServerId::new_v4();
    let domain = guest("db", vec![vgpu(GPUS[0]), vgpu(GPUS[1])]);
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    let generation = control.want(server, Desired::Absent);
    let (step, message) = failed(control.outcome(generation).await);
    assert_eq!(step, "destroy");
    assert!(message.contains("cannot remove mediated device"), "{message}");
    assert_eq!(node.mdevs().len(), 1, "one device is removed, the other is in use");
    control.expect(generation, Outcome::Absent).await;
    node.stop().await;
    host.assert_empty("after the second attempt");
}

#[tokio::test]
async fn an_unwritable_state_directory_fails_builds_only() {
    let (host, control) = (Host::new(""), Control::new());
    let node = host.run(&control);
    let old = ServerId::new_v4();
    let kept = guest("old", vec![vgpu(GPUS[0])]);
    let generation = control.want(old, present(&kept));
    control.expect(generation, Outcome::Running).await;
    for folder in ["notes", "mdevs", "domains"] {
        let (full, there) = (host.folder(folder), host.folder(&format!("{folder}-aside")));
        std::fs::rename(&full, &there).expect("the file is renamed");
        std::fs::write(&full, "no folder").expect("the file is written");
        let server = ServerId::new_v4();
        let domain = guest("new", vec![vgpu(GPUS[0])]);
        let (step, message) = failed(control.outcome(control.want(server, present(&domain))).await);
        let expected = if folder == "mdevs" { "create_mdev" } else { "define" };
        assert_eq!((step.as_str(), message.is_empty()), (expected, false), "{folder}");
        std::fs::remove_file(&full).expect("the file is removed");
        std::fs::rename(&there, &full).expect("the file is renamed");
        control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
        assert_eq!(node.mdevs(), uuids(&kept.config.devices), "{folder}");
        assert_eq!((host.files("notes").len(), host.files("domains").len()), (1, 1), "{folder}");
    }
    assert!(node.domain(old).await.expect("the domain still exists").1);
    node.stop().await;
}

#[tokio::test]
async fn a_failed_redefinition_of_a_removed_domain_keeps_its_devices() {
    let host = Host::new("");
    let control = Control::new();
    let node = host.run(&control);
    let server = ServerId::new_v4();
    let mut domain = guest("db", vec![vgpu(GPUS[0])]);
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    node.parts.hypervisor.destroy(server).await.expect("the guest is destroyed");
    node.parts.hypervisor.undefine(server).await.expect(
        "the domain is undefined outside the \
        agent",
    );
    node.stop().await;

    let node = host.run_refusing(&control, Vec::new());
    let moved = host.folder("domains-aside");
    std::fs::rename(host.folder("domains"), &moved).expect("the file is renamed");
    std::fs::write(host.folder("domains"), "no folder").expect("the file is written");
    domain.config.vcpus = 2;
    assert_eq!(failed(control.outcome(control.want(server, present(&domain))).await).0, "define");
    assert_eq!(
        node.mdevs(),
        uuids(&domain.config.devices),
        "a guest that was built is not rolled back"
    );
    std::fs::remove_file(host.folder("domains")).expect("the file is removed");
    std::fs::rename(&moved, host.folder("domains")).expect("the file is renamed");
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    node.stop().await;
}
