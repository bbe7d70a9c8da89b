//! Cards in MIG mode: Placement offers exactly the instances that still fit, a claim takes a legal start that no other
//! instance overlaps, and slices become free again when the host has removed the guest.

use kilonova_accelerator::{Error, ledger};
use kilonova_ids::{ConsumerId, ProviderId, ResourceClass};
use kilonova_node_api::{
    Attachment, Deployable, Device, DeviceKind, GpuInstance, HandleSlot, Mig, MigPlacement,
    MigProfile,
};
use kilonova_placement::World;
use kilonova_placement::ledger::ProviderSpec;
use kilonova_store::{Store, params};

use crate::common::{self, audit, device, report, report_host, stores};
use crate::ledger_exclusions::{Assigned, Random, claim, release_or_abandon, room};

const CARD: &str = "0000:41:00.0";

/// Profile, vGPU type, size of an instance, maximum number of instances, and legal starts. [`A100`] is the card with
/// 40 GB; its small profile occurs a second time with media engines.
type Row = (&'static str, &'static str, u8, u8, &'static [u8]);
const A100: [Row; 7] = [
    ("1g.5gb", "nvidia-474", 1, 7, &[0, 1, 2, 3, 4, 5, 6]),
    ("1g.5gb+me", "nvidia-475", 1, 1, &[0, 1, 2, 3, 4, 5, 6]),
    ("1g.10gb", "nvidia-476", 2, 4, &[0, 2, 4, 6]),
    ("2g.10gb", "nvidia-477", 2, 3, &[0, 2, 4]),
    ("3g.20gb", "nvidia-478", 4, 2, &[0, 4]),
    ("4g.20gb", "nvidia-479", 4, 1, &[0]),
    ("7g.40gb", "nvidia-480", 8, 1, &[0]),
];

fn geometry() -> Mig {
    let profile = |(name, vgpu_type, size, most, starts): &Row| MigProfile {
        name: (*name).into(),
        vgpu_types: vec![(*vgpu_type).into()],
        most: *most,
        placements: starts.iter().map(|&start| MigPlacement { start, size: *size }).collect(),
    };
    Mig { slices: 8, profiles: A100.iter().map(profile).collect(), foreign: Vec::new() }
}

/// A card with sixteen functions.
fn card() -> Device {
    let address = |n: u8| format!("0000:41:{:02x}.{}", n / 8, n % 8);
    let slots = |vgpu_type: &str| {
        let slot = |n: u8| HandleSlot::Vfio { address: address(n), vgpu_type: vgpu_type.into() };
        (4..20).map(slot).collect::<Vec<_>>()
    };
    let mut card = device(CARD, DeviceKind::Gpu, "first", "VGPU", slots(A100[0].1));
    let first = card.deployables[0].clone();
    let class = |name: &str| {
        let name = name.replace(['.', '+'], "_").to_uppercase();
        ResourceClass::verbatim(format!("CUSTOM_MIG_{name}"))
    };
    let part = |(profile, vgpu_type, ..): &Row| Deployable {
        name: format!("{CARD}_{vgpu_type}"),
        resource_class: class(profile),
        slots: slots(vgpu_type),
        ..first.clone()
    };
    card.deployables = A100.iter().map(part).collect();
    card.mig = Some(geometry());
    card
}

fn instance(attachment: &Attachment) -> &GpuInstance {
    match attachment {
        Attachment::Vfio { instance: Some(instance), .. } => instance,
        other => panic!("{other:?} has no GPU instance"),
    }
}

fn function(attachment: &Attachment) -> &str {
    match attachment {
        Attachment::Vfio { address, .. } => address,
        other => panic!("{other:?} is not a function"),
    }
}

fn slices(attachment: &Attachment) -> Vec<u8> {
    let MigPlacement { start, size } = instance(attachment).place;
    (start..start + size).collect()
}

/// True if an instance of a profile fits next to others. Tries every legal start.
fn fits(row: &Row, others: &[&Attachment]) -> bool {
    let (name, _, size, most, starts) = row;
    let taken: Vec<u8> = others.iter().flat_map(|one| slices(one)).collect();
    let of_profile = others.iter().filter(|one| instance(one).profile == *name).count();
    of_profile < usize::from(*most)
        && starts.iter().any(|start| (*start..start + size).all(|slice| !taken.contains(&slice)))
}

async fn claim_from(
    store: &Store,
    world: &World,
    spec: &ProviderSpec,
) -> Result<(ConsumerId, Attachment), Error> {
    claim(store, world, spec.id, &spec.inventories[0].0).await
}

#[tokio::test]
async fn random_claims_and_releases_take_exactly_what_fits() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let specs = report_host(&store, &world, vec![card()]).await;
        let totals: Vec<i64> = specs.iter().map(|spec| spec.inventories[0].1.total).collect();
        assert_eq!(totals, [7, 1, 4, 3, 2, 1, 1], "{name}");
        for seed in 1..=3_u64 {
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut assigned = Assigned::default();
            let (mut taken, mut refused) = (0, 0);
            for step in 0..100 {
                let at = format!("{name} seed {seed} step {step}");
                match random.below(8) {
                    0..4 => {
                        let which = random.below(specs.len());
                        let others: Vec<&Attachment> = assigned.all().collect();
                        let expected = fits(&A100[which], &others);
                        assert_eq!(room(&store, specs[which].id).await > 0, expected, "{at}");
                        match claim_from(&store, &world, &specs[which]).await {
                            Ok((consumer, got)) => {
                                assert!(expected, "{at}: {got:?} among {others:?}");
                                let (profile, _, size, _, starts) = A100[which];
                                let new = instance(&got);
                                assert_eq!((&*new.card, &*new.profile), (CARD, profile), "{at}");
                                assert_eq!(new.place.size, size, "{at}");
                                assert!(starts.contains(&new.place.start), "{at}: {new:?}");
                                for other in others {
                                    assert_ne!(function(other), function(&got), "{at}");
                                    let free = |slice| !slices(other).contains(slice);
                                    assert!(
                                        slices(&got).iter().all(free),
                                        "{at}: {got:?} {other:?}"
                                    );
                                }
                                assigned.add(consumer, got);
                                taken += 1;
                            }
                            Err(Error::Placement(_)) => {
                                assert!(!expected, "{at}");
                                refused += 1;
                            }
                            Err(other) => panic!("{at}: {other}"),
                        }
                    }
                    4 => drop(report_host(&store, &world, vec![card()]).await),
                    _ => assigned.release_some(&mut random, &store, &world).await,
                }
                assert_eq!(audit(&store).await, Vec::<String>::new(), "{at}");
            }
            assert!(taken > 5 && refused > 5, "{name} seed {seed}: {taken} {refused}");
            assigned.end(&store, &world, &specs).await;
        }
    }
}

