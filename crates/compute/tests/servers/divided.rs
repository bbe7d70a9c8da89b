//! Hosts that offer their CPUs and memory by NUMA cell (`numa_in_placement`).

use std::collections::BTreeMap;
use std::time::Duration;

use kilonova_compute_app::Options;
use kilonova_compute_app::attention::{self, Bounds};
use kilonova_compute_nodes::Link;
use kilonova_ids::HostName;
use kilonova_node_api::{ControlPlane, Refusal, Registration};
use kilonova_store::testing::{CrashPlan, Death};
use kilonova_store::{Error, params};
use serde_json::{Value, json};

use super::host_selection::{placement, send};
use super::numa::{boot_at_two_controllers, flavor, topology};
use super::resize::admin;
use crate::kit::{ADMIN, ANN, Cloud, RunningCloud, TWO_CELLS, hosts, wait_until};

/// A host of two equal cells: 16 shared and 16 dedicated CPUs, and 32,512 MiB for guests in each.
const CELLS: &str = "numa = [\
    { shared = \"0-15\", dedicated = \"16-31\", threads = 2, socket = 0, memory_mb = 32768 }, \
    { shared = \"32-47\", dedicated = \"48-63\", threads = 2, socket = 1, memory_mb = 32768 }]";
const BY_CELL: &str = "numa_in_placement = true";
const AS_WHOLE: &str = "numa_in_placement = false";

fn pinned() -> Value {
    json!({"hw:cpu_policy": "dedicated"})
}

fn split() -> Value {
    json!({"hw:cpu_policy": "dedicated", "hw:numa_nodes": "2"})
}

/// The providers of a host by name.
async fn tree(running: &RunningCloud, host: &str) -> BTreeMap<String, String> {
    let path = format!("/resource_providers?name={host}");
    let found = placement(running, "GET", &path, Value::Null).await;
    let root = found["resource_providers"][0]["uuid"].as_str().expect("the provider exists");
    let path = format!("/resource_providers?in_tree={root}");
    let found = placement(running, "GET", &path, Value::Null).await;
    let all = found["resource_providers"].as_array().expect("a list").clone();
    let text = |one: &Value, key: &str| one[key].as_str().expect("a text").to_owned();
    all.iter().map(|one| (text(one, "name"), text(one, "uuid"))).collect()
}

/// The inventories of a provider: total, reserved, `max_unit` and ratio by class.
async fn inventories(running: &RunningCloud, provider: &str) -> BTreeMap<String, Value> {
    let path = format!("/resource_providers/{provider}/inventories");
    let found = placement(running, "GET", &path, Value::Null).await;
    let all = found["inventories"].as_object().expect("an object").clone();
    let short = |one: Value| {
        json!([one["total"], one["reserved"], one["max_unit"], one["allocation_ratio"]])
    };
    all.into_iter().map(|(class, one)| (class, short(one))).collect()
}

/// The allocations of a consumer, by the names of the providers of some hosts.
async fn held(running: &RunningCloud, id: &str) -> Value {
    let mut names = BTreeMap::new();
    for host in ["a", "b"] {
        let path = format!("/resource_providers?name={host}");
        let found = placement(running, "GET", &path, Value::Null).await;
        if found["resource_providers"] != json!([]) {
            names.extend(tree(running, host).await.into_iter().map(|(name, id)| (id, name)));
        }
    }
    let found = placement(running, "GET", &format!("/allocations/{id}"), Value::Null).await;
    let all = found["allocations"].as_object().expect("an object").clone();
    let named = |(id, one): (String, Value)| (names[&id].clone(), one["resources"].clone());
    let named: BTreeMap<String, Value> = all.into_iter().map(named).collect();
    json!(named)
}

/// Restarts the agent of a host with these lines.
async fn restart_with(cloud: &mut Cloud, running: &mut RunningCloud, host: &str, lines: &[&str]) {
    running.nodes.kill(host).await;
    let new = hosts(&[(host, lines)]).hosts[0].clone();
    let known = cloud.topology.hosts.iter_mut().find(|known| known.name.as_str() == host);
    *known.expect("the host is known") = new;
    let epoch = epoch(cloud).await;
    running.start_node(cloud, host).await;
    wait_until("the host has registered", async || self::epoch(cloud).await != epoch).await;
}

async fn epoch(cloud: &Cloud) -> Vec<String> {
    cloud.column("SELECT host || CAST(epoch AS TEXT) FROM hosts ORDER BY host").await
}

