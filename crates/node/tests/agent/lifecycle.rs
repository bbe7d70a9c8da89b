//! The life cycle of a guest without failures.

use kilonova_devices::CellOptions;
use kilonova_hypervisor::DomainState;
use kilonova_ids::{ImageId, OperationId, ServerId};
use kilonova_node_api::{
    Attachment, Desired, GuestVerb, HandleSlot, Outcome, Power, Question, ReplyBody, Rescue, Topic,
    Verb,
};

use crate::agent::control::Control;
use crate::agent::crashing_host::Doom;
use crate::agent::host::{GPUS, Host, guest, present, uuids, vgpu};

#[tokio::test]
async fn an_agent_registers_its_host() {
    let (host, control) = (Host::new(""), Control::new());
    let node = host.run(&control);
    let registration =
        control.until("registration", |state| state.registrations.first().cloned()).await;
    assert_eq!(
        (registration.host.as_str(), registration.hypervisor_type.as_str()),
        ("gpu1", "simulated")
    );
    assert_eq!(
        (registration.vcpus, registration.memory_mb, registration.disk_gb),
        (16, 65536, 500)
    );
    let names: Vec<&str> =
        registration.devices.iter().map(|one| one.deployables[0].name.as_str()).collect();
    assert_eq!(names, ["FakeDevice", "pci_0000_84_00_0", "pci_0000_85_00_0"]);
    assert_eq!(
        registration.devices[1].deployables[0].slots,
        [HandleSlot::Mdev { mdev_type: "nvidia-35".into(), count: 4 }]
    );
    node.stop().await;
    assert_eq!(control.registrations().len(), 1, "nothing changed");
}

#[tokio::test]
async fn a_host_registers_again_when_its_memory_pages_change() {
    let (host, control) = (Host::new(""), Control::new());
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let write = |path: &str, text: &str| {
        let path = folder.path().join("devices/system/node/node0").join(path);
        std::fs::create_dir_all(path.parent().expect("the path has a parent"))
            .expect("the directory is created");
        std::fs::write(path, text).expect("the file is written");
    };
    let large = "hugepages/hugepages-2048kB/nr_hugepages";
    write("cpulist", "0-3\n");
    write("meminfo", "Node 0 MemTotal: 4194304 kB\n");
    write(large, "0\n");
    let mut parts = host.parts();
    parts.sysfs = std::sync::Arc::new(kilonova_devices::Directory(folder.path().to_owned()));
    let dedicated = CellOptions::new(Some("0"), Some("1-3"), &[], 4).expect("the sets are valid");
    parts.settings.cells = Some(dedicated);
    parts.settings.rescan = std::time::Duration::from_millis(20);
    let node = host.run_parts(parts, &control);
    let seen = |number: usize| {
        move |state: &crate::agent::control::State| state.registrations.get(number).cloned()
    };
    let first = control.until("registration", seen(0)).await.cells.expect("there are cells");
    assert_eq!((first[0].shared.as_str(), first[0].dedicated.as_str()), ("0", "1-3"));
    assert_eq!(first[0].pages[1].total, 0);
    write(large, "512\n");
    let second =
        control.until("second registration", seen(1)).await.cells.expect("there are cells");
    assert_eq!((second[0].pages[0].total, second[0].pages[1].total), (786_432, 512));
    // A CPU that goes offline is no longer reported, and the host stays managed, even while sysfs cannot be parsed.
    write("cpulist", "0-2\n");
    let third = control.until("third registration", seen(2)).await.cells.expect("there are cells");
    assert_eq!((third[0].shared.as_str(), third[0].dedicated.as_str()), ("0", "1-2"));
    write("meminfo", "");
    let server = ServerId::new_v4();
    control.expect(control.want(server, present(&guest("db", vec![]))), Outcome::Running).await;
    node.stop().await;
}

