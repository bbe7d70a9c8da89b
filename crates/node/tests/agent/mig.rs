//! A card in MIG mode: a driver of GPU instances that does not always answer, and an agent that dies before and after
//! each step of a guest with instances.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kilonova_devices::{Error, MigCard, MigDriver, vgpu_state};
use kilonova_ids::{OperationId, ServerId};
use kilonova_node_api::{
    Attachment, Desired, Domain, GpuInstance, MigPlacement, Outcome, Power, Verb,
};

use crate::agent::control::Control;
use crate::agent::crashing_host::Death;
use crate::agent::deaths::{at_every_step, deleted_while_down, live_through};
use crate::agent::host::{Host, Running, guest, present};

const CARD: &str = "0000:41:00.0";

const HOST: &str = r#"
[card.a100]
vendor = "10de"
product = "20b0"
class = "030200"
driver = "nvidia"
vfio_types = true
mig = "a100-40gb"
types = [
    { id = "nvidia-35", name = "NVIDIA A100-1-5C", available_instances = 7, mig_profile = "1g.5gb" },
    { id = "nvidia-36", name = "NVIDIA A100-3-20C", available_instances = 2, mig_profile = "3g.20gb" },
]
[[host]]
name = "gpu1"
vcpus = 16
memory_mb = 65536
disk_gb = 500
card = [{ card = "a100", addresses = ["0000:41:00.0"], vfs = 8 }]
devices = { enabled_mdev_types = ["nvidia-35", "nvidia-36"], mdev_retyping = true, mig_instances = true }
mdev.nvidia-35 = {}
mdev.nvidia-36 = {}
"#;

/// A driver's answer to a request for its cards, by the number of the attempt.
type Answer = fn(u32, Vec<MigCard>) -> Result<Vec<MigCard>, Error>;

struct Moody {
    answer: Answer,
    attempts: Arc<AtomicU32>,
    inner: Arc<dyn MigDriver>,
}

impl MigDriver for Moody {
    fn cards(&self) -> Result<Vec<MigCard>, Error> {
        (self.answer)(self.attempts.fetch_add(1, Ordering::Relaxed), self.inner.cards()?)
    }
    fn create(&self, instance: &GpuInstance) -> Result<(), Error> {
        self.inner.create(instance)
    }
    fn destroy(&self, instance: &GpuInstance) -> Result<(), Error> {
        self.inner.destroy(instance)
    }
}

#[tokio::test]
async fn a_card_is_never_offered_without_its_geometry() {
    // The driver returns the cards only once, at the second attempt.
    let answer: Answer = |attempt, cards| match attempt {
        1 => Ok(cards),
        _ => Err(Error::Mig("the driver is busy".into())),
    };
    let (host, control) = (Host::of(HOST), Control::new());
    let mut parts = host.parts();
    parts.mig = Arc::new(Moody { answer, attempts: Arc::default(), inner: parts.mig });
    let node = host.run_parts(parts, &control);
    let server = ServerId::new_v4();
    let started = control.want(server, present(&guest("plain", Vec::new())));
    control.expect(started, Outcome::Running).await;
    node.stop().await;
    // A card that can no longer be read is not lost either.
    let registrations = control.registrations();
    assert_eq!(registrations.len(), 1);
    let devices = &registrations[0].devices;
    assert!(devices.len() == 1 && devices[0].mig.is_some(), "{devices:?}");
}

/// A host with a lost card still registers. A card that was read before keeps its state.
#[tokio::test]
async fn a_card_that_cannot_be_read_is_not_offered_until_it_can() {
    let answer: Answer = |attempt, cards| match attempt {
        1 => Ok(cards),
        _ => Ok(vec![MigCard::unreadable(CARD, "the GPU is lost".into())]),
    };
    let (host, control) = (Host::of(HOST), Control::new());
    let mut parts = host.parts();
    parts.settings.rescan = Duration::from_millis(10);
    let attempts = Arc::<AtomicU32>::default();
    parts.mig = Arc::new(Moody { answer, attempts: Arc::clone(&attempts), inner: parts.mig });
    let node = host.run_parts(parts, &control);
    let enough = async {
        while attempts.load(Ordering::Relaxed) < 5 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), enough).await.expect("the agent scans");
    node.stop().await;
    let registrations = control.registrations();
    let cards = |at: usize| registrations[at].devices.iter().filter(|one| one.mig.is_some());
    assert_eq!(registrations.len(), 2, "the second registration has the card");
    assert_eq!((registrations[0].devices.len(), cards(1).count()), (0, 1));
}