async fn divided_hosts(cloud: &Cloud) -> Vec<String> {
    cloud.column("SELECT host FROM divided_hosts ORDER BY host").await
}

/// The findings of `doctor` about hosts that are not divided.
async fn undivided_findings(cloud: &Cloud) -> Vec<String> {
    let findings =
        attention::collect(&cloud.store, &Bounds::default()).await.expect("the findings are read");
    let about = findings.into_iter().filter(|finding| finding.what.contains("by NUMA cell"));
    about.map(|finding| finding.what).collect()
}

async fn fault(running: &RunningCloud, id: &str) -> String {
    let fault = running.wait_for_status(id, "ERROR").await["fault"].clone();
    format!("{} {}", fault["message"], fault["details"])
}

#[tokio::test]
async fn each_cell_is_a_provider_with_its_cpus_and_memory() {
    let topology = hosts(&[("a", &[CELLS, BY_CELL]), ("b", &[CELLS, AS_WHOLE]), ("c", &[BY_CELL])]);
    for (cloud, running) in Cloud::all_running(topology).await {
        let found = tree(&running, "a").await;
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "a_NUMA0", "a_NUMA1"]);
        let root = inventories(&running, &found["a"]).await;
        assert_eq!(root.keys().collect::<Vec<_>>(), ["DISK_GB"]);
        let cell = json!({
            "MEMORY_MB": [32768, 256, 65536, 1.0],
            "PCPU": [16, 0, 32, 1.0],
            "VCPU": [16, 0, 32, 4.0],
        });
        for name in ["a_NUMA0", "a_NUMA1"] {
            assert_eq!(json!(inventories(&running, &found[name]).await), cell);
            let path = format!("/resource_providers/{}", found[name]);
            let traits = placement(&running, "GET", &format!("{path}/traits"), Value::Null).await;
            assert_eq!(traits["traits"], json!(["HW_NUMA_ROOT", "OWNER_NOVA"]));
            let shown = placement(&running, "GET", &path, Value::Null).await;
            assert_eq!(shown["parent_provider_uuid"], json!(found["a"]));
        }
        for whole in ["b", "c"] {
            assert_eq!(tree(&running, whole).await.len(), 1, "{whole} is not divided");
        }
        assert_eq!(divided_hosts(&cloud).await, ["a"]);

        // The Placement API keeps its semantics: one provider for each class, and no sums over providers.
        let candidates = async |resources: &str| {
            let path =
                format!("/allocation_candidates?resources={resources}&in_tree={}", found["a"]);
            let found = placement(&running, "GET", &path, Value::Null).await;
            found["allocation_requests"].as_array().map_or(0, Vec::len)
        };
        assert_eq!(candidates("VCPU:1,MEMORY_MB:1,DISK_GB:1").await, 4);
        assert_eq!(candidates("MEMORY_MB:40000").await, 0);

        // Operators see the same amounts for both hosts.
        let path = "/os-hypervisors/detail";
        let shown = running.get(ADMIN, "2.87", path).await.expect(200);
        let all = shown["hypervisors"].as_array().expect("a list");
        let of = |host: &str| {
            let one = all.iter().find(|one| one["hypervisor_hostname"] == host).expect("a host");
            [&one["vcpus"], &one["memory_mb"], &one["free_ram_mb"]].map(Clone::clone)
        };
        assert_eq!(of("a"), of("b"));
        flavor(&running, "large", 2, 40_000, json!({})).await;
        let path = "/kilonova/capacity?flavor=large";
        let shown = running.get(ADMIN, "2.1", path).await.expect(200);
        assert_eq!(shown["capacity"]["flavors"][0]["servers"], 3, "{shown}");
        let shown = running.get(ADMIN, "2.1", "/kilonova/hosts/a").await.expect(200);
        assert_eq!(shown["host"]["numa_in_placement"], true);
        assert_eq!(shown["host"]["numa_not_in_placement"], Value::Null);
        cloud.assert_consistent(&running, "registered").await;
    }
}

