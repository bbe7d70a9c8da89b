//! The order of a card's vGPU types determines the names of its providers, so a new order moves the vGPUs of guests
//! to another provider. No vGPU is assigned twice.

use std::collections::BTreeSet;

use kilonova_accelerator::Error;
use kilonova_ids::{ConsumerId, ProviderId};
use kilonova_node_api::{Attachment, Deployable, Device, DeviceKind, HandleSlot};
use kilonova_placement::World;
use kilonova_store::Store;

use crate::common::{audit, device, report_host, stores};
use crate::ledger_exclusions::{claim, release_or_abandon, room};

const CARD: &str = "0000:25:00.0";
const SMALL: &str = "nvidia-557";
const LARGE: &str = "nvidia-558";

/// The enabled types in their order.
type Types<'a> = &'a [&'a str];

#[derive(Debug, Clone, Copy)]
enum Way {
    Mdev,
    Vfio,
}

/// A card with room for four vGPUs of either type.
fn card(way: Way, types: Types<'_>) -> Vec<Device> {
    let slots = |vgpu_type: &str| match way {
        Way::Mdev => vec![HandleSlot::Mdev { mdev_type: vgpu_type.into(), count: 4 }],
        Way::Vfio => (4..8)
            .map(|n| HandleSlot::Vfio {
                address: format!("0000:25:00.{n}"),
                vgpu_type: vgpu_type.into(),
            })
            .collect(),
    };
    let mut card = device(CARD, DeviceKind::Gpu, CARD, "VGPU", slots(types[0]));
    for other in &types[1..] {
        let name = format!("{CARD}_{other}");
        let part = Deployable { name, slots: slots(other), ..card.deployables[0].clone() };
        card.deployables.push(part);
    }
    card.one_type = types.len() > 1;
    vec![card]
}

/// Applies a report, and returns the provider of a type.
async fn enable(store: &Store, world: &World, way: Way, types: Types<'_>, one: &str) -> ProviderId {
    let specs = report_host(store, world, card(way, types)).await;
    specs[types.iter().position(|other| *other == one).unwrap()].id
}

/// Claims from a provider until a claim is refused.
async fn claim_all(
    store: &Store,
    world: &World,
    provider: ProviderId,
) -> Vec<(ConsumerId, Attachment)> {
    let mut got = Vec::new();
    loop {
        match claim(store, world, provider, "VGPU").await {
            Ok(one) => got.push(one),
            Err(Error::Placement(_)) => return got,
            Err(other) => panic!("{other}"),
        }
    }
}

/// The number of different functions and types.
fn functions(held: &[(ConsumerId, Attachment)]) -> usize {
    let of = |(_, one): &(ConsumerId, Attachment)| match one {
        Attachment::Mdev { parent, mdev_type, .. } => format!("{parent} {mdev_type}"),
        other => format!("{other:?}"),
    };
    held.iter().map(of).collect::<BTreeSet<_>>().len()
}

#[tokio::test]
async fn a_vgpu_of_a_guest_is_not_assigned_through_another_provider() {
    let changes: [(Types<'_>, Types<'_>); 4] = [
        (&[LARGE], &[SMALL, LARGE]),
        (&[SMALL, LARGE], &[LARGE]),
        (&[SMALL, LARGE], &[LARGE, SMALL]),
        (&[LARGE, SMALL], &[SMALL, LARGE]),
    ];
    for (name, store, _guard) in stores().await {
        let world = World::new();
        for way in [Way::Mdev, Way::Vfio] {
            for ((before, after), guests) in
                changes.into_iter().flat_map(|one| [(one, 1), (one, 4)])
            {
                let at = format!("{name} {way:?} {before:?} {after:?} {guests}");
                let old = enable(&store, &world, way, before, LARGE).await;
                let mut held = Vec::new();
                for _ in 0..guests {
                    held.push(claim(&store, &world, old, "VGPU").await.unwrap());
                }
                let new = enable(&store, &world, way, after, LARGE).await;
                assert_ne!(old, new, "{at}");
                // An equal report changes nothing.
                for _ in 0..2 {
                    assert_eq!(room(&store, new).await, 4 - guests, "{at}");
                    enable(&store, &world, way, after, LARGE).await;
                }
                held.extend(claim_all(&store, &world, new).await);
                assert_eq!(held.len(), 4, "{at}");
                assert_eq!(functions(&held), if matches!(way, Way::Vfio) { 4 } else { 1 }, "{at}");
                assert_eq!(audit(&store).await, Vec::<String>::new(), "{at}");
                // A vGPU that a guest of the old provider releases is offered after the next report.
                release_or_abandon(&store, &world, held.remove(0).0, false).await;
                enable(&store, &world, way, after, LARGE).await;
                assert_eq!(room(&store, new).await, 1, "{at}");
                held.extend(claim_all(&store, &world, new).await);
                assert_eq!(held.len(), 4, "{at}");
                // Guests of both providers exist when the order changes back.
                enable(&store, &world, way, before, LARGE).await;
                assert!(claim_all(&store, &world, old).await.is_empty(), "{at}");
                assert_eq!(audit(&store).await, Vec::<String>::new(), "{at}");
                for (consumer, _) in held {
                    release_or_abandon(&store, &world, consumer, false).await;
                }
                enable(&store, &world, way, before, LARGE).await;
                let all = claim_all(&store, &world, old).await;
                assert_eq!(all.len(), 4, "{at}");
                assert_eq!(audit(&store).await, Vec::<String>::new(), "{at}");
                for (consumer, _) in all {
                    release_or_abandon(&store, &world, consumer, false).await;
                }
            }
        }
    }
}

/// A function whose guest is shut off has no type, so its host reports it as any type.
#[tokio::test]
async fn a_function_of_a_guest_is_not_assigned_as_another_type() {
    for (name, store, _guard) in stores().await {
        for before in [&[SMALL, LARGE] as Types<'_>, &[LARGE]] {
            let at = format!("{name} {before:?}");
            let world = World::new();
            let old = enable(&store, &world, Way::Vfio, before, LARGE).await;
            let mut held = vec![claim(&store, &world, old, "VGPU").await.unwrap()];
            let new = enable(&store, &world, Way::Vfio, &[SMALL], SMALL).await;
            let got = claim_all(&store, &world, new).await;
            let address = |one: &Attachment| match one {
                Attachment::Vfio { address, .. } => address.clone(),
                other => panic!("{other:?}"),
            };
            let taken = address(&held[0].1);
            assert!(got.iter().all(|(_, one)| address(one) != taken), "{at}: {got:?}");
            assert_eq!(audit(&store).await, Vec::<String>::new(), "{at}");
            held.extend(got);
            for (consumer, _) in held {
                release_or_abandon(&store, &world, consumer, false).await;
            }
            assert_eq!(room(&store, new).await, 4, "{at}");
        }
    }
}