/// The room of each profile.
async fn rooms(store: &Store, specs: &[ProviderSpec]) -> Vec<i64> {
    let mut rooms = Vec::new();
    for spec in specs {
        rooms.push(room(store, spec.id).await);
    }
    rooms
}

#[tokio::test]
async fn foreign_instances_leave_what_fits_beside_them() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let mut device = card();
        let foreign = MigPlacement { start: 4, size: 4 };
        device.mig.as_mut().unwrap().foreign = vec![foreign];
        let specs = report_host(&store, &world, vec![device]).await;
        assert_eq!(rooms(&store, &specs).await, [4, 1, 2, 2, 1, 1, 0], "{name}");
        let (_, got) = claim_from(&store, &world, &specs[4]).await.unwrap();
        assert_eq!(instance(&got).place, MigPlacement { start: 0, size: 4 }, "{name}");
        assert_eq!(rooms(&store, &specs).await, [0; 7], "{name}");
        // The foreign instance is gone.
        report_host(&store, &world, vec![card()]).await;
        assert_eq!(rooms(&store, &specs).await, [3, 1, 2, 1, 1, 0, 0], "{name}");
    }
}

#[tokio::test]
async fn several_instances_of_one_request_have_places_of_their_own() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let specs = report_host(&store, &world, vec![card()]).await;
        let bound = bind(&store, specs[2].id, 4).await.unwrap();
        let starts: Vec<u8> = bound.iter().map(|one| instance(one).place.start).collect();
        assert_eq!(starts, [0, 2, 4, 6], "{name}");
        assert!(matches!(bind(&store, specs[0].id, 1).await, Err(Error::NoHandle(_))), "{name}");
        let why = "its GPU instances are 1g.10gb at slice 0, 1g.10gb at slice 2, 1g.10gb at slice 4, \
                   1g.10gb at slice 6";
        expect_reason(&store, "CUSTOM_MIG_7G_40GB", why, name).await;
    }
}

