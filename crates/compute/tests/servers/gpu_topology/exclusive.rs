//! `exclusive-island`: a server has an NVLink island to itself, in every operation and despite concurrent requests.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::{buses, gpus, layouts};
use crate::kit::{ADMIN, ANN, Cloud, Controllers, RunningCloud, wait_until};
use crate::servers::numa::flavor;
use crate::servers::pci_aliases::boot_without_valid_host;
use crate::servers::resize::admin;

/// A host with two islands of four GPUs.
pub const QUADS: &str = r#"
card = [{ card = "h100", addresses = [
    "0000:18:00.0", "0000:19:00.0", "0000:1a:00.0", "0000:1b:00.0",
    "0000:98:00.0", "0000:99:00.0", "0000:9a:00.0", "0000:9b:00.0",
] }]
devices = { nvlink_islands = [
    "0000:18:00.0,0000:19:00.0,0000:1a:00.0,0000:1b:00.0",
    "0000:98:00.0,0000:99:00.0,0000:9a:00.0,0000:9b:00.0",
] }
pci.device_spec = ['{"vendor_id": "10de", "product_id": "2330", "resource_class": "H100"}']
"#;

/// A host with two GPUs of four vGPUs each in one island.
pub const VGPUS: &str = r#"
card = [{ card = "m10", addresses = ["0000:84:00.0", "0000:85:00.0"] }]
devices = { enabled_mdev_types = ["nvidia-35"], nvlink_islands = ["0000:84:00.0,0000:85:00.0"] }
"#;

/// Creates the flavors of these tests, unless they exist.
pub async fn flavors(running: &RunningCloud) {
    if running.get(ADMIN, "2.61", "/flavors/alone").await.status.is_success() {
        return;
    }
    for (name, count, topology) in [
        ("alone", 2, "exclusive-island"),
        ("alone-4", 4, "exclusive-island"),
        ("one", 1, "any"),
        ("four", 4, "any"),
    ] {
        gpus(running, name, count, topology).await;
    }
    let vgpu = json!({"resources:VGPU": "1", "hw:gpu_topology": "exclusive-island"});
    flavor(running, "alone-vgpu", 1, 512, vgpu).await;
}

/// The devices that are reserved in Placement, as `a 18 19`.
async fn reserved(cloud: &Cloud) -> String {
    let sql = "SELECT d.host || ' ' || substr(d.address, 6, 2) FROM devices d
        JOIN deployables p ON p.device_id = d.id JOIN inventories i ON i.provider_id = p.provider_id
        WHERE i.reserved > 0 ORDER BY d.host, d.address";
    let mut all: Vec<String> = Vec::new();
    for device in cloud.column(sql).await {
        let (host, bus) = device.split_once(' ').expect("a host and a bus");
        if !all.iter().any(|one| one == host) {
            all.push(host.to_owned());
        }
        all.push(bus.to_owned());
    }
    all.join(" ")
}

/// Checks that every server has its islands to itself, if all servers request that: the free devices of these islands
/// are reserved, and no others, on hosts without dirty devices.
pub async fn assert_closed(cloud: &Cloud, when: &str) {
    // By handle: the host, island and address of its device, its state, the mark of a closed island, and its provider's
    // reserved amount.
    let sql = "SELECT d.host || ' ' || d.island || ' ' || d.address || ' ' || h.state || ' ' || CASE
          WHEN h.island_arq_id IS NULL THEN 'open' WHEN h.island_arq_id = h.arq_id OR h.dirty_of IS NOT NULL
            THEN 'closed' ELSE 'void' END || ' ' || CAST(i.reserved AS TEXT)
        FROM devices d JOIN deployables p ON p.device_id = d.id JOIN attach_handles h ON h.deployable_id = p.id
        JOIN inventories i ON i.provider_id = p.provider_id ORDER BY d.host, d.address, h.id";
    let rows = cloud.column(sql).await;
    let handles: Vec<Vec<&str>> = rows.iter().map(|row| row.split(' ').collect()).collect();
    let of_servers = || handles.iter().filter(|handle| handle[3] != "free");
    let closed: BTreeSet<&[&str]> = of_servers().map(|handle| &handle[..2]).collect();
    for handle in of_servers() {
        assert_eq!(handle[4], "closed", "{} {when}: {rows:#?}", cloud.name);
    }
    let mut withheld: BTreeMap<&[&str], (usize, &str)> = BTreeMap::new();
    for handle in &handles {
        let is_withheld =
            handle[3] == "dirty" || (handle[3] == "free" && closed.contains(&handle[..2]));
        let device = withheld.entry(&handle[..3]).or_insert((0, handle[5]));
        device.0 += usize::from(is_withheld);
    }
    for (device, (withheld, reserved)) in withheld {
        assert_eq!(withheld.to_string(), reserved, "{} {when}: {device:?} {rows:#?}", cloud.name);
    }
}

