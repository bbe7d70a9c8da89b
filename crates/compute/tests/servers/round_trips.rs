//! How often an operation waits for PostgreSQL, from its request to the host's last report.
//!
//! The numbers are limits: an operation that needs more waits longer and holds its rows longer. An
//! improvement lowers the limit here. With `KILONOVA_LIST_STATEMENTS` set the test also
//! prints every transaction.

use std::time::Duration;

use kilonova_store::Store;
use kilonova_store::testing::{CrashPlan, Listed, Meter, Transaction};
use serde_json::{Value, json};

use super::numa::flavor;
use crate::kit::{ANN, Cloud, FPGA, GPU, RunningCloud, TWO_CELLS, hosts, wait_until};

/// How long no transaction may have run before an operation is counted.
const QUIET: Duration = Duration::from_millis(60);

/// Waits until no operation is open, no guest is left to remove, and every host has acknowledged its
/// newest document, without statements that the meter counts.
async fn settle(plain: &Store, running: &RunningCloud) {
    const OPEN: &str = "SELECT (SELECT COUNT(*) FROM operations WHERE outcome = 'open')
        + (SELECT COUNT(*) FROM documents WHERE body = '{\"state\":\"absent\"}') AS number";
    wait_until("the operation ends", async || {
        let open = plain.read(|tx| tx.row(OPEN, &[])).await.expect("the table is readable");
        open.expect("one row").int("number").expect("a number") == 0
            && running
                .compute
                .fleet
                .all()
                .iter()
                .all(|h| h.acknowledged() >= h.newest().borrow().generation)
    })
    .await;
}

