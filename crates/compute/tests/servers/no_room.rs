//! Boots without room in a large cloud: the cost of the diagnosis is bounded, and it does not block other
//! requests.

use std::time::{Duration, Instant};

use kilonova_compute_app::Compute;
use kilonova_store::Store;
use kilonova_store::testing::Meter;
use serde_json::json;

use crate::common::BOB;
use crate::kit::{Cloud, RunningCloud, client, fault, hosts};

/// As in `examples/nodes/bench.toml`.
const EIGHT_CARDS: &str = r#"
card = [{ card = "m10x16", addresses = ["0000:04:00.0", "0000:05:00.0", "0000:06:00.0",
    "0000:07:00.0", "0000:84:00.0", "0000:85:00.0", "0000:86:00.0", "0000:87:00.0"] }]
devices = { enabled_mdev_types = ["nvidia-35"] }
"#;
/// Hosts with an agent.
const HOSTS_WITH_AGENT: usize = 4;
/// Copies of those hosts in the device ledger.
const COPIES: i64 = 74;
/// Servers that take a card each.
const SERVERS: usize = 30;

/// The SQLite steps that the diagnosis may take in a read. Joining the handles in use with the free
/// ones takes two hundred million.
const MAX_READ_STEPS: u64 = 500_000;
/// The SQLite steps that a boot without room may take in write transactions.
const MAX_WRITE_STEPS: u64 = 20_000;

/// Further hosts of the same kind, known to the device ledger only.
async fn copy_hosts(store: &Store) {
    let numbers = format!(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {COPIES})"
    );
    let statements = [
        format!(
            "{numbers} INSERT INTO devices (uuid, host, address, card, mixed, kind, vendor_id,
                product_id, model, numa_node, status, health, present, created_at)
            SELECT d.uuid || '-' || n, d.host || '-' || n, address, card, mixed, kind, vendor_id,
                product_id, model, numa_node, status, health, present, created_at
            FROM devices d CROSS JOIN n"
        ),
        format!(
            "{numbers} INSERT INTO deployables (uuid, device_id, provider_id, name, resource_class,
                driver, present, created_at)
            SELECT p.uuid || '-' || n, e.id, p.provider_id || '-' || n, p.name || '-' || n,
                p.resource_class, p.driver, p.present, p.created_at
            FROM n CROSS JOIN deployables p JOIN devices d ON d.id = p.device_id
            JOIN devices e ON e.uuid = d.uuid || '-' || n"
        ),
        format!(
            "{numbers} INSERT INTO attach_handles (uuid, deployable_id, attach_type, address,
                mdev_type, slot, state, present, created_at)
            SELECT h.uuid || '-' || n, q.id, h.attach_type, h.address, h.mdev_type, h.slot, 'free',
                h.present, h.created_at
            FROM n CROSS JOIN attach_handles h JOIN deployables p ON p.id = h.deployable_id
            JOIN deployables q ON q.uuid = p.uuid || '-' || n"
        ),
    ];
    for sql in statements {
        let sql: &'static str = sql.leak();
        store.write(move |tx| tx.execute(sql, &[])).await.expect("the hosts are copied");
    }
}

/// Checks that a boot of the flavor fails within the limits; returns its fault.
async fn assert_refused_within_limits(
    cloud: &Cloud,
    running: &RunningCloud,
    meter: &Meter,
    what: &str,
) -> String {
    let counted = Compute {
        store: running.compute.store.with_meter(meter.clone()),
        ..running.compute.clone()
    };
    let counted = client(counted);
    meter.take_work();
    let boot_request = running.boot_request(cloud, "17", "vgpu17x");
    let made = counted
        .call(crate::kit::ANN, "2.90", "POST /servers", Some(boot_request))
        .await
        .expect(202);
    let (read, written) = meter.take_work();
    assert!(read < MAX_READ_STEPS, "{what}: {read} instructions in reads");
    assert!(written < MAX_WRITE_STEPS, "{what}: {written} instructions in writes");
    let id = made["server"]["id"].as_str().expect("the answer has an id");
    let server = running.wait_for_status(id, "ERROR").await;
    let message = fault(&server).to_owned();
    assert!(message.starts_with("No valid host was found. "), "{what}: {message}");
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn diagnosing_a_boot_without_room_is_cheap() {
    let names: Vec<String> = (0..HOSTS_WITH_AGENT).map(|n| format!("h{n}")).collect();
    let entries: Vec<(&str, &[&str])> =
        names.iter().map(|name| (name.as_str(), [EIGHT_CARDS].as_slice())).collect();
    for (cloud, running) in Cloud::all_running(hosts(&entries)).await {
        running.remove_quota_limits().await;
        for count in [1, 16, 17] {
            running.flavor(&format!("vgpu{count}x"), json!({})).await;
            let specs = json!({"extra_specs": {"resources:VGPU": count.to_string()}});
            let path = format!("POST /flavors/vgpu{count}x/os-extra_specs");
            running.admin("2.61", &path, specs).await.expect(200);
        }
        for n in 0..SERVERS {
            running.active_server(&cloud, &format!("n{n}"), "vgpu16x").await;
        }
        cloud.assert_consistent(&running, "30 servers").await;
        copy_hosts(&cloud.store).await;
        let meter = Meter::counting();
        assert_refused_within_limits(&cloud, &running, &meter, "cards of one kind of handle").await;

        // Every card becomes a mixed card with one handle in use.
        let mixed = "UPDATE devices SET mixed = 1";
        cloud
            .store
            .write(move |tx| tx.execute(mixed, &[]))
            .await
            .expect("the handles become mixed");
        let whole = "UPDATE attach_handles SET state = 'failed', attach_type = 'PCI' WHERE id IN
            (SELECT MIN(id) FROM attach_handles WHERE state = 'free' GROUP BY deployable_id)";
        cloud.store.write(move |tx| tx.execute(whole, &[])).await.expect("the handles are claimed");
        let message = assert_refused_within_limits(&cloud, &running, &meter, "mixed cards").await;
        assert!(message.ends_with(" The same applies to more cards."), "{message}");

        let begun = Instant::now();
        let boot_request = |flavor: &str| running.boot_request(&cloud, "one", flavor);
        let (none, one) = tokio::join!(
            running.call(crate::kit::ANN, "2.90", "POST /servers", Some(boot_request("vgpu17x"))),
            async {
                let made =
                    running.call(BOB, "2.90", "POST /servers", Some(boot_request("plain"))).await;
                (made, begun.elapsed())
            }
        );
        none.expect(202);
        one.0.expect(202);
        assert!(one.1 < Duration::from_secs(5), "{}: the other boot took {:?}", cloud.name, one.1);
    }
}
