//! Counters of binds for operators' metrics.

use kilonova_accelerator::ledger::{self, BindRequest};
use kilonova_ids::{ConsumerId, HostName, ServerId};
use kilonova_node_api::{DeviceKind, HandleSlot};
use kilonova_placement::World;

use crate::common::{HOST, device, report, stores};

fn count(outcome: &str) -> u64 {
    let all = ledger::binds();
    let one = all.iter().find(|binds| binds.source == "server" && binds.outcome == outcome);
    one.expect("a counter exists for each pair").count
}

#[tokio::test]
async fn binds_and_causes_of_failure_are_counted() {
    for (name, store, _guard) in stores().await {
        let before = [count("bound"), count("no_free_handle"), count("other_host")];
        let slot = vec![HandleSlot::Pci { address: "0000:25:00.0".into() }];
        let card = device("0000:25:00.0", DeviceKind::Gpu, "0000:25:00.0", "PGPU", slot);
        let provider = report(&store, vec![card]).await.expect("the device is reported")[0].id;
        let bind = async |host: &'static str, end: bool| {
            let want = BindRequest { provider, count: 1, group: 0, profile: None };
            let server = ServerId::new_v4();
            let wants = [want];
            store
                .write(move |tx| {
                    let consumer = ConsumerId::new_v4();
                    let world = World::new();
                    ledger::bind(
                        tx,
                        &world,
                        server,
                        consumer,
                        "p",
                        &HostName::verbatim(host),
                        &wants,
                    )?;
                    if end {
                        Err(kilonova_accelerator::Error::AlreadyBound(server))
                    } else {
                        Ok(())
                    }
                })
                .await
        };
        bind(HOST, true).await.expect_err("the transaction is aborted");
        bind(HOST, false).await.expect("the request is bound");
        bind(HOST, false).await.expect_err("a second bind is refused");
        bind("elsewhere", false).await.expect_err("the provider of another host is refused");
        let after = [count("bound"), count("no_free_handle"), count("other_host")];
        assert_eq!(after, before.map(|count| count + 1), "{name}");
    }
}
