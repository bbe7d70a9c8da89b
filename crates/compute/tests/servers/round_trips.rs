//! How often an operation waits for PostgreSQL, from its request to the host's last report.
//!
//! The numbers are limits: an operation that needs more waits longer and holds its rows longer. Fewer
//! are an improvement, which lowers the limit here.

use kilonova_store::Store;
use kilonova_store::testing::{Meter, Transaction};
use serde_json::json;

use crate::kit::{ANN, Cloud, GPU, RunningCloud, hosts, wait_until};

/// Round trips of a boot and of a delete, by flavor and networks.
const LIMITS: &[(&str, &str, u64, u64)] =
    &[("plain", "none", 7, 26), ("vgpu", "none", 8, 26), ("plain", "auto", 22, 28)];

/// Waits until no operation is open and every host has acknowledged its newest document, without
/// statements that the meter counts.
async fn settle(plain: &Store, running: &RunningCloud) {
    const OPEN: &str = "SELECT COUNT(*) AS number FROM operations WHERE outcome = 'open'";
    wait_until("the operation ends", async || {
        let open = plain.read(|tx| tx.row(OPEN, &[])).await.expect("the table is readable");
        open.expect("one row").int("number").expect("a number") == 0
            && running
                .compute
                .fleet
                .all()
                .iter()
                .all(|h| h.answered() >= h.newest().borrow().generation)
    })
    .await;
}

/// The transactions and statements, for the message of a failure.
fn listing(transactions: &[Transaction]) -> String {
    let line = |statement: &kilonova_store::testing::Listed| {
        let words: Vec<&str> = statement.sql.split_whitespace().collect();
        let short: String = words.join(" ").chars().take(120).collect();
        format!("    {} {short}\n", statement.round_trip)
    };
    let text = |one: &Transaction| {
        let kind = if one.is_write { "write" } else { "read" };
        let statements: String = one.statements.iter().map(line).collect();
        format!("{kind}, {} round trips\n{statements}", one.round_trips)
    };
    transactions.iter().map(text).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn boots_and_deletes_wait_seldom() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU])])).await {
        let meter = Meter::listing();
        let plain = cloud.store.clone();
        cloud.store = plain.with_meter(meter.clone());
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        for (flavor, networks, boot, delete) in LIMITS {
            settle(&plain, &running).await;
            meter.take_transactions();
            let check = |what: &str, limit: u64| {
                let listed = meter.take_transactions();
                let trips: u64 = listed.iter().map(|one| one.round_trips).sum();
                let statements: usize = listed.iter().map(|one| one.statements.len()).sum();
                let name = cloud.name;
                println!(
                    "{name}: {what} of {flavor}, networks {networks}: {statements} statements, {trips} round trips"
                );
                assert!(
                    trips <= limit,
                    "{what} of {flavor}, {networks}: {trips}\n{}",
                    listing(&listed)
                );
            };
            let connected = json!({"networks": networks});
            let id = running.boot_with(&cloud, "one", flavor, connected).await;
            settle(&plain, &running).await;
            check("boot", *boot);
            running.delete(&id).await;
            settle(&plain, &running).await;
            check("delete", *delete);
        }
    }
}
