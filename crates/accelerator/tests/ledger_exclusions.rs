//! A card as a whole, partitioned, and in virtual functions: in any order of claims and releases,
//! handles that exclude each other are never assigned together, and Placement offers exactly the
//! available ones.

use std::collections::BTreeMap;

use kilonova_accelerator::{Error, ledger};
use kilonova_ids::{ConsumerId, ProviderId, ResourceClass, ServerId};
use kilonova_node_api::{Attachment, Deployable, Device, DeviceKind, HandleSlot};
use kilonova_placement::ledger::ProviderSpec;
use kilonova_placement::{World, ledger as placement};
use kilonova_store::testing::Meter;
use kilonova_store::{Store, params};

use crate::common::{self, audit, device, report_host, stores};

const CARD: &str = "0000:25:00.0";
const OTHER: &str = "0000:26:00.0";
const TYPES: &str = "0000:28:00.0";

fn pci(address: &str) -> HandleSlot {
    HandleSlot::Pci { address: address.into() }
}

fn mdev(count: u32) -> HandleSlot {
    HandleSlot::Mdev { mdev_type: "nvidia-35".into(), count }
}

fn part(of: &Device, name: &str, class: &str, slots: Vec<HandleSlot>) -> Deployable {
    let traits = Vec::new();
    let (name, resource_class) = (name.into(), kilonova_ids::ResourceClass::verbatim(class));
    Deployable { name, resource_class, traits, slots, ..of.deployables[0].clone() }
}

/// A card as a whole, with virtual functions, partitioned itself, and with a partitioned virtual
/// function; next to it a card without exclusions.
fn host() -> Vec<Device> {
    let mut card = device(CARD, DeviceKind::Gpu, CARD, "PGPU", vec![pci(CARD)]);
    let functions = (4..7).map(|n| pci(&format!("0000:25:00.{n}"))).collect();
    let parts = part(&card, "vfs", "CUSTOM_VF", functions);
    card.deployables.push(parts);
    let mut cut = device("0000:25:00.7", DeviceKind::Gpu, "cut", "VGPU", vec![mdev(2)]);
    cut.card = Some(CARD.into());
    let mut same = device("0000:25:01.0", DeviceKind::Gpu, "both", "VGPU", vec![mdev(2)]);
    same.card = Some(CARD.into());
    let whole = part(&same, "both_whole", "CUSTOM_VF", vec![pci("0000:25:01.0")]);
    same.deployables.push(whole);
    let mut parent = device(OTHER, DeviceKind::Gpu, "parent", "VGPU", vec![mdev(2)]);
    let parts = part(&parent, "parent_vfs", "CUSTOM_VF", vec![pci("0000:26:00.4")]);
    parent.deployables.push(parts);
    let plain = device("0000:27:00.0", DeviceKind::Gpu, "plain", "VGPU", vec![mdev(2)]);
    vec![card, cut, same, parent, plain, types(), types_of_functions()]
}

/// A card that has vGPUs of one type at a time, as mediated devices.
fn types() -> Device {
    let mut card = device(TYPES, DeviceKind::Gpu, "types", "VGPU", vec![mdev(2)]);
    let small = HandleSlot::Mdev { mdev_type: "nvidia-36".into(), count: 3 };
    let small = part(&card, "types_small", "CUSTOM_SMALL", vec![small]);
    card.deployables.push(small);
    card.one_type = true;
    card
}

/// A card that has vGPUs of one type at a time, on virtual functions.
fn types_of_functions() -> Device {
    let slots = |vgpu_type: &str| {
        let slot = |n: u8| HandleSlot::Vfio {
            address: format!("0000:29:00.{n}"),
            vgpu_type: vgpu_type.into(),
        };
        (4..7).map(slot).collect::<Vec<_>>()
    };
    let mut card =
        device("0000:29:00.0", DeviceKind::Gpu, "functions", "VGPU", slots("nvidia-558"));
    let other = part(&card, "functions_other", "VGPU", slots("nvidia-559"));
    card.deployables.push(other);
    card.one_type = true;
    card
}

