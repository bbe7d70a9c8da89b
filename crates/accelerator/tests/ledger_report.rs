//! Applying the reports of hosts: no repeated writes, and owned handles survive.

use kilonova_accelerator::{Error, ledger};
use kilonova_ids::{ConsumerId, HostName, ServerId};
use kilonova_node_api::{Device, DeviceKind, HandleSlot};
use kilonova_placement::World;
use kilonova_store::testing::Meter;
use kilonova_store::{Store, params};

use crate::common::{audit, count, device, everything, fake, host, report, stores, vgpu};

const HANDLES: &str = "SELECT COUNT(*) FROM attach_handles";
const FREE: &str = "SELECT COUNT(*) FROM attach_handles WHERE state = 'free' AND present = 1";
const DEVICES: &str = "SELECT COUNT(*) FROM devices";

async fn claim(store: &Store, provider: kilonova_ids::ProviderId, count: i64) -> ConsumerId {
    let consumer = ConsumerId::new_v4();
    let want = ledger::BindRequest { provider, count, group: 0, profile: None };
    store
        .write(move |tx| {
            let wants = [want.clone()];
            ledger::bind(tx, &World::new(), ServerId::new_v4(), consumer, "p1", &host(), &wants)
        })
        .await
        .unwrap();
    consumer
}

async fn release(store: &Store, consumer: ConsumerId) {
    store.write(move |tx| ledger::release(tx, &World::new(), consumer)).await.unwrap();
}

#[tokio::test]
async fn providers_are_named_and_numbered_as_cyborg_does() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(16)]).await.unwrap();
        assert_eq!(specs.len(), 1, "{name}");
        assert_eq!(specs[0].name, "cmp1_FakeDevice");
        assert_eq!(specs[0].id.to_string(), "99efe5b3-5d2b-3cbd-bf9b-6cdfa6028320");
        assert_eq!(specs[0].traits, ["CUSTOM_TEST", "CUSTOM_NUMA_NODE_0"]);
        let (class, inventory) = &specs[0].inventories[0];
        assert_eq!((class.as_str(), inventory.total, inventory.max_unit), ("FPGA", 16, 16));
        let known = specs[0].id;
        let (ours, other) = store
            .read(move |tx| {
                let other = kilonova_ids::ProviderId::new_v4();
                let ours = ledger::is_device_provider(tx, known)?;
                Ok::<_, Error>((ours, ledger::is_device_provider(tx, other)?))
            })
            .await
            .unwrap();
        assert_eq!((ours, other), (true, false));
    }
}

#[tokio::test]
async fn the_same_report_writes_nothing() {
    for (name, store, _guard) in stores().await {
        let devices = vec![fake(3), vgpu("0000:84:00.0", 4)];
        let first = report(&store, devices.clone()).await.unwrap();
        let before = everything(&store).await;
        // A read-only transaction refuses any write.
        let again = store
            .read(move |tx| ledger::report(tx, &host(), &devices))
            .await
            .expect("the report writes nothing");
        assert_eq!(format!("{first:?}"), format!("{again:?}"), "{name}");
        assert_eq!(before, everything(&store).await, "{name}");
        assert_eq!(count(&store, HANDLES).await, 7);
    }
}

/// The number of statements that a report executes.
async fn cost(store: &Store, devices: &[kilonova_node_api::Device]) -> u64 {
    let meter = Meter::counting();
    report(&store.with_meter(meter.clone()), devices.to_vec()).await.unwrap();
    meter.take()
}

