//! Stored values that no type describes are errors: no default replaces them.

use kilonova_accelerator::{Error, ledger};
use kilonova_ids::{ConsumerId, ServerId};
use kilonova_placement::World;
use kilonova_store::{Error as StoreError, Store, params};

use crate::common::arqs::{PATH, SERVER, bind, request};
use crate::common::{Api, count, fake, host, report, stores};

async fn execute(store: &Store, sql: &'static str) {
    let changed = store.write(move |tx| tx.execute(sql, params![])).await;
    assert!(changed.expect("the statement runs") > 0, "{sql}");
}

#[tokio::test]
async fn a_handle_with_an_unknown_attach_type_is_not_assigned() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(1)]).await.expect("the report is applied");
        execute(&store, "UPDATE attach_handles SET attach_type = 'CDI'").await;
        let request =
            ledger::BindRequest { provider: specs[0].id, count: 1, group: 0, profile: None };
        let bound = store
            .write(move |tx| {
                let (server, consumer) = (ServerId::new_v4(), ConsumerId::new_v4());
                let requests = std::slice::from_ref(&request);
                ledger::bind(tx, &World::new(), server, consumer, "p1", &host(), requests)
            })
            .await;
        match bound {
            Err(Error::Store(StoreError::Shape(text))) => {
                assert!(text.contains("attach_type") && text.contains("CDI"), "{name}: {text}");
            }
            other => panic!("{name}: the bind must fail on the row, not {other:?}"),
        }
        assert_eq!(count(&store, "SELECT COUNT(*) FROM arqs").await, 0, "{name}");
    }
}

#[tokio::test]
async fn unknown_values_of_a_bound_request_are_internal_errors() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(1)]).await.expect("the report is applied");
        let nova = Api::admin(&store).with_service();
        let arqs = request(&nova, "FPGA", "1").await;
        nova.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        let path = format!("{PATH}/{}", arqs[0]);
        assert_eq!(nova.get(&path).await.body["state"], "Bound", "{name}");
        for (wrong, right) in [
            (
                "UPDATE attach_handles SET attach_type = 'CDI'",
                "UPDATE attach_handles SET attach_type = 'TEST_PCI'",
            ),
            ("UPDATE arqs SET state = 'Binding'", "UPDATE arqs SET state = 'Bound'"),
        ] {
            execute(&store, wrong).await;
            assert_eq!(nova.get(&path).await.status, 500, "{name}: {wrong}");
            execute(&store, right).await;
            assert_eq!(nova.get(&path).await.status, 200, "{name}: {right}");
        }
    }
}