#[tokio::test]
async fn an_undivided_host_registers_again_until_it_is_divided() {
    let (host, control) = (Host::new(""), Control::new());
    let mut parts = host.parts();
    parts.settings.rescan = std::time::Duration::from_millis(3);
    control.with(|state| state.undivided = true);
    let node = host.run_parts(parts, &control);
    let third = |state: &crate::agent::control::State| state.registrations.get(2).cloned();
    let third = control.until("third registration", third).await;
    assert_eq!(third.devices, control.registrations()[0].devices);
    control.with(|state| state.undivided = false);
    let known = control.registrations().len();
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let now = control.registrations().len();
    assert!(now <= known + 1, "{now} registrations after {known}");
    // The session continues.
    let server = ServerId::new_v4();
    control.expect(control.want(server, present(&guest("db", vec![]))), Outcome::Running).await;
    node.stop().await;
}

#[tokio::test]
async fn a_simulated_host_registers_its_cells() {
    let cells =
        "numa = [{ shared = \"0-3\", dedicated = \"4-15\", threads = 2, memory_mb = 65536 }]";
    let (host, control) = (Host::new(cells), Control::new());
    let node = host.run(&control);
    let registration =
        control.until("registration", |state| state.registrations.first().cloned()).await;
    assert_eq!(registration.cells.expect("there are cells")[0].dedicated, "4-15");
    assert!(registration.traits.contains(&"HW_CPU_HYPERTHREADING".to_owned()));
    node.stop().await;
}

#[tokio::test]
async fn from_creation_to_deletion() {
    let (host, control) = (Host::new(""), Control::new());
    let doom = Doom::new(None);
    let node = host.run_doomed(&control, &doom);
    let steps = || std::mem::take(&mut *doom.log.lock().expect("the lock is not poisoned"));
    let server = ServerId::new_v4();

    let test = Attachment::TestPci { address: "0000:0c:00.1".into() };
    let mut domain = guest("db", vec![vgpu(GPUS[0]), vgpu(GPUS[1]), test]);
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    assert_eq!(steps(), ["create_mdev", "create_mdev", "image", "define", "start"]);
    assert_eq!(node.mdevs(), uuids(&domain.config.devices));
    let (defined, running) = node.domain(server).await.expect("the domain is defined");
    assert_eq!((defined.config.devices, running), (domain.config.devices.clone(), true));

    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    assert_eq!(steps(), Vec::<String>::new(), "a satisfied document changes nothing");

    domain.power = Power::Off;
    control.expect(control.want(server, present(&domain)), Outcome::Stopped).await;
    assert_eq!(steps(), ["stop"]);
    assert_eq!(node.mdevs(), uuids(&domain.config.devices), "a stopped guest keeps its devices");
    domain.power = Power::On;
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    assert_eq!(steps(), ["start"]);

    domain.config.display_name = "renamed".into();
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    assert_eq!(steps(), ["define"], "a rename needs no restart");

    domain.verb = Some((OperationId::new_v4(), Verb::RebootSoft));
    for expected in [&["reboot", "define"][..], &[]] {
        control.expect(control.want(server, present(&domain)), Outcome::Running).await;
        assert_eq!(steps(), expected, "once per operation");
    }
    domain.verb = Some((OperationId::new_v4(), Verb::RebootHard));
    for expected in [&["destroy", "define", "start"][..], &[]] {
        control.expect(control.want(server, present(&domain)), Outcome::Running).await;
        assert_eq!(steps(), expected, "once per operation");
    }

    let kept = domain.config.devices.remove(0);
    domain.config.devices = vec![kept, vgpu(GPUS[1])];
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    assert_eq!(steps(), ["destroy", "remove_mdev", "create_mdev", "define", "start"]);
    assert_eq!(node.mdevs(), uuids(&domain.config.devices));

    control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
    assert_eq!(steps(), ["destroy", "remove_mdev", "remove_mdev", "undefine"]);
    assert!(node.mdevs().is_empty());
    assert!(node.domain(server).await.is_none());
    control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
    node.stop().await;
    host.assert_empty("after deletion");
}