#[tokio::test]
async fn a_guest_has_its_amounts_allocated_at_its_cells() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[CELLS, BY_CELL])])).await {
        running.remove_quota_limits().await;
        flavor(&running, "pinned", 4, 512, pinned()).await;
        flavor(&running, "split", 6, 512, split()).await;
        flavor(&running, "shared", 4, 512, json!({"hw:numa_nodes": "2"})).await;
        let mixed = json!({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0",
            "hw:emulator_threads_policy": "isolate"});
        flavor(&running, "mixed", 3, 512, mixed).await;
        flavor(&running, "whole", 12, 512, pinned()).await;
        let disk = json!({"DISK_GB": 1});
        let one = running.active_server(&cloud, "one", "pinned").await;
        let cell = json!({"PCPU": 4, "MEMORY_MB": 512});
        assert_eq!(held(&running, &one).await, json!({"a": disk, "a_NUMA0": cell}));
        let two = running.active_server(&cloud, "two", "split").await;
        let cell = json!({"PCPU": 3, "MEMORY_MB": 256});
        let both = json!({"a": disk, "a_NUMA0": cell, "a_NUMA1": cell});
        assert_eq!(held(&running, &two).await, both);
        let three = running.active_server(&cloud, "three", "shared").await;
        let cell = json!({"VCPU": 2, "MEMORY_MB": 256});
        let both = json!({"a": disk, "a_NUMA0": cell, "a_NUMA1": cell});
        assert_eq!(held(&running, &three).await, both);
        let four = running.active_server(&cloud, "four", "mixed").await;
        let cell = json!({"PCPU": 2, "VCPU": 2, "MEMORY_MB": 512});
        let shown = held(&running, &four).await;
        let node = topology(&running, &four).await["nodes"][0]["host_node"].clone();
        assert_eq!(shown, json!({"a": disk, format!("a_NUMA{node}"): cell}));
        cloud.assert_consistent(&running, "booted").await;

        // 17 dedicated CPUs are left, but no cell has 12 of them.
        let five = running.boot(&cloud, "five", "whole").await;
        let why = fault(&running, &five).await;
        assert!(why.contains("too few free dedicated CPUs"), "{why}");
        let all = running.servers().await;
        for server in &all {
            running.delete(server["id"].as_str().expect("an id")).await;
        }
        for server in &all {
            running.wait_until_gone(server["id"].as_str().expect("an id")).await;
        }
        assert_eq!([cloud.used("PCPU").await, cloud.used("VCPU").await], [0, 0]);
        assert_eq!(cloud.used("MEMORY_MB").await, 0);
        cloud.assert_consistent(&running, "deleted").await;
    }
}

#[tokio::test]
async fn a_guest_without_a_topology_is_counted_where_there_is_room() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[CELLS, BY_CELL])])).await {
        running.remove_quota_limits().await;
        flavor(&running, "medium", 2, 20_000, json!({})).await;
        flavor(&running, "near", 2, 20_000, json!({"hw:numa_nodes": "1"})).await;
        flavor(&running, "wide", 20, 512, json!({})).await;
        let on = async |id: &str, cell: &str| held(&running, id).await[cell]["MEMORY_MB"].clone();
        let one = running.active_server(&cloud, "one", "medium").await;
        assert_eq!(held(&running, &one).await["a_NUMA0"], json!({"VCPU": 2, "MEMORY_MB": 20000}));
        // A guest with a topology gets only the amounts that the other guest leaves.
        let two = running.active_server(&cloud, "two", "near").await;
        assert_eq!(on(&two, "a_NUMA1").await, 20000);
        let three = running.boot(&cloud, "three", "near").await;
        let why = fault(&running, &three).await;
        assert!(why.contains("ram_allocation_ratio is reached"), "{why}");
        // Neither cell has 20,000 MiB left, but both together do. Each provides half of the memory and of the CPUs.
        let four = running.active_server(&cloud, "four", "medium").await;
        let part = json!({"VCPU": 1, "MEMORY_MB": 10_000});
        let both = json!({"a": {"DISK_GB": 1}, "a_NUMA0": part, "a_NUMA1": part});
        assert_eq!(held(&running, &four).await, both);
        let xml = super::numa::domain(&cloud, "a", &four);
        assert!(!xml.contains("kilonova:numa"), "the guest is bound to no cell: {xml}");
        // More CPUs than a cell has, but fewer than the host.
        let five = running.active_server(&cloud, "five", "wide").await;
        assert_eq!(held(&running, &five).await["a_NUMA0"], json!({"VCPU": 20, "MEMORY_MB": 512}));
        // Both cells still have CPUs and memory for guests with a topology.
        flavor(&running, "part", 4, 3000, split()).await;
        let six = running.active_server(&cloud, "six", "part").await;
        let part = json!({"PCPU": 2, "MEMORY_MB": 1500});
        let both = json!({"a": {"DISK_GB": 1}, "a_NUMA0": part, "a_NUMA1": part});
        assert_eq!(held(&running, &six).await, both);
        let seven = running.boot(&cloud, "six", "medium").await;
        let why = fault(&running, &seven).await;
        assert!(why.contains("MEMORY_MB"), "{why}");
        cloud.assert_consistent(&running, "full").await;
        for id in [&one, &two, &four, &five, &six] {
            running.delete(id).await;
            running.wait_until_gone(id).await;
        }

        // The servers of one request count each other's amounts within their transaction.
        let mut request = running.boot_request(&cloud, "many", "medium");
        request["server"]["min_count"] = json!(3);
        request["server"]["max_count"] = json!(3);
        running.call(ANN, "2.90", "POST /servers", Some(request)).await.expect(202);
        wait_until("all servers run", async || {
            let all = running.servers().await;
            all.iter().filter(|one| one["status"] == "ACTIVE").count() == 3
        })
        .await;
        assert_eq!(cloud.used("MEMORY_MB").await, 60_000);
        cloud.assert_consistent(&running, "many").await;
    }
}

