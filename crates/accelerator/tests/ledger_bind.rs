//! Assigning and releasing handles: one owner each, all or nothing, also in races.

use kilonova_accelerator::{Error, ledger};
use kilonova_ids::{ConsumerId, HostName, ProviderId, ServerId};
use kilonova_node_api::Attachment;
use kilonova_placement::World;
use kilonova_store::Store;

use crate::common::{HOST, audit, count, fake, report, stores, vgpu};

const OWNED: &str = "SELECT COUNT(*) FROM attach_handles WHERE state = 'owned'";
const ARQS: &str = "SELECT COUNT(*) FROM arqs";

async fn bind(
    store: &Store,
    consumer: ConsumerId,
    host: &'static str,
    wants: Vec<(ProviderId, i64)>,
) -> Result<Vec<ledger::Binding>, Error> {
    store
        .write(move |tx| {
            let wants: Vec<ledger::BindRequest> = wants
                .iter()
                .map(|(provider, count)| ledger::BindRequest {
                    provider: *provider,
                    count: *count,
                    group: 0,
                    profile: None,
                })
                .collect();
            ledger::bind(
                tx,
                &World::new(),
                ServerId::new_v4(),
                consumer,
                "p1",
                &HostName::verbatim(host),
                &wants,
            )
        })
        .await
}

#[tokio::test]
async fn the_lowest_free_handles_are_assigned_and_reused() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(4)]).await.unwrap();
        let (first, second) = (ConsumerId::new_v4(), ConsumerId::new_v4());
        let got = bind(&store, first, HOST, vec![(specs[0].id, 2)]).await.unwrap();
        let address = |n| Attachment::TestPci { address: format!("0000:0c:00.{n}") };
        assert_eq!(got[0].attachment, address(0), "{name}");
        assert_eq!(got[1].attachment, address(1), "{name}");
        let more = bind(&store, second, HOST, vec![(specs[0].id, 1)]).await.unwrap();
        assert_eq!(more[0].attachment, address(2), "{name}");
        for _ in 0..2 {
            store.write(move |tx| ledger::release(tx, &World::new(), first)).await.unwrap();
        }
        assert_eq!((count(&store, OWNED).await, count(&store, ARQS).await), (1, 1), "{name}");
        let again = bind(&store, second, HOST, vec![(specs[0].id, 1)]).await.unwrap();
        assert_eq!(again[0].attachment, address(0), "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn an_mdev_gets_a_fresh_uuid_each_time() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![vgpu("0000:84:00.0", 1)]).await.unwrap();
        let mut seen = Vec::new();
        for _ in 0..2 {
            let consumer = ConsumerId::new_v4();
            let got = bind(&store, consumer, HOST, vec![(specs[0].id, 1)]).await.unwrap();
            let Attachment::Mdev { uuid, parent, mdev_type } = &got[0].attachment else {
                panic!("{name}: {got:?}");
            };
            assert_eq!((parent.as_str(), mdev_type.as_str()), ("0000:84:00.0", "nvidia-35"));
            assert_eq!(uuid.to_string(), got[0].handle.to_string());
            seen.push(*uuid);
            store.write(move |tx| ledger::release(tx, &World::new(), consumer)).await.unwrap();
        }
        assert_ne!(seen[0], seen[1], "{name}");
    }
}

#[tokio::test]
async fn a_bind_without_enough_handles_leaves_nothing() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(3), vgpu("0000:84:00.0", 1)]).await.unwrap();
        let (fpga, gpu) = (specs[0].id, specs[1].id);
        let consumer = ConsumerId::new_v4();
        let short = bind(&store, consumer, HOST, vec![(fpga, 3), (gpu, 2)]).await;
        assert!(matches!(short, Err(Error::NoHandle(which)) if which == gpu), "{name}");
        let elsewhere = bind(&store, consumer, "cmp2", vec![(fpga, 1)]).await;
        assert!(matches!(elsewhere, Err(Error::OtherHost { .. })), "{name}");
        let unknown = bind(&store, consumer, HOST, vec![(ProviderId::new_v4(), 1)]).await;
        assert!(matches!(unknown, Err(Error::NoDeployable(_))), "{name}");
        assert_eq!((count(&store, OWNED).await, count(&store, ARQS).await), (0, 0), "{name}");
    }
}

#[tokio::test]
async fn concurrent_binds_never_share_a_handle() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(8)]).await.unwrap();
        let provider = specs[0].id;
        let tasks: Vec<_> = (0..12)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move {
                    bind(&store, ConsumerId::new_v4(), HOST, vec![(provider, 1)]).await
                })
            })
            .collect();
        let mut bound = 0;
        for task in tasks {
            match task.await.unwrap() {
                Ok(_) => bound += 1,
                Err(error) => assert!(matches!(error, Error::NoHandle(_)), "{name}: {error}"),
            }
        }
        assert_eq!((bound, count(&store, OWNED).await), (8, 8), "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}