#[tokio::test]
async fn a_guest_can_be_created_shut_off() {
    let (host, control) = (Host::new(""), Control::new());
    let node = host.run(&control);
    let server = ServerId::new_v4();
    let mut domain = guest("cold", vec![vgpu(GPUS[0])]);
    domain.power = Power::Off;
    domain.verb = Some((OperationId::new_v4(), Verb::RebootHard));
    control.expect(control.want(server, present(&domain)), Outcome::Stopped).await;
    let (defined, running) = node.domain(server).await.expect("the domain is defined");
    assert_eq!((defined.done, running), (domain.verb.map(|(operation, _)| operation), false));
    node.stop().await;
}

#[tokio::test]
async fn many_servers_at_once_fill_the_gpus_exactly() {
    let (host, control) = (
        Host::new(
            "times_ms = { create_mdev = 1, image = 2, start = 1 }\nmax_concurrent_builds = 3",
        ),
        Control::new(),
    );
    let node = host.run(&control);
    let mut wanted = Vec::new();
    for number in 0..8 {
        let domain = guest(&format!("s{number}"), vec![vgpu(GPUS[number % 2])]);
        wanted.push((ServerId::new_v4(), domain));
    }
    let generations: Vec<i64> =
        wanted.iter().map(|(server, domain)| control.want(*server, present(domain))).collect();
    for generation in generations {
        control.expect(generation, Outcome::Running).await;
    }
    assert_eq!(node.mdevs().len(), 8);
    let more = control.want(ServerId::new_v4(), present(&guest("more", vec![vgpu(GPUS[0])])));
    match control.outcome(more).await {
        Outcome::Failed { step, message } => {
            assert_eq!(step, "create_mdev");
            assert!(message.contains(GPUS[0]), "{message}");
        }
        other => panic!("{other:?}"),
    }
    let generations: Vec<i64> =
        wanted.iter().map(|(server, _)| control.want(*server, Desired::Absent)).collect();
    for generation in generations {
        control.expect(generation, Outcome::Absent).await;
    }
    node.stop().await;
    host.assert_empty("after deletion");
}

#[tokio::test]
async fn the_future_of_an_idle_agent_is_small() {
    let (host, control) = (Host::new(""), Control::new());
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    let size = std::mem::size_of_val(&host.node().run(control, stopped));
    assert!(size <= 1024, "a thousand hosts in a process would take {size} kB");
}

#[tokio::test]
async fn pause_suspend_rescue_rebuild_and_snapshot() {
    let (host, control) = (Host::new(""), Control::new());
    let doom = Doom::new(None);
    let node = host.run_doomed(&control, &doom);
    let steps = || std::mem::take(&mut *doom.log.lock().expect("the lock is not poisoned"));
    let server = ServerId::new_v4();
    let mut domain = guest("db", vec![vgpu(GPUS[0])]);
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    steps();
    for (power, outcome, expected) in [
        (Power::Paused, Outcome::Paused, &["pause"][..]),
        (Power::On, Outcome::Running, &["unpause"]),
        (Power::Suspended, Outcome::Suspended, &["suspend"]),
        (Power::On, Outcome::Running, &["resume"]),
        (Power::Suspended, Outcome::Suspended, &["suspend"]),
        (Power::Off, Outcome::Stopped, &["destroy"]),
        (Power::Suspended, Outcome::Stopped, &[]),
        (Power::On, Outcome::Running, &["start"]),
    ] {
        domain.power = power;
        for expected in [expected, &[]] {
            control.expect(control.want(server, present(&domain)), outcome.clone()).await;
            assert_eq!(steps(), expected, "{power:?}");
            assert_eq!(node.mdevs(), uuids(&domain.config.devices), "the guest keeps its devices");
        }
    }
    let image = ImageId::new_v4();
    domain.config.rescue = Some(Rescue { image: Some(image), ..Rescue::default() });
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    assert_eq!(steps(), ["destroy", "rescue", "define", "start"]);
    domain.config.rescue = None;
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    assert_eq!(steps(), ["destroy", "define", "start"]);
    domain.config.boot.rebuilt = Some(OperationId::new_v4());
    for expected in [&["destroy", "image", "define", "start"][..], &[]] {
        control.expect(control.want(server, present(&domain)), Outcome::Running).await;
        assert_eq!(steps(), expected, "the disk is rebuilt once");
    }
    for (verb, expected) in [
        (Verb::Snapshot { image }, &["snapshot", "define"][..]),
        (Verb::Guest(GuestVerb::CrashDump), &["crash_dump", "define"]),
    ] {
        domain.verb = Some((OperationId::new_v4(), verb));
        for expected in [expected, &[]] {
            control.expect(control.want(server, present(&domain)), Outcome::Running).await;
            assert_eq!(steps(), expected, "once per operation");
        }
    }
    let disk =
        control.with(|state| state.images.get(&image).cloned()).expect("the snapshot is uploaded");
    assert!(String::from_utf8_lossy(&disk).contains(&format!("server={server}")));
    assert_eq!(host.files("snapshots"), Vec::<String>::new(), "the copy is removed");
    let id = uuid::Uuid::new_v4();
    control.ask(Question { id, server, topic: Topic::Console { lines: Some(2) } });
    let reply = control.until("an answer", |state| state.replies.first().cloned()).await;
    assert_eq!(reply.id, id);
    assert!(matches!(reply.body, ReplyBody::Console { text } if text.contains("crash dump")));
    control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
    node.stop().await;
    host.assert_empty("after deletion");
}