#[tokio::test]
async fn a_host_is_divided_and_united_with_its_guests() {
    for (mut cloud, mut running) in Cloud::all_running(hosts(&[("a", &[CELLS, AS_WHOLE])])).await {
        running.remove_quota_limits().await;
        flavor(&running, "pinned", 4, 512, pinned()).await;
        flavor(&running, "split", 6, 512, split()).await;
        flavor(&running, "large", 3, 40_000, json!({})).await;
        let one = running.active_server(&cloud, "one", "pinned").await;
        let two = running.active_server(&cloud, "two", "split").await;
        let three = running.active_server(&cloud, "three", "large").await;
        let all = [&one, &two, &three];
        let mut before = Vec::new();
        for id in all {
            before.push(held(&running, id).await);
        }
        assert_eq!(before[2], json!({"a": {"VCPU": 3, "MEMORY_MB": 40000, "DISK_GB": 1}}));
        // An operator reserves some memory.
        let root = tree(&running, "a").await["a"].clone();
        let path = format!("/resource_providers/{root}/inventories/MEMORY_MB");
        let mut own = placement(&running, "GET", &path, Value::Null).await;
        own["reserved"] = json!(2048);
        placement(&running, "PUT", &path, own).await;

        let changes = async |cloud: &Cloud| -> i64 {
            let generation = "SELECT CAST(generation AS TEXT) FROM consumers";
            cloud
                .column(generation)
                .await
                .iter()
                .map(|text| text.parse::<i64>().unwrap_or(-1))
                .sum()
        };
        let known = changes(&cloud).await;
        restart_with(&mut cloud, &mut running, "a", &[CELLS, BY_CELL]).await;
        assert_eq!(divided_hosts(&cloud).await, ["a"]);
        assert_eq!(changes(&cloud).await, known + 3, "each consumer has changed once");
        let providers = tree(&running, "a").await;
        assert_eq!(inventories(&running, &providers["a"]).await.len(), 1);
        for cell in ["a_NUMA0", "a_NUMA1"] {
            let of_cell = inventories(&running, &providers[cell]).await;
            assert_eq!(of_cell["MEMORY_MB"][1], 1024, "the operator's amount is divided");
        }
        let disk = json!({"DISK_GB": 1});
        let cell = json!({"PCPU": 4, "MEMORY_MB": 512});
        assert_eq!(held(&running, &one).await, json!({"a": disk, "a_NUMA0": cell}));
        let cell = json!({"PCPU": 3, "MEMORY_MB": 256});
        let both = json!({"a": disk, "a_NUMA0": cell, "a_NUMA1": cell});
        assert_eq!(held(&running, &two).await, both);
        let shown = held(&running, &three).await;
        let of = |cell: &str, class: &str| shown[cell][class].as_i64().unwrap_or(0);
        for (class, amount) in [("VCPU", 3), ("MEMORY_MB", 40_000)] {
            assert_eq!(of("a_NUMA0", class) + of("a_NUMA1", class), amount, "{shown}");
        }
        cloud.assert_consistent(&running, "divided").await;
        // The controller's memory follows. The large guest leaves some memory free at both cells.
        let four = running.active_server(&cloud, "four", "split").await;
        assert_eq!(held(&running, &four).await, both);
        // A repeated registration changes nothing.
        let generations =
            "SELECT name || CAST(generation AS TEXT) FROM resource_providers ORDER BY name";
        let known = cloud.column(generations).await;
        restart_with(&mut cloud, &mut running, "a", &[CELLS, BY_CELL]).await;
        assert_eq!(cloud.column(generations).await, known);

        let known = changes(&cloud).await;
        restart_with(&mut cloud, &mut running, "a", &[CELLS, AS_WHOLE]).await;
        assert_eq!(divided_hosts(&cloud).await, [""; 0]);
        assert_eq!(changes(&cloud).await, known + 4, "each consumer has changed once");
        assert_eq!(tree(&running, "a").await.len(), 1);
        for (id, before) in all.into_iter().zip(before) {
            assert_eq!(held(&running, id).await, before);
        }
        let of_root = inventories(&running, &root).await;
        assert_eq!(of_root["MEMORY_MB"], json!([65536, 2048, 65536, 1.0]));
        assert_eq!(of_root["PCPU"], json!([32, 0, 32, 1.0]));
        cloud.assert_consistent(&running, "united").await;
        running.active_server(&cloud, "five", "pinned").await;
        cloud.assert_consistent(&running, "afterwards").await;
    }
}

