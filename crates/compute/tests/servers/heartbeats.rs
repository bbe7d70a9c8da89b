//! Heartbeats of hosts, which are stored while boots write the same rows.

use std::sync::mpsc;

use kilonova_compute_db::fleet;
use kilonova_ids::HostName;
use kilonova_store::{Error, System, params};
use kilonova_wire::time;

use crate::kit::{Cloud, GPU, hosts};

/// If a heartbeat of several hosts waited for the row of one host, it would lock the rows of the others, and
/// boots would wait for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_does_not_wait_for_a_row_that_changes() {
    for cloud in Cloud::all(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        drop(running);
        if cloud.store.system() != System::Postgres {
            continue;
        }
        let (begun, begins) = tokio::sync::oneshot::channel();
        let (end, ends) = mpsc::channel();
        let (store, mut begun) = (cloud.store.clone(), Some(begun));
        let held = tokio::spawn(async move {
            let work = move |tx: &mut kilonova_store::Tx<'_>| {
                tx.execute("UPDATE hosts SET host = host WHERE host = ?1", params!["a"])?;
                if let Some(begun) = begun.take() {
                    begun.send(()).expect("the test waits");
                    ends.recv().expect("the test ends the transaction");
                }
                Ok::<_, Error>(())
            };
            store.write(work).await
        });
        begins.await.expect("the row is locked");
        // Later than every heartbeat that the hosts have sent.
        let at = time::now() + jiff::SignedDuration::from_hours(1);
        let both = [HostName::verbatim("a"), HostName::verbatim("b")];
        let seen = cloud.store.write(move |tx| match fleet::ask_seen(tx, &both, at)? {
            Some(asked) => fleet::seen(tx, asked),
            None => Ok(Vec::new()),
        });
        let seen = seen.await.expect("the heartbeat does not wait for the row");
        assert_eq!(seen, ["b"].map(HostName::verbatim));
        let late = "SELECT host FROM hosts
            WHERE last_seen > CAST(EXTRACT(EPOCH FROM now()) * 1000000 AS BIGINT) + 1800000000";
        assert_eq!(cloud.column(late).await, ["b"], "only the next round stores host a");
        end.send(()).expect("the transaction waits");
        held.await.expect("it does not panic").expect("it commits");
    }
}