/// The other devices of an island, and the devices of the other island.
fn rest(taken: &str) -> (String, &'static str) {
    let quads = ["18 19 1a 1b", "98 99 9a 9b"];
    let own = usize::from(taken.starts_with('9'));
    let taken: BTreeSet<&str> = taken.split(' ').collect();
    let rest = quads[own].split(' ').filter(|bus| !taken.contains(bus));
    (rest.collect::<Vec<_>>().join(" "), quads[1 - own])
}

async fn host_of(running: &RunningCloud, id: &str) -> String {
    running.server(id).await["OS-EXT-SRV-ATTR:host"].as_str().expect("it has a host").to_owned()
}

#[tokio::test]
async fn nobody_else_gets_a_device_of_the_island() {
    for (cloud, mut running) in Cloud::all_running(layouts(&[("a", QUADS)])).await {
        flavors(&running).await;
        let alone = running.active_server(&cloud, "alone", "alone").await;
        let pair = buses(&cloud, &running, &alone).await;
        assert_eq!(pair.split(' ').count(), 2, "{pair}");
        let (withheld, other) = rest(&pair);
        assert_eq!(reserved(&cloud).await, format!("a {withheld}"));
        cloud.assert_consistent(&running, "closed").await;

        // A restarted agent reports the same devices.
        running.nodes.kill("a").await;
        running.start_node(&cloud, "a").await;
        running.wait_for_hosts().await;
        assert_eq!(reserved(&cloud).await, format!("a {withheld}"), "after a report");

        let one = running.active_server(&cloud, "one", "one").await;
        let bus = buses(&cloud, &running, &one).await;
        assert!(other.contains(&bus), "{bus} is not in {other}");
        boot_without_valid_host(&cloud, &running, "four").await;
        let why = boot_without_valid_host(&cloud, &running, "alone").await;
        assert!(
            why.contains("that no other server uses (hw:gpu_topology=exclusive-island)"),
            "{why}"
        );
        assert_eq!(reserved(&cloud).await, format!("a {withheld}"), "refusals change nothing");

        running.delete(&alone).await;
        running.wait_until_gone(&alone).await;
        running.wait_for_host_cleanup(&cloud).await;
        assert_eq!(reserved(&cloud).await, "");
        let four = running.active_server(&cloud, "four", "four").await;
        assert!(!buses(&cloud, &running, &four).await.contains(&bus), "the island is open");
        running.delete(&four).await;
        running.wait_until_gone(&four).await;
        running.wait_for_host_cleanup(&cloud).await;
        // A controller of the previous version releases and reassigns handles, and leaves the marks of requests that no
        // longer exist.
        cloud.execute("UPDATE attach_handles SET island_arq_id = uuid").await;
        let four = running.active_server(&cloud, "four", "four").await;
        assert_eq!(reserved(&cloud).await, "", "such marks close nothing");
        cloud.audit("marks that do not count").await;
        cloud.execute("UPDATE attach_handles SET island_arq_id = uuid").await;
        running.delete(&four).await;
        running.wait_until_gone(&four).await;
        running.wait_for_host_cleanup(&cloud).await;
        cloud.execute("UPDATE attach_handles SET island_arq_id = NULL").await;
        // A server with all devices of an island withholds none.
        running.active_server(&cloud, "full", "alone-4").await;
        assert_eq!(reserved(&cloud).await, "");
        cloud.assert_consistent(&running, "full").await;
        cloud.teardown(&running, "open").await;
    }
}