#[tokio::test]
async fn a_host_whose_guests_do_not_fit_its_cells_stays_as_it_is() {
    for (mut cloud, mut running) in Cloud::all_running(hosts(&[("a", &[CELLS, AS_WHOLE])])).await {
        // The flavor takes all memory of a cell, and a divided host reserves part of it.
        flavor(&running, "full", 2, 32_768, pinned()).await;
        let one = running.active_server(&cloud, "one", "full").await;
        let before = held(&running, &one).await;
        restart_with(&mut cloud, &mut running, "a", &[CELLS, BY_CELL]).await;
        assert_eq!(divided_hosts(&cloud).await, [""; 0]);
        assert_eq!(tree(&running, "a").await.len(), 1);
        assert_eq!(held(&running, &one).await, before);
        let shown = running.get(ADMIN, "2.1", "/kilonova/hosts/a").await.expect(200);
        assert_eq!(shown["host"]["numa_in_placement"], false);
        let why = shown["host"]["numa_not_in_placement"].as_str().expect("a reason");
        assert!(why.contains("NUMA cell 0 has no room") && why.contains(&one), "{why}");
        cloud.assert_consistent(&running, "not divided").await;

        running.delete(&one).await;
        running.wait_until_gone(&one).await;
        // Another provider has the name of a cell.
        let body = json!({"name": "a_NUMA1"});
        let other = placement(&running, "POST", "/resource_providers", body).await;
        restart_with(&mut cloud, &mut running, "a", &[CELLS, BY_CELL]).await;
        let shown = running.get(ADMIN, "2.1", "/kilonova/hosts/a").await.expect(200);
        let why = shown["host"]["numa_not_in_placement"].as_str().expect("a reason");
        assert_eq!(why, "another resource provider is named a_NUMA1");
        assert_eq!(tree(&running, "a").await.len(), 1);
        let path = format!("/resource_providers/{}", other["uuid"].as_str().expect("an id"));
        assert_eq!(send(&running, "DELETE", &path, Value::Null).await.status, 204);

        restart_with(&mut cloud, &mut running, "a", &[CELLS, BY_CELL]).await;
        assert_eq!(divided_hosts(&cloud).await, ["a"]);
        let shown = running.get(ADMIN, "2.1", "/kilonova/hosts/a").await.expect(200);
        assert_eq!(shown["host"]["numa_not_in_placement"], Value::Null);
        cloud.assert_consistent(&running, "divided").await;
    }
}