/// The transactions and statements, for the message of a failure.
fn listing(transactions: &[Transaction]) -> String {
    let line = |statement: &Listed| {
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

/// A cloud whose operations are counted.
struct Probe {
    name: &'static str,
    plain: Store,
    meter: Meter,
    /// The operations that exceed their limit, with their transactions.
    exceeded: Vec<String>,
}

impl Probe {
    /// Counts the statements of everything that starts on this cloud from now on.
    fn new(cloud: &mut Cloud) -> Self {
        let (meter, plain) = (Meter::listing(), cloud.store.clone());
        cloud.store = plain.with_meter(meter.clone());
        Self { name: cloud.name, plain, meter, exceeded: Vec::new() }
    }

    /// Runs an operation to its end, and compares its round trips with the limit.
    async fn count<T>(
        &mut self,
        running: &RunningCloud,
        what: &str,
        limit: u64,
        operation: impl AsyncFnOnce() -> T,
    ) -> T {
        settle(&self.plain, running).await;
        self.wait_until_quiet().await;
        let answer = operation().await;
        settle(&self.plain, running).await;
        self.check(what, limit);
        answer
    }

    /// Waits until no transaction has run for a moment. A host may repeat its last report of the previous
    /// operation, which must not count for the next one.
    async fn wait_until_quiet(&self) {
        wait_until("no transaction runs", async || {
            self.meter.take_transactions();
            tokio::time::sleep(QUIET).await;
            self.meter.take_transactions().is_empty()
        })
        .await;
    }

    /// Compares the round trips since the last call with the limit.
    fn check(&mut self, what: &str, limit: u64) {
        let listed = self.meter.take_transactions();
        let trips: u64 = listed.iter().map(|one| one.round_trips).sum();
        let statements: usize = listed.iter().map(|one| one.statements.len()).sum();
        let (name, number) = (self.name, listed.len());
        println!(
            "{name}: {what}: {number} transactions, {statements} statements, {trips} round trips"
        );
        if std::env::var_os("KILONOVA_LIST_STATEMENTS").is_some() {
            println!("{}", listing(&listed));
        }
        if trips > limit {
            self.exceeded.push(format!("{what}: {trips}, not {limit}\n{}", listing(&listed)));
        }
    }

    fn assert(&self) {
        assert!(self.exceeded.is_empty(), "{}: {}", self.name, self.exceeded.join("\n"));
    }
}

/// Requests an action as an admin.
async fn act(running: &RunningCloud, id: &str, action: Value) {
    running.admin("2.90", &format!("POST /servers/{id}/action"), action).await.expect(202);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_wait_seldom() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let mut probe = Probe::new(&mut cloud);
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        // The first boot of an image at a controller also reads the image's EC2 number, or gives it one.
        let first = running.active_server(&cloud, "first", "plain").await;
        running.delete(&first).await;
        running.wait_until_gone(&first).await;
        settle(&probe.plain, &running).await;
        let private = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        for (name, flavor, networks, boot, delete) in [
            ("no network", "plain", json!("none"), 6, 8),
            ("a vGPU", "vgpu", json!("none"), 7, 8),
            ("the first network", "plain", json!("auto"), 10, 9),
            ("one network", "plain", json!("auto"), 10, 9),
        ] {
            let connected = json!({"networks": networks});
            let what = format!("boot, {name}");
            let id = probe
                .count(&running, &what, boot, async || {
                    running.boot_with(&cloud, "one", flavor, connected).await
                })
                .await;
            let what = format!("delete, {name}");
            probe.count(&running, &what, delete, async || running.delete(&id).await).await;
        }
        let other = running.network_with_subnet(ANN, "other", "10.0.1.0/24").await;
        let both = json!({"networks": [{"uuid": private}, {"uuid": other}]});
        let id = probe
            .count(&running, "boot, two networks", 11, async || {
                running.boot_with(&cloud, "one", "plain", both).await
            })
            .await;
        probe.count(&running, "delete, two networks", 9, async || running.delete(&id).await).await;
        let port = running.port(ANN, &private, json!({})).await;
        let prepared = json!({"networks": [{"port": port}]});
        let id = probe
            .count(&running, "boot, an existing port", 12, async || {
                running.boot_with(&cloud, "one", "plain", prepared).await
            })
            .await;
        probe
            .count(&running, "delete, an existing port", 9, async || running.delete(&id).await)
            .await;

        let id = running.boot(&cloud, "one", "vgpu").await;
        settle(&probe.plain, &running).await;
        for (what, action, limit) in [
            ("stop", json!({"os-stop": null}), 7),
            ("start", json!({"os-start": null}), 7),
            ("soft reboot", json!({"reboot": {"type": "SOFT"}}), 7),
            ("hard reboot", json!({"reboot": {"type": "HARD"}}), 7),
            ("pause", json!({"pause": null}), 8),
            ("unpause", json!({"unpause": null}), 8),
            ("resize", json!({"resize": {"flavorRef": "vgpu4"}}), 25),
            ("confirm the resize", json!({"confirmResize": null}), 8),
            ("cold migration", json!({"migrate": null}), 23),
            ("confirm the cold migration", json!({"confirmResize": null}), 8),
        ] {
            probe
                .count(&running, what, limit, async || match what {
                    "confirm the resize" | "confirm the cold migration" => {
                        let path = format!("POST /servers/{id}/action");
                        running.admin("2.90", &path, action).await.expect(204);
                    }
                    _ => act(&running, &id, action).await,
                })
                .await;
        }
        running.delete(&id).await;
        settle(&probe.plain, &running).await;

        let id = running.boot(&cloud, "one", "plain").await;
        settle(&probe.plain, &running).await;
        let live = json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
        probe.count(&running, "live migration", 50, async || act(&running, &id, live).await).await;
        probe
            .count(&running, "attach a network", 22, async || {
                let body = json!({"interfaceAttachment": {"net_id": private}});
                let path = format!("POST /servers/{id}/os-interface");
                running.call(ANN, "2.90", &path, Some(body)).await.expect(200);
            })
            .await;
        let path = format!("/servers/{id}");
        probe
            .count(&running, "show", 2, async || {
                running.get(ANN, "2.90", &path).await.expect(200);
            })
            .await;
        probe
            .count(&running, "list with details", 2, async || {
                running.get(ANN, "2.90", "/servers/detail").await.expect(200);
            })
            .await;
        probe
            .count(&running, "list", 1, async || {
                running.get(ANN, "2.90", "/servers").await.expect(200);
            })
            .await;
        let ports = running.get(ANN, "2.90", &format!("/servers/{id}/os-interface")).await;
        let attached = ports.expect(200)["interfaceAttachments"][0]["port_id"].clone();
        let attached = attached.as_str().expect("the server has a port").to_owned();
        probe
            .count(&running, "detach the network", 13, async || {
                let path = format!("DELETE /servers/{id}/os-interface/{attached}");
                running.call(ANN, "2.90", &path, None).await.expect(202);
            })
            .await;
        probe.assert();
    }
}

/// A claim on a divided host determines its cells from earlier answers, so it waits once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn boots_on_divided_hosts_wait_seldom() {
    let whole: &[&str] = &[TWO_CELLS, "numa_in_placement = false"];
    let divided: &[&str] = &[TWO_CELLS, "numa_in_placement = true"];
    let two_cells = json!({"hw:cpu_policy": "dedicated", "hw:numa_nodes": "2"});
    for (what, lines, more) in [("an undivided host", whole, 0), ("a divided host", divided, 1)] {
        for mut cloud in Cloud::all(hosts(&[("a", lines)])).await {
            let mut probe = Probe::new(&mut cloud);
            let running = cloud.start().await;
            running.wait_for_hosts().await;
            flavor(&running, "two-cells", 4, 512, two_cells.clone()).await;
            flavor(&running, "wide", 4, 40_000, json!({})).await;
            let first = running.active_server(&cloud, "first", "plain").await;
            running.delete(&first).await;
            running.wait_until_gone(&first).await;
            for (guest, flavor, boot) in [
                ("without a topology", "plain", 6),
                ("of two cells", "two-cells", 6),
                ("that fits in no single cell", "wide", 6),
            ] {
                let connected = json!({"networks": "none"});
                let title = format!("boot, {what}, a guest {guest}");
                let id = probe
                    .count(&running, &title, boot + more, async || {
                        running.boot_with(&cloud, "one", flavor, connected).await
                    })
                    .await;
                let title = format!("delete, {what}, a guest {guest}");
                probe.count(&running, &title, 8, async || running.delete(&id).await).await;
            }
            probe.assert();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registrations_wait_seldom() {
    let gpus = |count: usize| {
        let addresses: Vec<String> = (0..count).map(|n| format!("\"0000:{n:02x}:00.0\"")).collect();
        format!(
            "card = [{{ card = \"m10\", addresses = [{}] }}]\n\
             devices = {{ enabled_mdev_types = [\"nvidia-35\"] }}",
            addresses.join(", ")
        )
    };
    let (two, eight) = (gpus(2), gpus(8));
    for (what, lines, first, again) in [
        ("no device", "", 12, 5),
        ("two GPUs", &*two, 14, 5),
        ("eight GPUs", &*eight, 14, 5),
        ("sixteen FPGAs", FPGA, 14, 5),
    ] {
        for mut cloud in Cloud::all(hosts(&[("a", &[lines])])).await {
            let mut probe = Probe::new(&mut cloud);
            let mut running = RunningCloud::new(&cloud, CrashPlan::default()).await;
            probe.meter.take_transactions();
            running.start_node(&cloud, "a").await;
            settle(&probe.plain, &running).await;
            probe.check(&format!("first registration, {what}"), first);
            running.nodes.kill("a").await;
            probe.meter.take_transactions();
            running.start_node(&cloud, "a").await;
            settle(&probe.plain, &running).await;
            probe.check(&format!("unchanged registration, {what}"), again);
            probe.assert();
        }
    }
}