/// Claims and binds in one transaction, as a scheduler does: both or neither.
pub async fn claim(
    store: &Store,
    world: &World,
    provider: ProviderId,
    class: &str,
) -> Result<(ConsumerId, Attachment), Error> {
    let consumer = ConsumerId::new_v4();
    let (world, class) = (world.clone(), kilonova_ids::ResourceClass::verbatim(class));
    let bound = store
        .write(move |tx| {
            let allocations =
                vec![placement::Allocation { provider, class: class.clone(), amount: 1 }];
            let claim = placement::Claim {
                consumer,
                consumer_type: None,
                project_id: "p1".into(),
                user_id: "u1".into(),
                allocations,
            };
            placement::claim(tx, &world, &claim)?;
            let want = ledger::BindRequest { provider, count: 1, group: 0, profile: None };
            ledger::bind(tx, &world, ServerId::new_v4(), consumer, "p1", &common::host(), &[want])
        })
        .await?;
    Ok((consumer, bound[0].attachment.clone()))
}

pub async fn release_or_abandon(store: &Store, world: &World, consumer: ConsumerId, lost: bool) {
    let world = world.clone();
    store
        .write(move |tx| {
            let withheld = if lost {
                ledger::abandon(tx, &ledger::Actor::default(), consumer)?
            } else {
                ledger::release(tx, &world, consumer)?;
                BTreeMap::new()
            };
            placement::release(tx, &world, consumer)?;
            Ok::<_, Error>(placement::reserve_each(tx, &world, &withheld)?)
        })
        .await
        .unwrap();
}

pub async fn clean(store: &Store, world: &World, consumer: ConsumerId) {
    let world = world.clone();
    store
        .write(move |tx| {
            let withheld = ledger::clean(tx, &common::host(), consumer)?;
            Ok::<_, Error>(placement::reserve_each(tx, &world, &withheld)?)
        })
        .await
        .unwrap();
}

/// The amount that Placement still offers of a provider.
pub async fn room(store: &Store, provider: ProviderId) -> i64 {
    let sql = "SELECT CAST(COALESCE(SUM(total - reserved - used), 0) AS BIGINT) FROM inventories
        WHERE provider_id = ?1";
    store
        .read(move |tx| Ok::<_, Error>(tx.row(sql, params![provider])?.unwrap().int(0)?))
        .await
        .unwrap()
}

/// The function that a guest got, and whether it got all of it.
fn function(attachment: &Attachment) -> (&str, bool) {
    match attachment {
        Attachment::Mdev { parent, .. } => (parent, false),
        Attachment::Pci { address } | Attachment::Vfio { address, .. } => (address, true),
        Attachment::TestPci { .. } => panic!("none here"),
    }
}

/// The type of a vGPU.
fn type_of(attachment: &Attachment) -> &str {
    match attachment {
        Attachment::Mdev { mdev_type: one, .. } | Attachment::Vfio { vgpu_type: one, .. } => one,
        Attachment::Pci { .. } | Attachment::TestPci { .. } => "",
    }
}

fn exclude(one: &Attachment, other: &Attachment) -> bool {
    let (type_of_one, type_of_other) = (type_of(one), type_of(other));
    if !type_of_one.is_empty() && !type_of_other.is_empty() && type_of_one != type_of_other {
        return function(one).0[..7] == function(other).0[..7];
    }
    let ((one, whole), (other, also)) = (function(one), function(other));
    let same_card = one[..7] == other[..7];
    let on_card = |address: &str| address.ends_with(":00.0");
    same_card && (on_card(one) != on_card(other) || (one == other && (whole || also)))
}

/// A reproducible sequence of numbers.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % most
    }
}

/// The handles that consumers hold, and the dirty handles of lost consumers.
#[derive(Default)]
pub struct Assigned {
    held: Vec<(ConsumerId, Attachment)>,
    dirty: Vec<(ConsumerId, Attachment)>,
}

impl Assigned {
    pub fn all(&self) -> impl Iterator<Item = &Attachment> {
        self.held.iter().chain(&self.dirty).map(|(_, attachment)| attachment)
    }

    pub fn add(&mut self, consumer: ConsumerId, attachment: Attachment) {
        self.held.push((consumer, attachment));
    }