/// A controller may die between the deletion of the guest and the division of the host, or during the division.
#[tokio::test]
async fn an_undivided_host_is_divided_once_its_guest_has_left() {
    for (mut cloud, mut running) in Cloud::all_running(hosts(&[("a", &[CELLS, AS_WHOLE])])).await {
        flavor(&running, "full", 2, 32_768, pinned()).await;
        running.nodes.rescan = Some(Duration::from_millis(60));
        for death in [Death::BeforeCommit, Death::AfterCommit] {
            let one = running.active_server(&cloud, "one", "full").await;
            let before = held(&running, &one).await;
            restart_with(&mut cloud, &mut running, "a", &[CELLS, BY_CELL]).await;
            let known = epoch(&cloud).await;
            wait_until("the host registers again", async || epoch(&cloud).await != known).await;
            assert_eq!(divided_hosts(&cloud).await, [""; 0]);
            assert_eq!(held(&running, &one).await, before);
            let findings = undivided_findings(&cloud).await;
            let [finding] = &*findings else { panic!("{findings:?}") };
            assert!(
                finding
                    .starts_with("host a is configured to offer its CPUs and memory by NUMA cell")
            );
            assert!(finding.contains(&one), "{finding}");

            // The controller dies at its next write, which is usually the registration that divides the host.
            running.delete(&one).await;
            running.wait_until_gone(&one).await;
            running.replace_services(&cloud, CrashPlan::at(0, death)).await;
            let plan = running.plan.clone();
            wait_until("the controller has died, or has nothing left to write", async || {
                plan.is_dead() || divided_hosts(&cloud).await == ["a"]
            })
            .await;
            running.replace_services(&cloud, CrashPlan::default()).await;
            wait_until("the host is divided", async || divided_hosts(&cloud).await == ["a"]).await;
            let shown = running.get(ADMIN, "2.1", "/kilonova/hosts/a").await.expect(200);
            assert_eq!(shown["host"]["numa_in_placement"], true);
            assert_eq!(shown["host"]["numa_not_in_placement"], Value::Null);
            assert_eq!(undivided_findings(&cloud).await, [""; 0]);
            cloud.assert_consistent(&running, "divided").await;
            wait_until("the host does not register again", async || {
                let known = epoch(&cloud).await;
                tokio::time::sleep(Duration::from_millis(900)).await;
                epoch(&cloud).await == known
            })
            .await;
            restart_with(&mut cloud, &mut running, "a", &[CELLS, AS_WHOLE]).await;
        }
    }
}

/// The external Nova does not know cells: the host would never be united, and Nova would offer its CPUs and memory a
/// second time, on the root.
#[tokio::test]
async fn a_divided_host_is_not_given_to_another_nova_with_its_guests() {
    for (mut cloud, running) in Cloud::all_running(hosts(&[("a", &[CELLS, BY_CELL])])).await {
        flavor(&running, "split", 6, 512, split()).await;
        let id = running.active_server(&cloud, "one", "split").await;
        let before = held(&running, &id).await;
        let known = epoch(&cloud).await;
        running.kill().await;

        let own = cloud.options.clone();
        cloud.options = Options { nova_elsewhere: true, ..own.clone() };
        let running = cloud.start().await;
        let registration = Registration {
            host: HostName::verbatim("a"),
            machine_id: String::new(),
            hypervisor_type: "simulated".into(),
            hypervisor_version: 1000,
            host_ip: "127.0.0.1".into(),
            vcpus: 64,
            memory_mb: 65_536,
            disk_gb: 100,
            ratios: [1.0; 3],
            initial_ratios: [false; 3],
            reserved_memory_mb: 0,
            reserved_cpus: 0,
            reserved_disk_gb: 0,
            traits: Vec::new(),
            devices: Vec::new(),
            agent_version: None,
            attempt: None,
            connector: None,
            routes: None,
            cells: None,
            numa_in_placement: false,
        };
        let refused = Link(running.compute.clone()).register(registration).await;
        let Err(Refusal::Unavailable(why)) = refused else { panic!("{refused:?}") };
        assert!(why.starts_with("host a offers its CPUs and memory by NUMA cell"), "{why}");
        assert!(
            why.contains("(consumers: 1)") && why.contains("numa_in_placement = false"),
            "{why}"
        );
        assert_eq!(epoch(&cloud).await, known, "its agent is not accepted either");
        assert_eq!(divided_hosts(&cloud).await, ["a"]);
        assert_eq!(held(&running, &id).await, before);
        running.kill().await;

        // Nothing is lost, so the operator can restore the old configuration and drain the host.
        cloud.options = own.clone();
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.assert_consistent(&running, "drained").await;
        running.kill().await;
        cloud.options = Options { nova_elsewhere: true, ..own };
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        assert_eq!(divided_hosts(&cloud).await, [""; 0]);
        assert_eq!(tree(&running, "a").await.len(), 1, "its cells are gone");
        cloud.audit("given away").await;
    }
}

