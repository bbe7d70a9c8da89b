//! A card that is offered both as a whole and as virtual functions is assigned in one way only.

use kilonova_accelerator::{Error, ledger};
use kilonova_ids::{ConsumerId, ProviderId, ServerId};
use kilonova_node_api::{Attachment, Deployable, Device, DeviceKind, HandleSlot};
use kilonova_placement::World;
use kilonova_store::Store;

use crate::common::{audit, device, host, report, stores};

const CARD: &str = "0000:25:00.0";
const PARTS: [&str; 2] = ["0000:25:00.4", "0000:25:00.5"];

/// One GPU, as a whole and as two vGPUs.
fn gpu() -> Device {
    let whole = vec![HandleSlot::Pci { address: CARD.into() }];
    let mut gpu = device(CARD, DeviceKind::Gpu, CARD, "PGPU", whole);
    let slot = |address: &&str| HandleSlot::Vfio {
        address: (*address).to_owned(),
        vgpu_type: "nvidia-558".into(),
    };
    gpu.deployables.push(Deployable {
        name: format!("{CARD}_VGPU"),
        resource_class: kilonova_ids::ResourceClass::verbatim("VGPU"),
        slots: PARTS.iter().map(slot).collect(),
        ..gpu.deployables[0].clone()
    });
    gpu
}

async fn bind(
    store: &Store,
    consumer: ConsumerId,
    provider: ProviderId,
) -> Result<Attachment, Error> {
    let want = ledger::BindRequest { provider, count: 1, group: 0, profile: None };
    let bound = store
        .write(move |tx| {
            ledger::bind(
                tx,
                &World::new(),
                ServerId::new_v4(),
                consumer,
                "p1",
                &host(),
                std::slice::from_ref(&want),
            )
        })
        .await?;
    Ok(bound[0].attachment.clone())
}

async fn release(store: &Store, consumer: ConsumerId) {
    store.write(move |tx| ledger::release(tx, &World::new(), consumer)).await.unwrap();
}

#[tokio::test]
async fn the_first_claim_on_a_mixed_card_decides() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![gpu()]).await.unwrap();
        let [whole, parts] = [specs[0].id, specs[1].id];
        let [first, second, third] = [0; 3].map(|_| ConsumerId::new_v4());
        let got = bind(&store, first, parts).await.unwrap();
        let vgpu_type = "nvidia-558".to_owned();
        assert_eq!(
            got,
            Attachment::Vfio { address: PARTS[0].into(), vgpu_type, instance: None },
            "{name}"
        );
        let refused = bind(&store, second, whole).await;
        assert!(matches!(refused, Err(Error::NoHandle(id)) if id == whole), "{name} {refused:?}");
        bind(&store, second, parts).await.expect("parts do not exclude each other");
        release(&store, first).await;
        assert!(bind(&store, third, whole).await.is_err(), "{name}: a part is still in use");
        release(&store, second).await;
        let got = bind(&store, third, whole).await.unwrap();
        assert_eq!(got, Attachment::Pci { address: CARD.into() }, "{name}");
        let refused = bind(&store, first, parts).await;
        assert!(matches!(refused, Err(Error::NoHandle(id)) if id == parts), "{name} {refused:?}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

/// Lets four consumers claim concurrently, two from each provider. Returns how many of each got a
/// device.
async fn race(store: &Store, providers: [ProviderId; 2], consumers: [ConsumerId; 4]) -> [usize; 2] {
    let tasks = consumers.into_iter().enumerate().map(|(at, consumer)| {
        let (store, provider) = (store.clone(), providers[at % 2]);
        tokio::spawn(async move { (at % 2, bind(&store, consumer, provider).await) })
    });
    let mut given = [0, 0];
    for task in tasks.collect::<Vec<_>>() {
        let (kind, result) = task.await.unwrap();
        match result {
            Ok(_) => given[kind] += 1,
            Err(Error::NoHandle(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    given
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_claims_never_get_a_whole_card_and_a_part_of_it() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![gpu()]).await.unwrap();
        for round in 0..20 {
            let consumers = [0; 4].map(|_| ConsumerId::new_v4());
            let given = race(&store, [specs[0].id, specs[1].id], consumers).await;
            assert!(matches!(given, [1, 0] | [0, 1..=2]), "{name} round {round}: {given:?}");
            assert_eq!(audit(&store).await, Vec::<String>::new(), "{name} round {round}");
            for consumer in consumers {
                release(&store, consumer).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_claims_never_get_two_types_of_a_card() {
    let slots = |mdev_type: &str| vec![HandleSlot::Mdev { mdev_type: mdev_type.into(), count: 2 }];
    let mut card = device(CARD, DeviceKind::Gpu, CARD, "VGPU", slots("nvidia-35"));
    let name = format!("{CARD}_nvidia-36");
    let other = Deployable { name, slots: slots("nvidia-36"), ..card.deployables[0].clone() };
    card.deployables.push(other);
    card.one_type = true;
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![card.clone()]).await.unwrap();
        for round in 0..20 {
            let consumers = [0; 4].map(|_| ConsumerId::new_v4());
            let given = race(&store, [specs[0].id, specs[1].id], consumers).await;
            assert!(matches!(given, [1..=2, 0] | [0, 1..=2]), "{name} round {round}: {given:?}");
            assert_eq!(audit(&store).await, Vec::<String>::new(), "{name} round {round}");
            for consumer in consumers {
                release(&store, consumer).await;
            }
        }
    }
}