    /// Abandons a random consumer, cleans the handle of a lost one, or releases a random consumer.
    pub async fn release_some(&mut self, random: &mut Random, store: &Store, world: &World) {
        match random.below(3) {
            0 if !self.held.is_empty() => {
                let one = self.held.swap_remove(random.below(self.held.len()));
                release_or_abandon(store, world, one.0, true).await;
                self.dirty.push(one);
            }
            1 if !self.dirty.is_empty() => {
                let (consumer, _) = self.dirty.swap_remove(random.below(self.dirty.len()));
                clean(store, world, consumer).await;
            }
            _ if !self.held.is_empty() => {
                let (consumer, _) = self.held.swap_remove(random.below(self.held.len()));
                release_or_abandon(store, world, consumer, false).await;
            }
            _ => {}
        }
    }

    /// Releases everything, and checks that each provider is entirely free.
    pub async fn end(self, store: &Store, world: &World, specs: &[ProviderSpec]) {
        for (consumer, _) in self.held {
            release_or_abandon(store, world, consumer, false).await;
        }
        for (consumer, _) in self.dirty {
            clean(store, world, consumer).await;
        }
        for spec in specs {
            let all = spec.inventories[0].1.total;
            assert_eq!(room(store, spec.id).await, all, "{}", spec.name);
        }
    }
}

#[tokio::test]
async fn random_claims_and_releases_never_assign_both_sides_of_a_mixed_card() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let specs = report_host(&store, &world, host()).await;
        for seed in 1..=4_u64 {
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut assigned = Assigned::default();
            let (mut taken, mut refused) = (0, 0);
            for step in 0..80 {
                let at = format!("{name} seed {seed} step {step}");
                match random.below(8) {
                    0..4 => {
                        let spec = &specs[random.below(specs.len())];
                        let before = room(&store, spec.id).await;
                        match claim(&store, &world, spec.id, &spec.inventories[0].0).await {
                            Ok((consumer, got)) => {
                                let other = assigned.all().find(|other| exclude(&got, other));
                                assert_eq!(other, None, "{at}: against {got:?}");
                                assert!(before > 0, "{at}: {}", spec.name);
                                assigned.add(consumer, got);
                                taken += 1;
                            }
                            Err(Error::Placement(_)) => {
                                assert_eq!(before, 0, "{at}: {}", spec.name);
                                refused += 1;
                            }
                            Err(other) => panic!("{at}: {}: {other}", spec.name),
                        }
                    }
                    4 => drop(report_host(&store, &world, host()).await),
                    _ => assigned.release_some(&mut random, &store, &world).await,
                }
                assert_eq!(audit(&store).await, Vec::<String>::new(), "{at}");
            }
            assert!(taken > 5 && refused > 5, "{name} seed {seed}: {taken} {refused}");
            assigned.end(&store, &world, &specs).await;
        }
    }
}

#[tokio::test]
async fn a_claimed_card_reserves_its_functions_across_reports() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let specs = report_host(&store, &world, host()).await;
        let id = |end: &str| specs.iter().find(|spec| spec.name.ends_with(end)).unwrap().id;
        let (whole, parts, cut) = (id(CARD), id("_vfs"), id("_cut"));
        let (consumer, _) = claim(&store, &world, whole, "PGPU").await.unwrap();
        for _ in 0..2 {
            assert_eq!(room(&store, parts).await, 0, "{name}");
            assert_eq!(room(&store, cut).await, 0, "{name}: another device of the card is in use");
            assert_eq!(room(&store, id("_parent")).await, 2, "{name}: another card");
            report_host(&store, &world, host()).await;
        }
        release_or_abandon(&store, &world, consumer, false).await;
        let (consumer, _) = claim(&store, &world, cut, "VGPU").await.unwrap();
        assert_eq!(room(&store, whole).await, 0, "{name}");
        assert_eq!(
            room(&store, parts).await,
            3,
            "{name}: virtual functions do not exclude each other"
        );
        release_or_abandon(&store, &world, consumer, false).await;
        let (_, got) = claim(&store, &world, id("_parent"), "VGPU").await.unwrap();
        assert!(matches!(got, Attachment::Mdev { .. }), "{name}");
        assert_eq!(room(&store, id("_parent_vfs")).await, 0, "{name}: the parent is partitioned");
        assert_eq!(room(&store, id("_parent")).await, 1, "{name}");
    }
}