/// A controller of the previous version does not know cells. It would offer the CPUs and memory of a divided host a
/// second time.
#[tokio::test]
async fn an_earlier_controller_cannot_register_a_divided_host() {
    let topology = hosts(&[("a", &[CELLS, BY_CELL]), ("b", &[CELLS, AS_WHOLE])]);
    for (mut cloud, mut running) in Cloud::all_running(topology).await {
        let register = async |cloud: &Cloud, host: &'static str| {
            let sql = "UPDATE hosts SET epoch = epoch + 1, revision = revision + 1 WHERE host = ?1";
            cloud.store.write(move |tx| tx.execute(sql, params![host])).await
        };
        let refused = register(&cloud, "a").await;
        assert!(matches!(refused, Err(Error::Reference(_))), "{refused:?}");
        assert!(register(&cloud, "b").await.is_ok());
        restart_with(&mut cloud, &mut running, "a", &[CELLS, BY_CELL]).await;
        restart_with(&mut cloud, &mut running, "a", &[CELLS, AS_WHOLE]).await;
        assert!(register(&cloud, "a").await.is_ok(), "a united host can be registered");

        // The service of a divided host can be deleted.
        restart_with(&mut cloud, &mut running, "a", &[CELLS, BY_CELL]).await;
        running.nodes.kill("a").await;
        running.force_down("a", true).await;
        let services = running.get(ADMIN, "2.53", "/os-services?host=a").await.expect(200);
        let id = services["services"][0]["id"].as_str().expect("an id").to_owned();
        running.call(ADMIN, "2.53", &format!("DELETE /os-services/{id}"), None).await.expect(204);
        assert_eq!(divided_hosts(&cloud).await, [""; 0]);
        let left = cloud.column("SELECT name FROM resource_providers ORDER BY name").await;
        assert_eq!(left, ["b"]);
        cloud.audit("deleted").await;
    }
}