/// Expects the sentence that explains why the card has no free accelerator of a class.
async fn expect_reason(store: &Store, class: &'static str, why: &str, name: &str) {
    let of = ResourceClass::verbatim(class);
    let got = store.read(move |tx| ledger::excluded(tx, &of)).await.unwrap();
    let host = common::host();
    assert_eq!(got, format!("Card {CARD} of host {host} has no free {class}: {why}."), "{name}");
}

#[tokio::test]
async fn a_card_full_of_foreign_instances_or_without_functions_is_explained() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let mut device = card();
        device.mig.as_mut().unwrap().foreign = vec![MigPlacement { start: 4, size: 4 }];
        let specs = report_host(&store, &world, vec![device]).await;
        bind(&store, specs[4].id, 1).await.unwrap();
        let why = "its GPU instances are 3g.20gb at slice 0, a foreign one at slice 4";
        expect_reason(&store, "CUSTOM_MIG_1G_5GB", why, name).await;
        let mut device = card();
        device.mig.as_mut().unwrap().foreign = vec![MigPlacement { start: 4, size: 4 }];
        for part in &mut device.deployables {
            part.slots.truncate(1);
        }
        report_host(&store, &world, vec![device]).await;
        let why = "all of its virtual functions are in use";
        expect_reason(&store, "CUSTOM_MIG_1G_5GB", why, name).await;
    }
}

#[tokio::test]
async fn a_handle_of_a_card_without_readable_geometry_is_not_assigned() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let specs = report_host(&store, &world, vec![card()]).await;
        let unmixed = "UPDATE devices SET mixed = 0";
        store.write(move |tx| Ok::<_, Error>(tx.execute(unmixed, params![])?)).await.unwrap();
        let refused = bind(&store, specs[0].id, 1).await;
        assert!(matches!(refused, Err(Error::NoHandle(_))), "{name}: {refused:?}");
    }
}

/// The instance of a lost guest keeps its slices until the host has removed the guest.
#[tokio::test]
async fn the_audit_finds_an_instance_over_one_of_a_lost_guest() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let specs = report_host(&store, &world, vec![card()]).await;
        let (lost, _) = claim_from(&store, &world, &specs[4]).await.unwrap();
        claim_from(&store, &world, &specs[4]).await.unwrap();
        release_or_abandon(&store, &world, lost, true).await;
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
        let moved = "UPDATE attach_handles SET mig_start = 0 WHERE state = 'owned'";
        store.write(move |tx| Ok::<_, Error>(tx.execute(moved, params![])?)).await.unwrap();
        let broken = audit(&store).await;
        assert!(broken.iter().any(|one| one.contains("do not overlap")), "{name}: {broken:?}");
    }
}

/// Binds handles without a claim in Placement.
async fn bind(store: &Store, provider: ProviderId, count: i64) -> Result<Vec<Attachment>, Error> {
    let want = ledger::BindRequest { provider, count, group: 0, profile: None };
    let bound = store.write(move |tx| {
        let (server, consumer) = (kilonova_ids::ServerId::new_v4(), ConsumerId::new_v4());
        ledger::bind(
            tx,
            &World::new(),
            server,
            consumer,
            "p1",
            &common::host(),
            std::slice::from_ref(&want),
        )
    });
    Ok(bound.await?.into_iter().map(|one| one.attachment).collect())
}

#[tokio::test]
async fn a_geometry_that_no_card_has_is_refused() {
    for (name, store, _guard) in stores().await {
        let refused = async |change: fn(&mut Mig), expected: &str| {
            let mut device = card();
            change(device.mig.as_mut().unwrap());
            let error = report(&store, vec![device]).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{name}: {error}");
        };
        refused(|mig| mig.slices = 4, "1 slices from slice 4 are not on a card with 4").await;
        refused(|mig| mig.profiles[1].name = "1g.5gb".into(), "it is listed twice").await;
        refused(|mig| mig.profiles[0].vgpu_types.clear(), "which needs no GPU instance").await;
        let mut device = card();
        device.deployables[0].slots = vec![HandleSlot::Pci { address: "0000:41:00.4".into() }];
        let error = report(&store, vec![device]).await.unwrap_err().to_string();
        assert!(error.contains("has no functions of one type"), "{name}: {error}");
    }
}
