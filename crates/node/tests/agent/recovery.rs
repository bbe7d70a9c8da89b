//! The treatment of existing state by a starting agent.

use kilonova_devices::{Mdev, create};
use kilonova_ids::{ImageId, OperationId, ServerId};
use kilonova_node_api::{
    Desired, Domain, GuestVerb, HandleSlot, Observation, Outcome, Power, Registration, Verb,
};
use uuid::Uuid;

use crate::agent::control::Control;
use crate::agent::crashing_host::{Death, Doom};
use crate::agent::host::{GPUS, Host, guest, present, uuids, vgpu};

fn count(registration: &Registration, gpu: &str) -> u32 {
    let device = registration
        .devices
        .iter()
        .find(|device| device.address == gpu)
        .expect("the device is registered");
    match device.deployables[0].slots[..] {
        [HandleSlot::Mdev { count, .. }] => count,
        _ => panic!("{device:?}"),
    }
}

#[tokio::test]
async fn satisfied_documents_are_reported_without_changes() {
    let (host, control) = (Host::new(""), Control::new());
    let node = host.run(&control);
    let server = ServerId::new_v4();
    let mut domain = guest("db", vec![vgpu(GPUS[0])]);
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    domain.verb = Some((OperationId::new_v4(), Verb::RebootSoft));
    let generation = control.want(server, present(&domain));
    control.expect(generation, Outcome::Running).await;
    node.stop().await;

    control.with(|state| state.observations.clear());
    let doom = Doom::new(None);
    let node = host.run_doomed(&control, &doom);
    control.expect(generation, Outcome::Running).await;
    node.stop().await;
    assert_eq!(*doom.log.lock().expect("the lock is not poisoned"), Vec::<String>::new());
    let registrations = control.registrations();
    assert_eq!(registrations.len(), 2);
    assert_eq!(count(&registrations[1], GPUS[0]), 4, "devices in use are counted");
}

#[tokio::test]
async fn the_machine_type_of_a_guest_is_reported() {
    let (host, control) = (Host::new(""), Control::new());
    let file = host.folder("machine_type");
    std::fs::create_dir_all(host.folder("")).expect("the directory is created");
    std::fs::write(&file, "pc-q35-6.2\n").expect("the file is written");
    let reported = async |generation, outcome| {
        control.expect(generation, outcome).await;
        let types = control.with(|state| {
            let of = state.observations.iter().filter(|one| one.generation == generation);
            of.map(|one| one.machine_type.clone()).collect::<Vec<_>>()
        });
        types.into_iter().flatten().collect::<Vec<_>>()
    };
    let node = host.run(&control);
    let server = ServerId::new_v4();
    let domain = guest("db", vec![]);
    let generation = control.want(server, present(&domain));
    assert_eq!(reported(generation, Outcome::Running).await, ["pc-q35-6.2"]);
    let off = Domain { power: Power::Off, ..domain.clone() };
    let generation = control.want(server, present(&off));
    assert_eq!(reported(generation, Outcome::Stopped).await, ["pc-q35-6.2"]);
    node.stop().await;

    // The host's type is for new guests.
    std::fs::write(&file, "pc-q35-9.0\n").expect("the file is written");
    control.with(|state| state.observations.clear());
    let node = host.run(&control);
    assert_eq!(reported(generation, Outcome::Stopped).await, ["pc-q35-6.2"]);

    // A guest from another host keeps the type that it had there; one that is here keeps its own.
    let kept = Some("pc-i440fx-7.2".to_owned());
    let moved = Domain { kept_machine_type: kept.clone(), ..guest("moved", vec![]) };
    let generation = control.want(ServerId::new_v4(), present(&moved));
    assert_eq!(reported(generation, Outcome::Running).await, ["pc-i440fx-7.2"]);
    let renamed = Domain { kept_machine_type: kept, ..guest("renamed", vec![]) };
    let generation = control.want(server, present(&renamed));
    assert_eq!(reported(generation, Outcome::Running).await, ["pc-q35-6.2"]);
    node.stop().await;
}

#[tokio::test]
async fn disk_copies_without_a_document_are_removed() {
    let (host, control) = (Host::new(""), Control::new());
    let node = host.run(&control);
    let server = ServerId::new_v4();
    let mut domain = guest("db", vec![]);
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    node.stop().await;

    let (asked, forgotten) = (ImageId::new_v4(), ImageId::new_v4());
    std::fs::create_dir_all(host.folder("snapshots")).expect("the directory is created");
    for image in [asked, forgotten] {
        std::fs::write(host.folder("snapshots").join(image.to_string()), b"half")
            .expect("the file is written");
    }
    let node = host.run(&control);
    let other = control.want(ServerId::new_v4(), present(&guest("new", vec![])));
    control.expect(other, Outcome::Running).await;
    assert_eq!(host.files("snapshots"), Vec::<String>::new());
    node.stop().await;

    std::fs::write(host.folder("snapshots").join(asked.to_string()), b"half")
        .expect("the file is written");
    domain.verb = Some((OperationId::new_v4(), Verb::Snapshot { image: asked }));
    let generation = control.want(server, present(&domain));
    let node = host.run(&control);
    control.expect(generation, Outcome::Running).await;
    assert_eq!(host.files("snapshots"), Vec::<String>::new(), "uploaded, then removed");
    node.stop().await;
}

