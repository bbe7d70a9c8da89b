//! Volumes of guests: connected, attached, reported, and disconnected, and what happens when that fails.

use kilonova_ids::{AttachmentId, OperationId, ServerId, VolumeId};
use kilonova_node_api::{
    Desired, Domain, Observation, Outcome, Power, Verb, Volume, VolumeState, VolumeStatus,
};
use serde_json::json;

use crate::agent::control::Control;
use crate::agent::crashing_host::Death;
use crate::agent::deaths::{at_every_step, live_through};
use crate::agent::host::{Host, Running, guest, present};

pub fn volume(device: &str) -> Volume {
    serde_json::from_value(json!({
        "volume_id": VolumeId::new_v4(), "attachment_id": AttachmentId::new_v4(),
        "device": device, "bus": "virtio", "size_gb": 1,
        "connection": {
            "protocol": "iscsi",
            "paths": [{"portal": "192.0.2.9:3260", "iqn": "iqn.2010-10.org:v", "lun": 1}],
            "chap": {"user": "me", "password": "open sesame"},
        },
    }))
    .expect("the volume is readable")
}

fn with(volumes: &[Volume]) -> Domain {
    let mut domain = guest("db", Vec::new());
    domain.config.volumes = volumes.to_vec();
    domain
}

/// The final observation of a generation.
async fn observed(control: &Control, generation: i64) -> Observation {
    control
        .until("an observation", |state| {
            let of = |one: &&Observation| {
                one.generation == generation && !matches!(one.outcome, Outcome::Working { .. })
            };
            state.observations.iter().rev().find(of).cloned()
        })
        .await
}

/// Attachments with their states: `attached vdb`, `failed: why`, `held vdb: why`.
fn states(observation: &Observation) -> Vec<(AttachmentId, String)> {
    let text = |state: &VolumeState| match &state.status {
        VolumeStatus::Attached { device, .. } => format!("attached {device}"),
        VolumeStatus::Failed { reason } => format!("failed: {reason}"),
        VolumeStatus::Held { device, reason } => format!("held {device}: {reason}"),
    };
    let all = observation.volumes.as_ref().expect("the observation has volumes");
    all.iter().map(|one| (one.attachment_id.expect("the attachment is known"), text(one))).collect()
}

fn connected(host: &Host) -> Vec<String> {
    let mut files = host.files("volumes");
    files.sort();
    files
}

fn ids(volumes: &[&Volume]) -> Vec<String> {
    let mut ids: Vec<String> = volumes.iter().map(|one| one.attachment_id.to_string()).collect();
    ids.sort();
    ids
}

#[tokio::test]
async fn volumes_come_and_go_with_the_document() {
    let (host, control) = (Host::new(""), Control::new());
    let running = host.run(&control);
    let server = ServerId::new_v4();
    let (first, second) = (volume("vdb"), volume("vdc"));
    let attached = |one: &Volume| (one.attachment_id, format!("attached {}", one.device));

    let generation = control.want(server, present(&with(std::slice::from_ref(&first))));
    let seen = observed(&control, generation).await;
    assert_eq!((&seen.outcome, states(&seen)), (&Outcome::Running, vec![attached(&first)]));
    assert_eq!(connected(&host), ids(&[&first]));
    let (definition, _) = running.domain(server).await.expect("the domain is defined");
    assert_eq!(definition.config.volumes, [first.without_secrets()]);
    let file = host.folder("volumes").join(first.attachment_id.to_string());
    for file in [file, host.folder("domains").join(format!("{server}.xml"))] {
        let text = std::fs::read_to_string(&file).expect("the file exists");
        assert!(!text.contains("sesame"), "{text}");
    }

    let both = with(&[first.clone(), second.clone()]);
    let seen = observed(&control, control.want(server, present(&both))).await;
    assert_eq!(states(&seen), [attached(&first), attached(&second)]);
    assert_eq!(connected(&host), ids(&[&first, &second]));
    let off = Domain { power: Power::Off, ..both };
    let seen = observed(&control, control.want(server, present(&off))).await;
    assert_eq!(seen.outcome, Outcome::Stopped);
    assert_eq!(states(&seen).len(), 2, "a guest that is shut off keeps its volumes");
    let mut last = off.clone();
    last.config.volumes = vec![second.clone()];
    let seen = observed(&control, control.want(server, present(&last))).await;
    assert_eq!(states(&seen), [attached(&second)]);
    assert_eq!(connected(&host), ids(&[&second]));

    // The same volume with another attachment, as after a move back.
    let moved = Volume { attachment_id: AttachmentId::new_v4(), ..second };
    last.config.volumes = vec![moved.clone()];
    let seen = observed(&control, control.want(server, present(&last))).await;
    assert_eq!(states(&seen), [attached(&moved)]);
    assert_eq!(connected(&host), ids(&[&moved]));
    let seen = observed(&control, control.want(server, present(&with(&[])))).await;
    assert_eq!((states(&seen), connected(&host)), (Vec::new(), Vec::new()));

    control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
    running.stop().await;
    host.assert_empty("at the end");
}