#[tokio::test]
async fn every_move_claims_cells_at_the_destination() {
    let topology = hosts(&[("a", &[CELLS, BY_CELL]), ("b", &[CELLS, BY_CELL])]);
    for (cloud, mut running) in Cloud::all_running(topology).await {
        flavor(&running, "split", 6, 512, split()).await;
        flavor(&running, "large", 3, 40_000, json!({})).await;
        flavor(&running, "more", 8, 1024, split()).await;
        let host = async |running: &RunningCloud, id: &str| {
            running.server(id).await["OS-EXT-SRV-ATTR:host"].as_str().unwrap_or_default().to_owned()
        };
        // Checks that a server's amounts are claimed at the cells of its host alone, once other claims are released.
        let at_home = async |running: &RunningCloud, id: &str, cpus: i64, memory: i64| {
            let own = host(running, id).await;
            wait_until("the other claims are released", async || {
                cloud.column("SELECT id FROM consumers").await.len() == 1
            })
            .await;
            let shown = held(running, id).await;
            let sums = ["PCPU", "VCPU", "MEMORY_MB"].map(|class| {
                let all = shown.as_object().into_iter().flatten();
                let mut sum = 0;
                for (name, amounts) in all {
                    assert!(name.starts_with(&own), "{shown} on {own}");
                    sum += amounts[class].as_i64().unwrap_or(0);
                }
                sum
            });
            assert_eq!((sums[0] + sums[1], sums[2]), (cpus, memory), "{shown}");
            assert!(shown[&own]["MEMORY_MB"].is_null(), "{shown}");
            cloud.assert_consistent(running, "at home").await;
        };
        for (name, cpus, memory) in [("split", 6, 512), ("large", 3, 40_000)] {
            let id = running.active_server_on(&cloud, "a", name).await;
            let source = held(&running, &id).await;
            admin(&running, "2.90", &id, json!({"resize": {"flavorRef": "more"}}))
                .await
                .expect(202);
            running.wait_for_status(&id, "VERIFY_RESIZE").await;
            cloud.assert_consistent(&running, "resized").await;
            admin(&running, "2.90", &id, json!({"revertResize": null})).await.expect(202);
            running.wait_for_status(&id, "ACTIVE").await;
            at_home(&running, &id, cpus, memory).await;
            assert_eq!(held(&running, &id).await, source, "the same cells as before");
            admin(&running, "2.90", &id, json!({"resize": {"flavorRef": "more"}}))
                .await
                .expect(202);
            running.wait_for_status(&id, "VERIFY_RESIZE").await;
            admin(&running, "2.90", &id, json!({"confirmResize": null})).await.expect(204);
            at_home(&running, &id, 8, 1024).await;
            admin(&running, "2.90", &id, json!({"resize": {"flavorRef": name}})).await.expect(202);
            running.wait_for_status(&id, "VERIFY_RESIZE").await;
            admin(&running, "2.90", &id, json!({"confirmResize": null})).await.expect(204);
            at_home(&running, &id, cpus, memory).await;
            admin(&running, "2.90", &id, json!({"migrate": null})).await.expect(202);
            running.wait_for_status(&id, "VERIFY_RESIZE").await;
            admin(&running, "2.90", &id, json!({"confirmResize": null})).await.expect(204);
            at_home(&running, &id, cpus, memory).await;
            let from = host(&running, &id).await;
            let live = json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
            admin(&running, "2.90", &id, live).await.expect(202);
            wait_until("the guest has moved", async || {
                let server = running.server(&id).await;
                server["status"] == "ACTIVE" && server["OS-EXT-SRV-ATTR:host"] != *from
            })
            .await;
            at_home(&running, &id, cpus, memory).await;
            admin(&running, "2.90", &id, json!({"shelve": null})).await.expect(202);
            running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
            assert_eq!(cloud.used("MEMORY_MB").await, 0);
            admin(&running, "2.90", &id, json!({"unshelve": null})).await.expect(202);
            running.wait_for_status(&id, "ACTIVE").await;
            at_home(&running, &id, cpus, memory).await;
            let lost = host(&running, &id).await;
            running.nodes.kill(&lost).await;
            running.force_down(&lost, true).await;
            admin(&running, "2.94", &id, json!({"evacuate": {}})).await.expect(200);
            running.wait_for_status(&id, "ACTIVE").await;
            assert_ne!(host(&running, &id).await, lost);
            running.start_node(&cloud, &lost).await;
            running.force_down(&lost, false).await;
            wait_until("the old host has dropped the guest", async || {
                cloud.column("SELECT host FROM documents").await.len() == 1
            })
            .await;
            at_home(&running, &id, cpus, memory).await;
            cloud.teardown(&running, name).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_controllers_claim_the_cells_of_one_host() {
    let lines: &[&str] = &[TWO_CELLS, BY_CELL];
    boot_at_two_controllers(hosts(&[("a", lines), ("b", lines)])).await;
}

/// Sets the ratio of a class at a provider.
async fn set_ratio(running: &RunningCloud, provider: &str, class: &str, ratio: f64) {
    let path = format!("/resource_providers/{provider}/inventories/{class}");
    let mut own = placement(running, "GET", &path, Value::Null).await;
    own["allocation_ratio"] = json!(ratio);
    placement(running, "PUT", &path, own).await;
}

/// A ratio that the host does not fix is the operator's, also when the host is divided and united. `b` fixes its own.
#[tokio::test]
async fn a_ratio_set_through_placement_outlives_registrations() {
    const FIXED: &str = "cpu_allocation_ratio = 2.0";
    let topology = hosts(&[("a", &[CELLS, AS_WHOLE]), ("b", &[FIXED])]);
    for (mut cloud, mut running) in Cloud::all_running(topology).await {
        let ratio = async |running: &RunningCloud, provider: &str| {
            inventories(running, provider).await["VCPU"][3].as_f64().expect("a ratio")
        };
        let (a, b) =
            (tree(&running, "a").await["a"].clone(), tree(&running, "b").await["b"].clone());
        assert_eq!([ratio(&running, &a).await, ratio(&running, &b).await], [4.0, 2.0]);
        for provider in [&a, &b] {
            set_ratio(&running, provider, "VCPU", 8.0).await;
        }
        restart_with(&mut cloud, &mut running, "a", &[CELLS, AS_WHOLE]).await;
        restart_with(&mut cloud, &mut running, "b", &[FIXED]).await;
        assert_eq!([ratio(&running, &a).await, ratio(&running, &b).await], [8.0, 2.0]);

        restart_with(&mut cloud, &mut running, "a", &[CELLS, BY_CELL]).await;
        let cells = tree(&running, "a").await;
        for cell in ["a_NUMA0", "a_NUMA1"] {
            assert_eq!(ratio(&running, &cells[cell]).await, 8.0, "{cell}");
        }
        set_ratio(&running, &cells["a_NUMA1"], "VCPU", 6.0).await;
        restart_with(&mut cloud, &mut running, "a", &[CELLS, BY_CELL]).await;
        let both =
            [ratio(&running, &cells["a_NUMA0"]).await, ratio(&running, &cells["a_NUMA1"]).await];
        assert_eq!(both, [8.0, 6.0]);
        restart_with(&mut cloud, &mut running, "a", &[CELLS, AS_WHOLE]).await;
        assert_eq!(ratio(&running, &a).await, 6.0, "the lower ratio");
        cloud.assert_consistent(&running, "united").await;
    }
}