#[tokio::test]
async fn a_type_in_use_reserves_the_others_until_the_card_is_empty() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let specs = report_host(&store, &world, host()).await;
        let id = |end: &str| specs.iter().find(|spec| spec.name.ends_with(end)).unwrap().id;
        let (large, small) = (id("_types"), id("_types_small"));
        assert_eq!((room(&store, large).await, room(&store, small).await), (2, 3), "{name}");
        let (first, _) = claim(&store, &world, small, "CUSTOM_SMALL").await.unwrap();
        let (second, _) = claim(&store, &world, small, "CUSTOM_SMALL").await.unwrap();
        for _ in 0..2 {
            assert_eq!((room(&store, large).await, room(&store, small).await), (0, 1), "{name}");
            report_host(&store, &world, host()).await;
        }
        let excluded = ResourceClass::verbatim("VGPU");
        let why = store.read(move |tx| ledger::excluded(tx, &excluded)).await.unwrap();
        let sentence = format!(
            "Card {TYPES} of host {} has no free VGPU: it is in use as nvidia-36.",
            common::host()
        );
        assert_eq!(why, sentence, "{name}");
        release_or_abandon(&store, &world, first, false).await;
        assert_eq!(room(&store, large).await, 0, "{name}: one guest remains");
        // The host may still have the second guest.
        release_or_abandon(&store, &world, second, true).await;
        assert_eq!((room(&store, large).await, room(&store, small).await), (0, 2), "{name}");
        clean(&store, &world, second).await;
        assert_eq!((room(&store, large).await, room(&store, small).await), (2, 3), "{name}");
        let (_, got) = claim(&store, &world, large, "VGPU").await.unwrap();
        assert_eq!((type_of(&got), room(&store, small).await), ("nvidia-35", 0), "{name}");
    }
}

/// Existing guests of two types show that the card can mix types.
#[tokio::test]
async fn a_card_in_use_as_two_types_excludes_none() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let mixing = vec![Device { one_type: false, ..types() }];
        let specs = report_host(&store, &world, mixing).await;
        let [large, small] = [specs[0].id, specs[1].id];
        let (first, _) = claim(&store, &world, large, "VGPU").await.unwrap();
        claim(&store, &world, small, "CUSTOM_SMALL").await.unwrap();
        report_host(&store, &world, vec![types()]).await;
        assert_eq!((room(&store, large).await, room(&store, small).await), (1, 2), "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
        release_or_abandon(&store, &world, first, false).await;
        report_host(&store, &world, vec![types()]).await;
        assert_eq!((room(&store, large).await, room(&store, small).await), (0, 2), "{name}");
    }
}

/// A function whose guest outlives it does not keep its card to one type.
#[tokio::test]
async fn an_absent_function_does_not_keep_its_card_to_one_type() {
    let function = |n: u8, vgpu_type: &str, one_type: bool| {
        let (address, name) = (format!("{}{n}", &TYPES[..11]), format!("function_{n}"));
        let slot = HandleSlot::Mdev { mdev_type: vgpu_type.into(), count: 1 };
        let one = device(&address, DeviceKind::Gpu, &name, "VGPU", vec![slot]);
        Device { card: Some(TYPES.into()), one_type, ..one }
    };
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let before = vec![function(4, "nvidia-35", true), function(5, "nvidia-36", true)];
        let specs = report_host(&store, &world, before).await;
        let (consumer, _) = claim(&store, &world, specs[0].id, "VGPU").await.unwrap();
        assert_eq!(room(&store, specs[1].id).await, 0, "{name}");
        report_host(&store, &world, vec![function(5, "nvidia-36", false)]).await;
        assert_eq!(room(&store, specs[1].id).await, 1, "{name}");
        claim(&store, &world, specs[1].id, "VGPU").await.unwrap();
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
        release_or_abandon(&store, &world, consumer, false).await;
    }
}