#[tokio::test]
async fn a_volume_that_fails_leaves_the_running_guest_alone() {
    let (host, control) = (Host::new(""), Control::new());
    let running = host.run(&control);
    let server = ServerId::new_v4();
    let (good, bad) = (volume("vdb"), volume("vdc"));
    let fault = host.folder("volume_fault");
    let generation = control.want(server, present(&with(std::slice::from_ref(&good))));
    control.expect(generation, Outcome::Running).await;

    std::fs::write(&fault, "no path to the target\n").expect("the file is written");
    let both = present(&with(&[good.clone(), bad.clone()]));
    let seen = observed(&control, control.want(server, both.clone())).await;
    let why = format!("failed: volume {}: no path to the target", bad.volume_id);
    let attached = (good.attachment_id, "attached vdb".to_owned());
    assert_eq!(seen.outcome, Outcome::Running);
    assert_eq!(
        states(&seen),
        [attached.clone(), (bad.attachment_id, why)],
        "the guest keeps the volume that it has"
    );
    assert_eq!(connected(&host), ids(&[&good]), "the other volume is disconnected");

    // The next agent retries, because the document still names the volume.
    running.stop().await;
    std::fs::remove_file(&fault).expect("the file exists");
    let before = control.with(|state| state.observations.len());
    let running = host.run(&control);
    let seen = control
        .until("another observation", |state| state.observations.get(before..)?.last().cloned())
        .await;
    assert_eq!(states(&seen), [attached, (bad.attachment_id, "attached vdc".to_owned())]);

    // A guest that must start does not start without a volume.
    let off = |volumes: &[Volume]| present(&Domain { power: Power::Off, ..with(volumes) });
    control.expect(control.want(server, off(std::slice::from_ref(&good))), Outcome::Stopped).await;
    std::fs::write(&fault, "no path to the target\n").expect("the file is written");
    let seen = observed(&control, control.want(server, off(&[good.clone(), bad.clone()]))).await;
    assert_eq!((&seen.outcome, states(&seen).len()), (&Outcome::Stopped, 2));
    let failed = |id: VolumeId| Outcome::Failed {
        step: "volume".into(),
        message: format!("volume {id}: no path to the target"),
    };
    control.expect(control.want(server, both.clone()), failed(good.volume_id)).await;
    let fresh = volume("vda");
    let other = ServerId::new_v4();
    let generation = control.want(other, present(&with(std::slice::from_ref(&fresh))));
    control.expect(generation, failed(fresh.volume_id)).await;
    assert!(running.domain(other).await.is_none(), "a failed build is rolled back");
    assert!(!connected(&host).contains(&fresh.attachment_id.to_string()));
    std::fs::remove_file(&fault).expect("the file exists");
    control.expect(control.want(server, both), Outcome::Running).await;
    for server in [server, other] {
        control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
    }
    running.stop().await;
    host.assert_empty("at the end");
}

#[tokio::test]
async fn a_volume_that_the_guest_does_not_release_stays() {
    let (host, control) = (Host::new(""), Control::new());
    let running = host.run(&control);
    let server = ServerId::new_v4();
    let one = volume("vdb");
    let attached = present(&with(std::slice::from_ref(&one)));
    control.expect(control.want(server, attached.clone()), Outcome::Running).await;
    let held = host.folder("volume_held");
    std::fs::write(&held, "the guest is busy\n").expect("the file is written");
    let seen = observed(&control, control.want(server, present(&with(&[])))).await;
    assert_eq!(seen.outcome, Outcome::Running);
    assert_eq!(states(&seen), [(one.attachment_id, "held vdb: the guest is busy".to_owned())]);
    assert_eq!(connected(&host), ids(&[&one]));
    std::fs::remove_file(&held).expect("the file exists");
    let seen = observed(&control, control.want(server, attached)).await;
    assert_eq!(states(&seen), [(one.attachment_id, "attached vdb".to_owned())]);
    control.expect(control.want(server, present(&with(&[]))), Outcome::Running).await;
    assert_eq!(connected(&host), Vec::<String>::new());
    running.stop().await;
}

/// A guest that hangs is shut off without waiting for the volumes that it does not release.
#[tokio::test]
async fn a_guest_that_is_shut_off_is_not_asked_for_its_volumes() {
    let (host, control) = (Host::new(""), Control::new());
    let running = host.run(&control);
    let server = ServerId::new_v4();
    let (old, new) = (volume("vdb"), volume("vdc"));
    let attached = present(&with(std::slice::from_ref(&old)));
    control.expect(control.want(server, attached), Outcome::Running).await;
    std::fs::write(host.folder("volume_held"), "the guest is busy\n").expect("a file is written");
    let off = Domain { power: Power::Off, ..with(std::slice::from_ref(&new)) };
    let seen = observed(&control, control.want(server, present(&off))).await;
    assert_eq!(seen.outcome, Outcome::Stopped);
    assert_eq!(states(&seen), [(new.attachment_id, "attached vdc".to_owned())]);
    assert_eq!(connected(&host), ids(&[&new]));
    running.stop().await;
}