/// A guest whose ports are not plugged yet starts paused, and a guest that already runs keeps
/// running.
#[tokio::test]
async fn a_guest_starts_paused_until_a_later_document() {
    let (host, control) = (Host::new(""), Control::new());
    let every = Some(std::time::Duration::from_millis(20));
    let node = host.run_syncing(&control, every);
    let server = ServerId::new_v4();
    let mut domain = guest("db", vec![vgpu(GPUS[0])]);
    domain.starts_paused = true;
    let generation = control.want(server, present(&domain));
    control.expect(generation, Outcome::Paused).await;
    let reports = || {
        control.with(|state| {
            state.observations.iter().filter(|one| one.generation == generation).count()
        })
    };
    while reports() < 3 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    node.kill().await;
    let node = host.run_syncing(&control, every);
    control.until("a report", |_| Some(())).await;
    let state = node.state(server).await.map(|(_, state)| state);
    assert_eq!(state, Some(DomainState::Paused), "the next agent leaves the guest paused");
    domain.starts_paused = false;
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    domain.starts_paused = true;
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    domain.power = Power::Off;
    control.expect(control.want(server, present(&domain)), Outcome::Stopped).await;
    domain.power = Power::On;
    control.expect(control.want(server, present(&domain)), Outcome::Paused).await;
    control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
    node.stop().await;
    host.assert_empty("after deletion");
}

#[tokio::test]
async fn an_as_is_document_only_reports_the_guest() {
    let (host, control) = (Host::new(""), Control::new());
    let doom = Doom::new(None);
    let node = host.run_doomed(&control, &doom);
    let done = || doom.log.lock().expect("the lock is not poisoned").len();
    let server = ServerId::new_v4();
    let mut domain = guest("db", vec![vgpu(GPUS[0])]);
    let mut as_is = domain.clone();
    as_is.power = Power::AsIs;
    control.expect(control.want(server, present(&as_is)), Outcome::Absent).await;
    assert!(node.domain(server).await.is_none() && node.mdevs().is_empty(), "nothing is created");
    for (power, outcome) in [
        (Power::On, Outcome::Running),
        (Power::Paused, Outcome::Paused),
        (Power::Suspended, Outcome::Suspended),
        (Power::Off, Outcome::Stopped),
    ] {
        domain.power = power;
        control.expect(control.want(server, present(&domain)), outcome.clone()).await;
        let before = done();
        as_is.config.name = "another machine".into();
        control.expect(control.want(server, present(&as_is)), outcome).await;
        assert_eq!(done(), before, "{power:?}");
    }
    node.stop().await;
}