/// If the servers were planned one by one, the last one would find devices but no island.
#[tokio::test]
async fn servers_of_one_request_have_an_island_each() {
    for (cloud, running) in Cloud::all_running(layouts(&[("a", QUADS), ("b", QUADS)])).await {
        flavors(&running).await;
        let mut request = running.boot_request(&cloud, "many", "alone");
        request["server"]["min_count"] = json!(4);
        running.call(ANN, "2.90", "POST /servers", Some(request.clone())).await.expect(202);
        running.wait_all_idle().await;
        let servers = running.servers().await;
        let active = servers.iter().filter(|server| server["status"] == "ACTIVE").count();
        assert_eq!((active, servers.len()), (4, 4), "{servers:#?}");
        assert_closed(&cloud, "four servers").await;
        cloud.teardown(&running, "four servers").await;

        request["server"]["min_count"] = json!(1);
        request["server"]["max_count"] = json!(7);
        running.call(ANN, "2.90", "POST /servers", Some(request.clone())).await.expect(202);
        running.wait_all_idle().await;
        let servers = running.servers().await;
        let active = servers.iter().filter(|server| server["status"] == "ACTIVE").count();
        assert_eq!((active, servers.len()), (4, 4), "as many as fit: {servers:#?}");
        cloud.teardown(&running, "as many as fit").await;

        request["server"]["min_count"] = json!(5);
        running.call(ANN, "2.90", "POST /servers", Some(request)).await.expect(202);
        running.wait_all_idle().await;
        let servers = running.servers().await;
        assert!(servers.iter().all(|server| server["status"] == "ERROR"), "{servers:#?}");
        assert_eq!(reserved(&cloud).await, "");
        cloud.teardown(&running, "five servers").await;
    }
}

#[tokio::test]
async fn a_move_closes_one_island_and_opens_the_other() {
    let topology = layouts(&[("a", QUADS), ("b", QUADS)]);
    for (cloud, mut running) in Cloud::all_running(topology).await {
        flavors(&running).await;
        let id = running.active_server_on(&cloud, "a", "alone").await;
        let first = format!("a {}", rest(&buses(&cloud, &running, &id).await).0);
        assert_eq!(reserved(&cloud).await, first);
        let wait = async |status: &str| {
            running.wait_for_status(&id, status).await;
            running.wait_for_host_cleanup(&cloud).await;
        };
        for (action, answer, end) in [("revertResize", 202, "a"), ("confirmResize", 204, "b")] {
            admin(&running, "2.56", &id, json!({"migrate": null})).await.expect(202);
            wait("VERIFY_RESIZE").await;
            assert_eq!(host_of(&running, &id).await, "b");
            let there = rest(&buses(&cloud, &running, &id).await).0;
            assert_eq!(reserved(&cloud).await, format!("{first} b {there}"), "both are closed");
            cloud.assert_consistent(&running, "moved").await;
            admin(&running, "2.90", &id, json!({action: null})).await.expect(answer);
            wait("ACTIVE").await;
            assert_eq!(host_of(&running, &id).await, end);
            let own = rest(&buses(&cloud, &running, &id).await).0;
            assert_eq!(reserved(&cloud).await, format!("{end} {own}"), "{action}");
            cloud.assert_consistent(&running, action).await;
        }
        // A resize to a flavor without the condition opens the island.
        admin(&running, "2.90", &id, json!({"resize": {"flavorRef": "one"}})).await.expect(202);
        wait("VERIFY_RESIZE").await;
        admin(&running, "2.90", &id, json!({"confirmResize": null})).await.expect(204);
        wait("ACTIVE").await;
        assert_eq!(reserved(&cloud).await, "");
        cloud.teardown(&running, "moves").await;

        // A host that is down keeps the island closed until it has dropped the guest.
        let id = running.active_server_on(&cloud, "a", "alone").await;
        running.nodes.kill("a").await;
        running.force_down("a", true).await;
        admin(&running, "2.94", &id, json!({"evacuate": {}})).await.expect(200);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(host_of(&running, &id).await, "b");
        let here = format!("b {}", rest(&buses(&cloud, &running, &id).await).0);
        let all = reserved(&cloud).await;
        let old = all.strip_suffix(&here).expect("the new island is closed").trim_end();
        assert!(["a 18 19 1a 1b", "a 98 99 9a 9b"].contains(&old), "{all}");
        cloud.audit("evacuated").await;
        running.start_node(&cloud, "a").await;
        running.force_down("a", false).await;
        wait_until("the old host has dropped the guest", async || reserved(&cloud).await == here)
            .await;
        cloud.assert_consistent(&running, "the host is back").await;
        cloud.teardown(&running, "evacuation").await;
    }
}