#[tokio::test]
async fn domains_without_a_document_stay_and_their_devices_are_not_offered() {
    let (host, control) = (Host::new(""), Control::new());
    let node = host.run(&control);
    let server = ServerId::new_v4();
    let domain = guest("lost", vec![vgpu(GPUS[0])]);
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    node.stop().await;

    let control = Control::new();
    let node = host.run(&control);
    let second =
        control.until("second registration", |state| state.registrations.get(1).cloned()).await;
    assert_eq!(count(&second, GPUS[0]), 3);
    let (_, running) = node.domain(server).await.expect("the domain still exists");
    assert!(running);
    let stray = Observation::new(server, 0, Outcome::Running);
    control
        .until("report of the stray", |state| state.observations.contains(&stray).then_some(()))
        .await;
    assert_eq!(node.mdevs(), uuids(&domain.config.devices));

    let other = control.want(ServerId::new_v4(), present(&guest("new", vec![vgpu(GPUS[0])])));
    control.expect(other, Outcome::Running).await;
    control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
    assert!(node.domain(server).await.is_none());
    assert_eq!(node.mdevs().len(), 1, "only the new guest's device remains");
    node.stop().await;
}

#[tokio::test]
async fn what_a_document_that_is_held_back_describes_stays_as_it_is() {
    let (host, control) = (Host::new(""), Control::new());
    let node = host.run(&control);
    let (server, halted) = (ServerId::new_v4(), ServerId::new_v4());
    let domain = guest("held", vec![vgpu(GPUS[0])]);
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    node.stop().await;
    // The agent stopped before it defined the other guest.
    let volume = crate::agent::volumes::volume("vdb");
    let records = kilonova_node::VolumeRecords::open(host.folder("volumes"));
    records.expect("the directory is readable").put(halted, &volume).expect("the file is written");

    let control = Control::new();
    control.with(|state| state.held = vec![server, halted]);
    let node = host.run(&control);
    let other = control.want(ServerId::new_v4(), present(&guest("new", vec![])));
    control.expect(other, Outcome::Running).await;
    let last = control.registrations().pop().expect("the host has registered");
    assert_eq!(count(&last, GPUS[0]), 4, "the guest's device is counted");
    let about = |one: &Observation| one.server == server;
    assert!(
        !control.with(|state| state.observations.iter().any(about)),
        "the held-back server is not reported as a stray"
    );
    assert_eq!(host.files("volumes").len(), 1, "{:?}", host.files("volumes"));
    assert_eq!(node.mdevs(), uuids(&domain.config.devices));
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    control.expect(control.want(halted, Desired::Absent), Outcome::Absent).await;
    assert_eq!(host.files("volumes"), [""; 0]);
    node.stop().await;
}

#[tokio::test]
async fn servers_deleted_during_downtime_are_removed_at_start() {
    let host = Host::new("max_concurrent_builds = 1");
    let control = Control::new();
    let node = host.run(&control);
    let servers: Vec<ServerId> = (0..4).map(|_| ServerId::new_v4()).collect();
    for server in &servers {
        let domain = guest("old", vec![vgpu(GPUS[0])]);
        control.expect(control.want(*server, present(&domain)), Outcome::Running).await;
    }
    node.stop().await;

    let new = control.want(ServerId::new_v4(), present(&guest("new", vec![vgpu(GPUS[0])])));
    let gone: Vec<i64> =
        servers.iter().map(|server| control.want(*server, Desired::Absent)).collect();
    let node = host.run(&control);
    for generation in gone {
        control.expect(generation, Outcome::Absent).await;
    }
    control.expect(new, Outcome::Running).await;
    assert_eq!(node.mdevs().len(), 1, "the full GPU was cleared before the new guest was created");
    let failed = control.with(|state| {
        state.observations.iter().any(|one| matches!(one.outcome, Outcome::Failed { .. }))
    });
    assert!(!failed);
    node.stop().await;
}

#[tokio::test]
async fn our_unused_devices_are_removed_and_foreign_ones_stay() {
    let (host, control) = (Host::new(""), Control::new());
    let doom = Doom::new(Some(Death { step: 1, after: false }));
    let node = host.run_doomed(&control, &doom);
    let server = ServerId::new_v4();
    control.want(server, present(&guest("half", vec![vgpu(GPUS[0])])));
    doom.died().await;
    node.kill().await;
    doom.bury();
    assert_eq!(host.files("mdevs").len(), 1, "the device was created before the crash");

    let foreign = Uuid::new_v4();
    let parts = host.parts();
    create(
        &*parts.sysfs,
        &Mdev { uuid: foreign, parent: GPUS[1].into(), mdev_type: "nvidia-35".into() },
    )
    .expect("the device is created");

    let control = Control::new();
    let node = host.run(&control);
    let generation = control.want(ServerId::new_v4(), present(&guest("new", vec![vgpu(GPUS[0])])));
    control.expect(generation, Outcome::Running).await;
    assert_eq!(node.mdevs().len(), 2, "the foreign device and the new one");
    assert!(node.mdevs().contains(&foreign));
    let first = control.registrations().remove(0);
    assert_eq!((count(&first, GPUS[0]), count(&first, GPUS[1])), (4, 3));
    node.stop().await;
}

