//! Reading a state that no version writes is an error, and never yields a default.

use jiff::Timestamp;
use kilonova_compute_db::{Error, census, fleet, hosts, servers};
use kilonova_ids::{HostName, ServerId};
use kilonova_store::{Error as StoreError, Tx, params};

use crate::resources::kit::{Api, apis};

/// Runs `sql` and reads with `read`.
async fn read_after<T: Send + 'static>(
    api: &Api,
    sql: &'static str,
    read: impl Fn(&mut Tx<'_>) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let run = api.store.write(move |tx| {
        tx.execute(sql, params![])?;
        Ok::<_, Error>(read(tx))
    });
    run.await.expect("the row is changed")
}

fn server(tx: &mut Tx<'_>) -> Result<servers::Server, Error> {
    let row = tx.row("SELECT id FROM servers", params![])?.expect("there is a server");
    let id: ServerId = row.id("id")?;
    Ok(servers::find(tx, id)?.expect("the server exists"))
}

fn assert_refused<T: std::fmt::Debug>(read: Result<T, Error>, column: &str) {
    let Err(Error::Store(StoreError::Shape(why))) = read else {
        panic!("{column}: expected a row that cannot be read, not {read:?}");
    };
    assert!(why.contains("unknown") || why.contains("not a time"), "{column}: {why}");
}

#[tokio::test]
async fn an_unknown_state_of_a_server_is_an_error() {
    for (column, bad, good) in [
        (
            "vm_state",
            "UPDATE servers SET vm_state = 'melted'",
            "UPDATE servers SET vm_state = 'paused'",
        ),
        (
            "task_state",
            "UPDATE servers SET task_state = 'melting'",
            "UPDATE servers SET task_state = 'pausing'",
        ),
        ("power_state", "UPDATE servers SET power_state = 2", "UPDATE servers SET power_state = 3"),
        (
            "launched_at",
            "UPDATE servers SET launched_at = 9000000000000000000",
            "UPDATE servers SET launched_at = 253402207200999999",
        ),
    ] {
        for api in apis().await {
            api.server("red", "ann", "h", 1, 64).await;
            read_after(&api, good, server).await.expect("the server is read");
            assert_refused(read_after(&api, bad, server).await, column);
            if column == "vm_state" {
                assert_refused(read_after(&api, bad, census::servers).await, "vm_state counted");
            }
        }
    }
}

#[tokio::test]
async fn an_unknown_status_of_a_host_is_an_error() {
    for api in apis().await {
        api.host("h", Timestamp::UNIX_EPOCH).await;
        let disabled = "UPDATE hosts SET status = 'disabled'";
        let host =
            read_after(&api, disabled, |tx| hosts::by_name(tx, &HostName::verbatim("h"))).await;
        assert!(!host.expect("the host is read").expect("the host exists").enabled);
        let melted = "UPDATE hosts SET status = 'melted'";
        assert_refused(
            read_after(&api, melted, |tx| hosts::by_name(tx, &HostName::verbatim("h"))).await,
            "status",
        );
        assert_refused(read_after(&api, melted, fleet::all).await, "status in the fleet");
    }
}