#[tokio::test]
async fn a_hard_reboot_connects_anew() {
    let (host, control) = (Host::new(""), Control::new());
    let running = host.run(&control);
    let server = ServerId::new_v4();
    let old = volume("vdb");
    let generation = control.want(server, present(&with(std::slice::from_ref(&old))));
    control.expect(generation, Outcome::Running).await;
    let new = Volume { attachment_id: AttachmentId::new_v4(), ..old };
    let mut domain = with(std::slice::from_ref(&new));
    domain.verb = Some((OperationId::new_v4(), Verb::RebootHard));
    let seen = observed(&control, control.want(server, present(&domain))).await;
    assert_eq!(states(&seen), [(new.attachment_id, "attached vdb".to_owned())]);
    assert_eq!(connected(&host), ids(&[&new]));
    running.stop().await;
}

/// The guest uses the device of the first attachment until it starts again.
#[tokio::test]
async fn an_attachment_in_use_outlives_its_document() {
    let (host, control) = (Host::new(""), Control::new());
    let running = host.run(&control);
    let server = ServerId::new_v4();
    let local = |path: &str| json!({"protocol": "local", "device_path": path});
    let with_path = |one: &Volume, path: &str| Volume {
        attachment_id: AttachmentId::new_v4(),
        connection: serde_json::from_value(local(path)).expect("the connection is readable"),
        ..one.clone()
    };
    let old = with_path(&volume("vdb"), "/dev/old");
    let new = with_path(&old, "/dev/new");
    control
        .expect(control.want(server, present(&with(std::slice::from_ref(&old)))), Outcome::Running)
        .await;
    let mut domain = with(std::slice::from_ref(&new));
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    assert_eq!(connected(&host), ids(&[&old, &new]));
    domain.verb = Some((OperationId::new_v4(), Verb::RebootHard));
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    assert_eq!(connected(&host), ids(&[&new]));
    let (definition, _) = running.domain(server).await.expect("the domain is defined");
    let path = "/dev/new".into();
    let sources: Vec<_> = definition.sources.values().cloned().collect();
    assert_eq!(sources, [kilonova_node_api::VolumeSource::Block { path }]);
    running.stop().await;
}

#[tokio::test]
async fn volumes_without_a_document_are_disconnected_at_start() {
    let (host, control) = (Host::new(""), Control::new());
    let lost = volume("vdb");
    let records = kilonova_node::VolumeRecords::open(host.folder("volumes"));
    let records = records.expect("the directory is readable");
    records.put(ServerId::new_v4(), &lost).expect("the file is written");
    let running = host.run(&control);
    control.until("a start", |_| connected(&host).is_empty().then_some(())).await;
    running.stop().await;
}

/// The desired states of a server with volumes, in order.
fn wishes() -> Vec<(Desired, Outcome, Vec<Volume>)> {
    let (root, data, more) = (volume("vda"), volume("vdb"), volume("vdc"));
    let root = Volume { boot_index: Some(0), ..root };
    let wish = |volumes: &[&Volume], power, outcome| {
        let volumes: Vec<Volume> = volumes.iter().map(|one| (*one).clone()).collect();
        (present(&Domain { power, ..with(&volumes) }), outcome, volumes)
    };
    vec![
        wish(&[&root, &data], Power::On, Outcome::Running),
        wish(&[&root, &data, &more], Power::On, Outcome::Running),
        wish(&[&root, &more], Power::On, Outcome::Running),
        wish(&[&root, &more], Power::Off, Outcome::Stopped),
        wish(&[&root, &data], Power::On, Outcome::Running),
        (Desired::Absent, Outcome::Absent, Vec::new()),
    ]
}

/// Runs all documents with a crash at one step. Returns whether the host survived to the end.
async fn live(death: Death) -> bool {
    let (host, control) = (Host::new(""), Control::new());
    let check = async |node: &Running, server, volumes: Vec<Volume>| {
        let all: Vec<&Volume> = volumes.iter().collect();
        assert_eq!(connected(&host), ids(&all), "{death:?}");
        if let Some((definition, _)) = node.domain(server).await {
            let plain: Vec<Volume> = volumes.iter().map(Volume::without_secrets).collect();
            assert_eq!(definition.config.volumes, plain, "{death:?}");
            assert_eq!(definition.sources.len(), volumes.len(), "{death:?}");
        }
    };
    live_through(&host, &control, death, wishes(), check).await
}

#[tokio::test]
async fn no_crash_leaks_a_volume() {
    at_every_step(10, live).await;
}