#[tokio::test]
async fn a_vanished_device_is_recreated() {
    let (host, control) = (Host::new(""), Control::new());
    let node = host.run(&control);
    let server = ServerId::new_v4();
    let domain = guest("db", vec![vgpu(GPUS[0])]);
    let generation = control.want(server, present(&domain));
    control.expect(generation, Outcome::Running).await;
    node.stop().await;
    for uuid in uuids(&domain.config.devices) {
        kilonova_devices::remove(&*host.parts().sysfs, uuid).expect("the device is removed");
    }
    control.with(|state| state.observations.clear());
    let node = host.run(&control);
    control.expect(generation, Outcome::Running).await;
    assert_eq!(node.mdevs(), uuids(&domain.config.devices));
    node.stop().await;
}

/// A power cut: guests stop and mediated devices disappear, but domain files remain. The agent
/// recreates the devices; the controller decides whether the guest starts again.
#[tokio::test]
async fn after_a_power_cut_devices_are_recreated_and_guests_reported() {
    let (host, control) = (Host::new(""), Control::new());
    let node = host.run(&control);
    let server = ServerId::new_v4();
    let domain = guest("db", vec![vgpu(GPUS[0])]);
    let generation = control.want(server, present(&domain));
    control.expect(generation, Outcome::Running).await;
    node.stop().await;
    for folder in ["running", "mdevs"] {
        for file in host.files(folder) {
            std::fs::remove_file(host.folder(folder).join(file)).expect("the file is removed");
        }
    }
    let node = host.run(&control);
    let stopped = Observation::new(server, generation, Outcome::Stopped);
    let found = Observation { at_start: true, volumes: Some(Vec::new()), ..stopped };
    control
        .until("a guest that is off", |state| state.observations.contains(&found).then_some(()))
        .await;
    assert_eq!(node.mdevs(), uuids(&domain.config.devices));
    assert!(!node.domain(server).await.expect("the domain is defined").1);
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    node.stop().await;
}

#[tokio::test]
async fn a_guest_that_stops_by_itself_is_reported_and_left_alone() {
    let (host, control) = (Host::new(""), Control::new());
    let every = Some(std::time::Duration::from_millis(10));
    let node = host.run_syncing(&control, every);
    let server = ServerId::new_v4();
    let domain = guest("db", vec![vgpu(GPUS[0])]);
    let generation = control.want(server, present(&domain));
    control.expect(generation, Outcome::Running).await;
    node.parts.hypervisor.stop(server).await.expect("the guest stops");
    control.expect(generation, Outcome::Stopped).await;
    assert!(!node.domain(server).await.expect("the domain is defined").1);
    let first = |one: &Observation| one.at_start;
    assert!(!control.with(|state| state.observations.iter().any(first)));
    node.stop().await;
}

#[tokio::test]
async fn an_event_of_the_hypervisor_is_reported_at_once() {
    let (host, control) = (Host::new(""), Control::new());
    let doom = Doom::new(None);
    let node = host.run_doomed(&control, &doom);
    let server = ServerId::new_v4();
    let domain = guest("db", vec![vgpu(GPUS[0])]);
    let generation = control.want(server, present(&domain));
    control.expect(generation, Outcome::Running).await;
    doom.tell(server);
    doom.tell(ServerId::new_v4());
    node.parts.hypervisor.stop(server).await.expect("the guest stops");
    let started = std::time::Instant::now();
    doom.tell(server);
    control.expect(generation, Outcome::Stopped).await;
    assert!(
        started.elapsed() < std::time::Duration::from_secs(60),
        "the event is reported before the periodic check"
    );
    node.stop().await;
}

/// Crashes between noting a failed verb and reporting it.
#[tokio::test]
async fn a_failed_verb_stays_failed_after_a_crash() {
    let host = Host::new("fail = [{ step = \"crash_dump\", times = 1 }]");
    let control = Control::new();
    let node = host.run(&control);
    let server = ServerId::new_v4();
    let mut domain = guest("db", vec![vgpu(GPUS[0])]);
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    domain.verb = Some((OperationId::new_v4(), Verb::Guest(GuestVerb::CrashDump)));
    let generation = control.want(server, present(&domain));
    let failed = control.outcome(generation).await;
    assert!(matches!(failed, Outcome::Failed { .. }), "{failed:?}");
    node.kill().await;
    control.with(|state| state.observations.clear());
    let node = host.run(&control);
    assert_eq!(control.outcome(generation).await, failed, "the failure is reported again");
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    node.stop().await;
}