/// A card with `number` functions, each with four types, one type at a time.
fn functions(number: u32) -> Vec<Device> {
    let function = |n: u32| {
        let address = format!("0000:2a:00.{n:x}");
        let slots =
            |one: u32| vec![HandleSlot::Mdev { mdev_type: format!("nvidia-{one}"), count: 1 }];
        let name = |one: u32| format!("f{n}_{one}");
        let mut device = device(&address, DeviceKind::Gpu, &name(0), "VGPU", slots(0));
        let others = (1..4).map(|one| part(&device, &name(one), "VGPU", slots(one)));
        let others: Vec<Deployable> = others.collect();
        device.deployables.extend(others);
        Device { card: Some("0000:2a:00.0".into()), one_type: true, ..device }
    };
    (1..=number).map(function).collect()
}

/// The statements and round trips of a claim on an empty card, of a second claim on the card, and of
/// their releases.
async fn costs(store: &Store, number: u32) -> Vec<(u64, u64)> {
    let world = World::new();
    let specs = report_host(store, &world, functions(number)).await;
    let meter = Meter::counting();
    let metered = store.with_meter(meter.clone());
    let mut costs = Vec::new();
    let mut count = || costs.push((meter.take(), meter.take_round_trips()));
    let (first, _) = claim(&metered, &world, specs[0].id, "VGPU").await.unwrap();
    count();
    let (second, _) = claim(&metered, &world, specs[4].id, "VGPU").await.unwrap();
    count();
    release_or_abandon(&metered, &world, second, false).await;
    count();
    release_or_abandon(&metered, &world, first, false).await;
    count();
    for spec in specs {
        assert_eq!(room(store, spec.id).await, 1, "{}", spec.name);
    }
    costs
}

#[tokio::test]
async fn the_round_trips_of_a_claim_do_not_grow_with_the_parts_of_a_card() {
    for (name, store, _guard) in stores().await {
        let few = costs(&store, 2).await;
        let many = costs(&store, 16).await;
        let trips =
            |costs: &[(u64, u64)]| costs.iter().map(|(_, trips)| *trips).collect::<Vec<_>>();
        assert_eq!(trips(&few), trips(&many), "{name}");
        let statements: Vec<u64> = many.iter().map(|(statements, _)| *statements).collect();
        assert_eq!(statements, [29, 14, 15, 30], "{name}: {many:?} {few:?}");
    }
}

/// Neither transaction sees the other's handle, so each would compute the available handles as if it
/// ran alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_during_the_removal_of_a_lost_guest_still_excludes_the_other_types() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let specs = report_host(&store, &world, functions(2)).await;
        let (lost, _) = claim(&store, &world, specs[0].id, "VGPU").await.unwrap();
        release_or_abandon(&store, &world, lost, true).await;
        // The claim of the other function stays uncommitted while the host reports that the lost guest is gone.
        let (begun, waits) = std::sync::mpsc::channel();
        let want = ledger::BindRequest { provider: specs[4].id, count: 1, group: 0, profile: None };
        let bind = store.write({
            let world = world.clone();
            move |tx| {
                let (server, consumer) = (ServerId::new_v4(), ConsumerId::new_v4());
                let (host, wants) = (common::host(), std::slice::from_ref(&want));
                ledger::bind(tx, &world, server, consumer, "p1", &host, wants)?;
                let _ = begun.send(());
                std::thread::sleep(std::time::Duration::from_millis(300));
                Ok::<_, Error>(())
            }
        });
        let cleaned = async {
            tokio::task::block_in_place(|| waits.recv()).expect("the claim begins");
            clean(&store, &world, lost).await;
        };
        let (bound, ()) = tokio::join!(bind, cleaned);
        bound.expect("the function is free");
        for (at, spec) in specs.iter().enumerate() {
            // Both functions are offered as the type in use, because the claim is not in Placement.
            let expected = i64::from(at % 4 == 0);
            assert_eq!(room(&store, spec.id).await, expected, "{name}: {}", spec.name);
        }
    }
}