#[tokio::test]
async fn the_claim_decides_who_uses_an_island() {
    for (cloud, running) in Cloud::all_running(layouts(&[("a", QUADS)])).await {
        flavors(&running).await;
        let one = running.active_server(&cloud, "one", "one").await;
        // The controller's memory is outdated: in the plan, the other GPUs are still another island.
        cloud.execute("UPDATE devices SET island = '0000:18:00.0'").await;
        let why = boot_without_valid_host(&cloud, &running, "alone").await;
        assert!(why.contains("was taken by other requests"), "{why}");
        assert_eq!((cloud.used("CUSTOM_H100").await, reserved(&cloud).await), (1, String::new()));
        running.delete(&one).await;
        running.wait_until_gone(&one).await;
        running.wait_for_host_cleanup(&cloud).await;

        // Here memory shows the other devices of a closed island as free, and the claim refuses them.
        running.active_server(&cloud, "alone", "alone").await;
        cloud.execute("UPDATE inventories SET reserved = 0, reported_reserved = 0").await;
        running.compute.world.load(&cloud.store).await.expect("the providers are loaded");
        let why = boot_without_valid_host(&cloud, &running, "one").await;
        assert!(why.contains("was taken by other requests"), "{why}");
        assert_eq!(cloud.used("CUSTOM_H100").await, 2);
        cloud.audit("refused").await;
        running.delete_all_servers().await;
    }
}

#[tokio::test]
async fn the_audit_finds_an_island_that_is_not_of_one_server() {
    for (cloud, running) in Cloud::all_running(layouts(&[("a", QUADS)])).await {
        flavors(&running).await;
        for _ in 0..2 {
            running.active_server(&cloud, "one", "one").await;
        }
        cloud.audit("two servers in one island").await;
        cloud
            .execute(
                "UPDATE attach_handles SET island_arq_id = arq_id
                WHERE id = (SELECT MIN(id) FROM attach_handles WHERE arq_id IS NOT NULL)",
            )
            .await;
        let findings = kilonova_compute_db::audit::run(&cloud.store).await.expect("it runs");
        let broken = findings.iter().filter(|finding| !finding.rows.is_empty());
        let rules: Vec<&str> = broken.map(|finding| finding.rule).collect();
        assert_eq!(
            rules,
            ["no other consumer has a handle of an island that a consumer has to itself"]
        );
        running.delete_all_servers().await;
    }
}

/// Boots, concurrently, servers that need an island each and servers that need one GPU.
async fn race(cloud: &Cloud, running: &RunningCloud, boot: impl AsyncFn(usize) -> String) {
    flavors(running).await;
    for round in 0..3 {
        let boots = (0..10).map(|number| boot(number));
        let ids = futures_util::future::join_all(boots).await;
        running.wait_all_idle().await;
        cloud.audit("after the race").await;
        let servers = running.servers().await;
        let active = servers.iter().filter(|server| server["status"] == "ACTIVE").count();
        assert!(active > 0 && ids.len() == 10, "round {round}: no server got a device");
        cloud.teardown(running, "after the race").await;
    }
}

fn flavor_of(number: usize) -> &'static str {
    if number.is_multiple_of(2) { "alone" } else { "one" }
}

#[tokio::test]
async fn requests_at_the_same_time_do_not_share_an_island() {
    for (cloud, running) in Cloud::all_running(layouts(&[("a", QUADS), ("b", QUADS)])).await {
        let boot = async |number: usize| running.boot(&cloud, "one", flavor_of(number)).await;
        race(&cloud, &running, boot).await;
    }
}

#[tokio::test]
async fn two_controllers_do_not_share_an_island() {
    let topology = layouts(&[("a", QUADS), ("b", QUADS)]);
    let Some(both) = Controllers::with_hosts(topology).await else { return };
    let boot = async |number: usize| {
        let client = if number % 4 < 2 { &*both.running } else { &both.other.client };
        let request = both.running.boot_request(&both.cloud, "one", flavor_of(number));
        let made = client.call(ANN, "2.90", "POST /servers", Some(request)).await;
        made.expect(202)["server"]["id"].as_str().expect("the answer has an id").to_owned()
    };
    race(&both.cloud, &both.running, boot).await;
}