#[tokio::test]
async fn an_unchanged_report_takes_two_statements() {
    for (name, store, _guard) in stores().await {
        let both = [fake(3), vgpu("0000:84:00.0", 4)];
        let specs = report(&store, both.to_vec()).await.unwrap();
        assert_eq!(cost(&store, &both).await, 2, "{name}");
        let consumer = claim(&store, specs[0].id, 2).await;
        assert_eq!(cost(&store, &both).await, 2, "{name}: owners do not matter");

        for change in [
            "UPDATE devices SET health = 'failed'",
            "UPDATE devices SET health = 'healthy', updated_at = 1",
            "UPDATE attributes SET value = 'X', updated_at = 9000000000000000 WHERE name = 'rc'",
            "DELETE FROM attach_handles WHERE id IN (SELECT MAX(id) FROM attach_handles)",
        ] {
            store.write(move |tx| tx.execute(change, params![])).await.expect(change);
            assert!(cost(&store, &both).await > 2, "{name}: {change}");
        }
        assert_eq!(
            format!("{specs:?}"),
            format!("{:?}", report(&store, both.to_vec()).await.unwrap())
        );
        assert_eq!(cost(&store, &both).await, 2, "{name}: the rows match the report again");

        let less = [vgpu("0000:84:00.0", 4)];
        for _ in 0..2 {
            assert!(cost(&store, &less).await > 2, "{name}: an absent card has an owned handle");
        }
        release(&store, consumer).await;
        report(&store, less.to_vec()).await.unwrap();
        assert_eq!((count(&store, DEVICES).await, count(&store, HANDLES).await), (1, 4), "{name}");
        assert_eq!(cost(&store, &less).await, 2, "{name}: the absent card is released and deleted");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn growing_adds_handles_and_shrinking_deletes_only_free_ones() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![vgpu("0000:84:00.0", 2)]).await.unwrap();
        report(&store, vec![vgpu("0000:84:00.0", 4)]).await.unwrap();
        assert_eq!(count(&store, FREE).await, 4, "{name}");
        let consumer = claim(&store, specs[0].id, 3).await;
        let fewer = report(&store, vec![vgpu("0000:84:00.0", 1)]).await.unwrap();
        assert_eq!(fewer[0].inventories[0].1.total, 1);
        assert_eq!((count(&store, FREE).await, count(&store, HANDLES).await), (0, 3), "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
        release(&store, consumer).await;
        assert_eq!((count(&store, FREE).await, count(&store, HANDLES).await), (1, 1), "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
        report(&store, vec![vgpu("0000:84:00.0", 3)]).await.unwrap();
        assert_eq!((count(&store, FREE).await, count(&store, HANDLES).await), (3, 3), "{name}");
    }
}

#[tokio::test]
async fn an_absent_device_stays_while_owned_and_returns_with_its_identity() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(3)]).await.unwrap();
        let uuids = "SELECT COUNT(DISTINCT uuid) FROM attach_handles WHERE state = 'owned'";
        let consumer = claim(&store, specs[0].id, 2).await;
        assert!(report(&store, Vec::new()).await.unwrap().is_empty(), "{name}");
        assert_eq!(count(&store, DEVICES).await, 1, "{name}");
        assert_eq!((count(&store, HANDLES).await, count(&store, uuids).await), (2, 2), "{name}");
        let none_left = store
            .write(move |tx| {
                let want = ledger::BindRequest {
                    provider: specs[0].id,
                    count: 1,
                    group: 0,
                    profile: None,
                };
                let consumer = ConsumerId::new_v4();
                ledger::bind(
                    tx,
                    &World::new(),
                    ServerId::new_v4(),
                    consumer,
                    "p1",
                    &host(),
                    &[want],
                )
            })
            .await;
        assert!(matches!(none_left, Err(Error::NoHandle(_))), "{name}");

        report(&store, vec![fake(3)]).await.unwrap();
        assert_eq!((count(&store, FREE).await, count(&store, HANDLES).await), (1, 3), "{name}");
        report(&store, Vec::new()).await.unwrap();
        release(&store, consumer).await;
        assert_eq!(count(&store, HANDLES).await, 0, "{name}");
        report(&store, Vec::new()).await.unwrap();
        assert_eq!(count(&store, DEVICES).await, 0, "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn a_changed_address_is_a_new_handle_even_while_the_old_one_is_owned() {
    for (name, store, _guard) in stores().await {
        let pci = |address: &str| {
            let slots = vec![HandleSlot::Pci { address: address.into() }];
            vec![device("0000:05:00.0", DeviceKind::Pci, "card", "CUSTOM_PCI", slots)]
        };
        let specs = report(&store, pci("0000:05:00.1")).await.unwrap();
        let consumer = claim(&store, specs[0].id, 1).await;
        report(&store, pci("0000:05:00.2")).await.unwrap();
        release(&store, consumer).await;
        let left = "SELECT COUNT(*) FROM attach_handles WHERE address = '0000:05:00.2'";
        assert_eq!((count(&store, left).await, count(&store, HANDLES).await), (1, 1), "{name}");
    }
}

#[tokio::test]
async fn contradictions_are_refused_and_change_nothing() {
    for (name, store, _guard) in stores().await {
        report(&store, vec![fake(2)]).await.unwrap();
        let before = everything(&store).await;
        let twice = report(&store, vec![fake(2), fake(2)]).await;
        assert!(matches!(twice, Err(Error::Report { .. })), "{name}");
        let mut same_name = vec![fake(2), vgpu("0000:84:00.0", 1)];
        same_name[1].deployables[0].name = "FakeDevice".into();
        assert!(matches!(report(&store, same_name).await, Err(Error::Report { .. })), "{name}");
        let absurd = report(&store, vec![vgpu("0000:84:00.0", u32::MAX)]).await;
        assert!(matches!(absurd, Err(Error::Report { .. })), "{name}");
        // Host `cmp1_Fake` with a deployable `Device` would be host `cmp1`'s provider.
        let stolen = store
            .write(|tx| {
                let mut device = fake(1);
                device.deployables[0].name = "Device".into();
                let mut other = fake(1);
                other.deployables[0].name = "Fake_Device".into();
                ledger::report(tx, &host(), &[other])?;
                ledger::report(tx, &HostName::verbatim("cmp1_Fake"), &[device])
            })
            .await;
        assert!(matches!(stolen, Err(Error::Report { .. })), "{name}");
        assert_eq!(before, everything(&store).await, "{name}");
    }
}