/// An instance of five or twenty gigabytes for a virtual function.
fn instance(function: u8, large: bool, start: u8) -> Attachment {
    let (vgpu_type, profile, size) =
        if large { ("nvidia-36", "3g.20gb", 4) } else { ("nvidia-35", "1g.5gb", 1) };
    Attachment::Vfio {
        address: format!("0000:41:00.{function}"),
        vgpu_type: vgpu_type.into(),
        instance: Some(GpuInstance {
            card: CARD.into(),
            profile: profile.into(),
            place: MigPlacement { start, size },
        }),
    }
}

/// The desired states of the server, in order.
fn wishes() -> Vec<(Desired, Outcome, Option<Domain>)> {
    let mut domain = guest("db", vec![instance(4, false, 0), instance(5, true, 4)]);
    let mut wishes = vec![(present(&domain), Outcome::Running, Some(domain.clone()))];
    domain.verb = Some((OperationId::new_v4(), Verb::RebootHard));
    wishes.push((present(&domain), Outcome::Running, Some(domain.clone())));
    // A different instance, and a different size on a function that stays.
    domain.config.devices = vec![instance(5, false, 1), instance(6, false, 2)];
    for (power, outcome) in [
        (Power::On, Outcome::Running),
        (Power::Off, Outcome::Stopped),
        (Power::On, Outcome::Running),
    ] {
        domain.power = power;
        wishes.push((present(&domain), outcome, Some(domain.clone())));
    }
    wishes.push((Desired::Absent, Outcome::Absent, None));
    wishes
}

/// Runs all documents with a crash at one step. Returns whether the host survived to the end.
async fn live(death: Death) -> bool {
    let (host, control) = (Host::of(HOST), Control::new());
    let check = async |node: &Running, _, domain: Option<Domain>| {
        check(node, domain.as_ref(), death);
    };
    let lived = live_through(&host, &control, death, wishes(), check).await;
    // After a restart, the agent still treats the guest's instances as its own.
    for device in control.registrations().iter().flat_map(|one| &one.devices) {
        let mig = device.mig.as_ref().expect("the card is in MIG mode");
        assert_eq!(mig.foreign, [], "{death:?}");
        assert!(device.deployables.iter().all(|part| part.slots.len() == 8), "{death:?}");
    }
    lived
}

/// The card has exactly the guest's instances, and exactly its functions have a type.
fn check(node: &Running, domain: Option<&Domain>, death: Death) {
    let devices = domain.map(|domain| domain.config.devices.clone()).unwrap_or_default();
    let (mut expected, mut types) = (Vec::new(), Vec::new());
    for device in devices {
        let Attachment::Vfio { address, vgpu_type, instance } = device else { continue };
        expected.extend(instance.map(|one| (one.profile, one.place.start)));
        types.push((address, vgpu_type));
    }
    let card = node.parts.mig.cards().expect("the card is readable").remove(0);
    let mut actual: Vec<_> =
        card.instances.into_iter().map(|one| (one.profile, one.place.start)).collect();
    actual.sort();
    expected.sort();
    assert_eq!(actual, expected, "{death:?}");
    let current = |n: u8| {
        let address = format!("0000:41:0{}.{}", n / 8, n % 8);
        let state = vgpu_state(&*node.parts.sysfs, &address).expect("the function is readable");
        state.and_then(|state| state.current).map(|current| (address, current))
    };
    let actual: Vec<_> = (4..12).filter_map(current).collect();
    assert_eq!(actual, types, "{death:?}");
}

#[tokio::test]
async fn death_before_and_after_every_step_leaves_no_instance() {
    at_every_step(18, live).await;
}

/// The agent dies after it has created an instance, and the guest is deleted before the next one starts.
#[tokio::test]
async fn instances_of_a_guest_that_is_deleted_while_the_agent_is_down_are_destroyed() {
    let devices = vec![instance(4, false, 0), instance(5, true, 4)];
    let check = |node: &Running, death| check(node, None, death);
    deleted_while_down(|| Host::of(HOST), 6, devices, check).await;
}