/// A card with `count` virtual functions, each a device with a deployable of its own.
fn functions(count: usize) -> Vec<Device> {
    let function = |number: usize| {
        let address = format!("0000:{:02x}:{:02x}.{}", number >> 8, (number >> 3) & 31, number & 7);
        let slots = vec![HandleSlot::Pci { address: address.clone() }];
        let mut one = device(&address, DeviceKind::Nic, &format!("vf{number}"), "CUSTOM_VF", slots);
        one.card = Some("0000:ff:00.0".into());
        let facts = (0..4).map(|at| (format!("fact{at}"), format!("{number}")));
        one.deployables[0].facts = facts.collect();
        one
    };
    (0..count).map(function).collect()
}

#[tokio::test]
async fn two_thousand_functions_of_a_card_are_reported() {
    for (name, store, _guard) in stores().await {
        let mut devices = functions(2000);
        let first = report(&store, devices.clone()).await.expect("the report is accepted");
        assert_eq!(first.len(), 2000, "{name}");
        devices[7].model = "another".into();
        devices.pop();
        let second = report(&store, devices).await.expect("the report is accepted");
        assert_eq!(second.len(), 1999, "{name}");
        assert_eq!(count(&store, HANDLES).await, 1999, "{name}");
        assert_eq!(audit(&store).await, [""; 0], "{name}");
    }
}

#[tokio::test]
async fn a_report_says_where_devices_are() {
    for (name, store, _guard) in stores().await {
        let at = |address: &str, switch: Option<&str>, peers: &[&str]| Device {
            switch: switch.map(str::to_owned),
            peers: peers.iter().map(|one| (*one).to_owned()).collect(),
            ..vgpu(address, 4)
        };
        let (a, b, c) = ("0000:84:00.0", "0000:85:00.0", "0000:86:00.0");
        let near = vec![
            at(a, Some("0000:81:00.0"), &[b]),
            at(b, Some("0000:81:00.0"), &[a]),
            at(c, None, &["0000:99:00.0"]),
        ];
        let specs = report(&store, near.clone()).await.unwrap();
        let traits = |at: usize, specs: &[kilonova_placement::ledger::ProviderSpec]| {
            specs[at].traits.join(" ")
        };
        let both = "CUSTOM_TEST CUSTOM_NUMA_NODE_0 CUSTOM_PCIE_SWITCH_0 CUSTOM_GPU_ISLAND_0";
        for at in 0..2 {
            assert_eq!(traits(at, &specs), both, "{name}");
        }
        assert_eq!(traits(2, &specs), "CUSTOM_TEST CUSTOM_NUMA_NODE_0", "{name}");
        let ids: Vec<_> = specs.iter().map(|spec| spec.id).collect();
        let places = |store: &Store| {
            let (store, ids) = (store.clone(), ids.clone());
            async move {
                let read = move |tx: &mut kilonova_store::Tx<'_>| {
                    ledger::expect_island_of(tx, ids[0])?;
                    let mut places = ledger::device_places(tx, &ids)?;
                    places.sort_by_key(|place| ids.iter().position(|id| *id == place.provider));
                    let mut island = ledger::island_of(tx, ids[0])?;
                    island.sort_unstable();
                    Ok::<_, Error>((places, island))
                };
                store.read(read).await.unwrap()
            }
        };
        let (found, island) = places(&store).await;
        assert_eq!(found.len(), 3, "{name}");
        let class = kilonova_ids::ResourceClass::verbatim("VGPU");
        let mut both = [(ids[0], class.clone()), (ids[1], class)];
        both.sort_unstable();
        assert_eq!(island, both, "{name}");
        assert_eq!(found[1].switch.as_deref(), Some("0000:81:00.0"), "{name}");
        assert_eq!(found[1].island.as_deref(), Some(a), "{name}");
        assert_eq!((found[2].node, &found[2].switch, &found[2].island), (Some(0), &None, &None));

        // The same report writes nothing; one with another layout changes the rows.
        let before = everything(&store).await;
        report(&store, near.clone()).await.unwrap();
        assert_eq!(everything(&store).await, before, "{name}");
        let apart = vec![at(a, None, &[]), near[1].clone(), near[2].clone()];
        let specs = report(&store, apart).await.unwrap();
        assert_eq!(traits(0, &specs), "CUSTOM_TEST CUSTOM_NUMA_NODE_0 CUSTOM_GPU_ISLAND_0");
        let (found, _) = places(&store).await;
        assert_eq!(found[0].switch, None, "{name}");
        let alone = vec![at(a, None, &[]), at(b, None, &[])];
        let specs = report(&store, alone).await.unwrap();
        assert_eq!(traits(0, &specs), "CUSTOM_TEST CUSTOM_NUMA_NODE_0", "{name}");
        let (found, island) = places(&store).await;
        assert_eq!((found[0].island.as_deref(), island), (None, Vec::new()), "{name}");
        assert_eq!(audit(&store).await, [""; 0], "{name}");
    }
}
