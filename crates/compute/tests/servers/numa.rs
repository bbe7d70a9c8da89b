//! Servers with a NUMA topology: dedicated CPUs, cells and pages are claimed with the server, are in its
//! document, and are released with it.

use std::collections::BTreeSet;

use kilonova_node::topology::Topology;
use serde_json::{Value, json};

use crate::kit::{
    ADMIN, ANN, Client, Cloud, Controllers, GPU, RunningCloud, TWO_CELLS, hosts, wait_until,
};
use crate::servers::metadata_service::Proxy;

pub fn two_cells(names: &[&str]) -> Topology {
    let entries: Vec<(&str, &[&str])> =
        names.iter().map(|name| (*name, &[TWO_CELLS][..])).collect();
    hosts(&entries)
}

/// Creates a flavor with these extra specs.
pub async fn flavor(running: &RunningCloud, name: &str, vcpus: u32, ram: u32, specs: Value) {
    let flavor = json!({"id": name, "name": name, "ram": ram, "vcpus": vcpus, "disk": 1});
    running.admin("2.1", "POST /flavors", json!({"flavor": flavor})).await.expect(200);
    let path = format!("POST /flavors/{name}/os-extra_specs");
    running.admin("2.104", &path, json!({"extra_specs": specs})).await.expect(200);
}

/// The topology of a server as an admin sees it.
pub async fn topology(running: &RunningCloud, id: &str) -> Value {
    running.get(ADMIN, "2.78", &format!("/servers/{id}/topology")).await.expect(200)
}

/// The host CPUs of a server's vCPUs.
async fn pins(running: &RunningCloud, id: &str) -> Vec<u64> {
    let shown = topology(running, id).await;
    let nodes = shown["nodes"].as_array().cloned().unwrap_or_default();
    let pinned = nodes.iter().filter_map(|node| node["cpu_pinning"].as_object());
    pinned.flat_map(|pins| pins.values().filter_map(Value::as_u64)).collect()
}

/// The pins in the database.
pub async fn pins_of_all(cloud: &Cloud) -> Vec<String> {
    cloud.column("SELECT host || ':' || CAST(cpu AS TEXT) FROM pins ORDER BY host, cpu").await
}

async fn fault(running: &RunningCloud, id: &str) -> String {
    let fault = running.wait_for_status(id, "ERROR").await["fault"].clone();
    format!("{} {}", fault["message"], fault["details"])
}

/// The domain XML of a guest on a simulated host, with its quotation marks.
pub fn domain(cloud: &Cloud, host: &str, id: &str) -> String {
    let path = cloud.nodes().join(host).join("domains").join(format!("{id}.xml"));
    std::fs::read_to_string(path).expect("the domain XML is read").replace("&quot;", "\"")
}

/// Restarts the agent of the only host, which now has other NUMA cells.
async fn restart_with(cloud: &mut Cloud, running: &mut RunningCloud, numa: &[&str]) {
    running.nodes.kill("a").await;
    cloud.topology.hosts[0] = hosts(&[("a", numa)]).hosts[0].clone();
    running.start_node(cloud, "a").await;
}

#[tokio::test]
async fn a_pinned_server_gets_cpus_of_its_own_until_it_is_deleted() {
    for (cloud, running) in Cloud::all_running(two_cells(&["a"])).await {
        flavor(&running, "pinned", 4, 512, json!({"hw:cpu_policy": "dedicated"})).await;
        let one = running.active_server(&cloud, "one", "pinned").await;
        let two = running.active_server(&cloud, "two", "pinned").await;
        assert_eq!(cloud.used("PCPU").await, 8);
        assert_eq!(cloud.used("VCPU").await, 0);
        let shown = topology(&running, &one).await;
        assert_eq!(
            shown["nodes"],
            json!([{
                "vcpu_set": [0, 1, 2, 3], "memory_mb": 512, "siblings": [], "host_node": 0,
                "cpu_pinning": {"0": 2, "1": 3, "2": 4, "3": 5},
            }])
        );
        assert_eq!(shown["pagesize_kb"], 4);
        let plain = running.get(ANN, "2.78", &format!("/servers/{one}/topology")).await.expect(200);
        let hidden = json!({"vcpu_set": [0, 1, 2, 3], "memory_mb": 512, "siblings": []});
        assert_eq!(plain["nodes"], json!([hidden]), "the owner does not see the host's CPUs");
        let all: BTreeSet<u64> =
            pins(&running, &one).await.into_iter().chain(pins(&running, &two).await).collect();
        assert_eq!(all.len(), 8, "no CPU is pinned for two guests: {all:?}");
        assert_eq!(pins_of_all(&cloud).await.len(), 8);
        let xml = domain(&cloud, "a", &one);
        assert!(xml.contains("\"cpus\":\"2\""), "{xml}");
        assert!(xml.contains("\"dedicated_cpus\":[0,1,2,3]"), "{xml}");
        let told = Proxy::of(&running).meta_data(&one).await;
        assert_eq!(told["dedicated_cpus"], json!([0, 1, 2, 3]));

        // Two dedicated CPUs are left in each cell: the total suffices, but no single cell does.
        let three = running.boot(&cloud, "three", "pinned").await;
        let why = fault(&running, &three).await;
        assert!(why.contains("No valid host"), "{why}");
        assert!(why.contains("no place for the NUMA topology"), "{why}");
        assert!(why.contains("too few free dedicated CPUs"), "{why}");
        assert!(why.contains("NUMATopologyFilter"), "{why}");
        assert_eq!(pins_of_all(&cloud).await.len(), 8);
        flavor(
            &running,
            "split",
            4,
            512,
            json!({"hw:cpu_policy": "dedicated", "hw:numa_nodes": "2"}),
        )
        .await;
        running.delete(&three).await;
        let split = running.active_server(&cloud, "split", "split").await;
        assert_eq!(topology(&running, &split).await["nodes"][1]["host_node"], 1);
        cloud.assert_consistent(&running, "pinned").await;
        for id in [&one, &two, &split] {
            running.delete(id).await;
            running.wait_until_gone(id).await;
        }
        assert_eq!(pins_of_all(&cloud).await, [""; 0]);
        assert_eq!(cloud.column("SELECT consumer_id FROM fits").await, [""; 0]);
        cloud.assert_consistent(&running, "deleted").await;
    }
}

#[tokio::test]
async fn pages_and_shared_cells_are_counted() {
    for (cloud, running) in Cloud::all_running(two_cells(&["a"])).await {
        let large = json!({"hw:mem_page_size": "large"});
        flavor(&running, "large", 2, 1536, large).await;
        let one = running.active_server(&cloud, "one", "large").await;
        let two = running.active_server(&cloud, "two", "large").await;
        let shown = [topology(&running, &one).await, topology(&running, &two).await];
        assert_eq!(shown.clone().map(|one| one["pagesize_kb"].clone()), [2048, 2048]);
        assert_eq!(shown.map(|one| one["nodes"][0]["host_node"].clone()), [0, 1]);
        let three = running.boot(&cloud, "three", "large").await;
        let why = fault(&running, &three).await;
        assert!(why.contains("no free memory pages of the requested size"), "{why}");
        running.delete(&two).await;
        running.wait_until_gone(&two).await;
        let four = running.active_server(&cloud, "four", "large").await;
        assert_eq!(topology(&running, &four).await["nodes"][0]["host_node"], 1);
        // Shared vCPUs run on all shared CPUs of their cell.
        let xml = domain(&cloud, "a", &four);
        assert!(xml.contains("8-9"), "{xml}");
        assert_eq!(cloud.used("VCPU").await, 4);
        cloud.assert_consistent(&running, "pages").await;
    }
}

#[tokio::test]
async fn the_next_host_is_taken_if_the_topology_does_not_fit() {
    // One cell of host `a` is too small, but it has more dedicated CPUs.
    let narrow = "numa = [{ dedicated = \"0-2\", memory_mb = 32736 }, \
                  { dedicated = \"3-5\", memory_mb = 32736 }, { dedicated = \"6-63\", memory_mb = 64 }]";
    let topology_ = hosts(&[("a", &[narrow]), ("b", &[TWO_CELLS]), ("c", &[])]);
    for (cloud, running) in Cloud::all_running(topology_).await {
        flavor(&running, "pinned", 4, 512, json!({"hw:cpu_policy": "dedicated"})).await;
        for name in ["one", "two"] {
            let id = running.active_server(&cloud, name, "pinned").await;
            assert_eq!(running.server(&id).await["OS-EXT-SRV-ATTR:host"], "b");
        }
        // No host has room for another one.
        let many = json!({"min_count": 1, "max_count": 3});
        let id = running.boot_with(&cloud, "many", "pinned", many).await;
        let why = fault(&running, &id).await;
        assert!(why.contains("no place for the NUMA topology"), "{why}");
        cloud.assert_consistent(&running, "next host").await;
    }
}

#[tokio::test]
async fn several_servers_of_a_request_get_as_many_places_as_there_are() {
    for (cloud, running) in Cloud::all_running(two_cells(&["a"])).await {
        flavor(&running, "pinned", 4, 512, json!({"hw:cpu_policy": "dedicated"})).await;
        let many = json!({"min_count": 1, "max_count": 3});
        running.boot_with(&cloud, "many", "pinned", many).await;
        wait_until("the servers run", async || {
            let servers = running.servers().await;
            servers.len() == 2 && servers.iter().all(|server| server["status"] == "ACTIVE")
        })
        .await;
        assert_eq!(pins_of_all(&cloud).await.len(), 8);
        cloud.assert_consistent(&running, "many").await;
    }
}

#[tokio::test]
async fn devices_of_an_alias_are_near_the_guest() {
    let cards = "card = [\
        { card = \"nvme\", addresses = [\"0000:01:00.0\"], numa_node = 1 }]\n\
        pci.device_spec = ['{\"vendor_id\": \"144d\", \"product_id\": \"a808\", \"resource_class\": \"NVME\"}']";
    for mut cloud in Cloud::all(hosts(&[("a", &[TWO_CELLS, cards])])).await {
        cloud.options.pci_aliases = crate::kit::aliases(&[
            r#"{"name": "disk", "vendor_id": "144d", "product_id": "a808", "resource_class": "NVME"}"#,
        ]);
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        let specs = json!({"hw:cpu_policy": "dedicated", "pci_passthrough:alias": "disk:1"});
        flavor(&running, "near", 4, 512, specs).await;
        flavor(&running, "pinned", 6, 512, json!({"hw:cpu_policy": "dedicated"})).await;
        let near = running.active_server(&cloud, "near", "near").await;
        assert_eq!(topology(&running, &near).await["nodes"][0]["host_node"], 1);
        running.delete(&near).await;
        running.wait_until_gone(&near).await;
        // Servers without devices use the cells without devices first.
        let first = running.active_server(&cloud, "first", "pinned").await;
        assert_eq!(topology(&running, &first).await["nodes"][0]["host_node"], 0);
        let second = running.active_server(&cloud, "second", "pinned").await;
        running.delete(&first).await;
        running.wait_until_gone(&first).await;
        let far = running.boot(&cloud, "far", "near").await;
        let why = fault(&running, &far).await;
        assert!(why.contains("not near the devices"), "{why}");
        running.delete(&second).await;
        cloud.audit("near").await;
    }
}

#[tokio::test]
async fn the_policy_of_an_alias_holds_unless_the_flavor_has_one() {
    let cards = "card = [\
        { card = \"nvme\", addresses = [\"0000:01:00.0\", \"0000:02:00.0\", \"0000:03:00.0\"], \
        numa_node = 1 }]\n\
        pci.device_spec = ['{\"vendor_id\": \"144d\", \"product_id\": \"a808\", \"resource_class\": \"NVME\"}']";
    let alias = |name: &str, policy: &str| {
        format!(
            r#"{{"name": "{name}", "vendor_id": "144d", "product_id": "a808", "resource_class": "NVME",
                "numa_policy": "{policy}"}}"#
        )
    };
    for mut cloud in Cloud::all(hosts(&[("a", &[TWO_CELLS, cards])])).await {
        cloud.options.pci_aliases =
            crate::kit::aliases(&[&alias("near", "required"), &alias("any", "preferred")]);
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        flavor(&running, "pinned", 6, 512, json!({"hw:cpu_policy": "dedicated"})).await;
        let specs = |alias: &str| json!({"hw:cpu_policy": "dedicated", "pci_passthrough:alias": format!("{alias}:1")});
        flavor(&running, "near", 4, 512, specs("near")).await;
        flavor(&running, "any", 4, 512, specs("any")).await;
        let mut lenient = specs("near");
        lenient["hw:pci_numa_affinity_policy"] = json!("preferred");
        flavor(&running, "lenient", 4, 512, lenient).await;
        // Two servers leave no CPUs at the device's cell.
        let first = running.active_server(&cloud, "first", "pinned").await;
        let second = running.active_server(&cloud, "second", "pinned").await;
        assert_eq!(topology(&running, &second).await["nodes"][0]["host_node"], 1);
        running.delete(&first).await;
        running.wait_until_gone(&first).await;
        let refused = running.boot(&cloud, "refused", "near").await;
        let why = fault(&running, &refused).await;
        assert!(why.contains("not near the devices"), "{why}");
        for name in ["any", "lenient"] {
            let far = running.active_server(&cloud, name, name).await;
            assert_eq!(topology(&running, &far).await["nodes"][0]["host_node"], 0, "{name}");
            running.delete(&far).await;
            running.wait_until_gone(&far).await;
        }
        running.delete(&second).await;
        running.wait_until_gone(&second).await;
        let near = running.active_server(&cloud, "near", "near").await;
        assert_eq!(topology(&running, &near).await["nodes"][0]["host_node"], 1);
        cloud.audit("policies of aliases").await;
    }
}

#[tokio::test]
async fn a_failed_build_releases_its_cpus_and_takes_others() {
    let failing = "fail = [{ step = \"start\" }]";
    let topology_ = hosts(&[("bad", &[TWO_CELLS, failing]), ("good", &[TWO_CELLS])]);
    for (cloud, running) in Cloud::all_running(topology_).await {
        flavor(&running, "pinned", 4, 512, json!({"hw:cpu_policy": "dedicated"})).await;
        for name in ["one", "two"] {
            let id = running.active_server(&cloud, name, "pinned").await;
            assert_eq!(running.server(&id).await["OS-EXT-SRV-ATTR:host"], "good");
        }
        assert_eq!(pins_of_all(&cloud).await.len(), 8);
        let id = running.boot(&cloud, "three", "pinned").await;
        fault(&running, &id).await;
        assert_eq!(pins_of_all(&cloud).await.len(), 8);
        cloud.assert_consistent(&running, "failed").await;
    }
}

#[tokio::test]
async fn agents_that_realize_no_cells_are_not_chosen() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        flavor(&running, "cells", 2, 512, json!({"hw:numa_nodes": "1"})).await;
        let id = running.boot(&cloud, "one", "cells").await;
        let why = fault(&running, &id).await;
        assert!(why.contains("CUSTOM_GUEST_NUMA"), "{why}");
        cloud.audit("no cells").await;
    }
}

#[tokio::test]
async fn a_rebuild_keeps_the_topology_and_its_cpus() {
    for (cloud, running) in Cloud::all_running(two_cells(&["a"])).await {
        flavor(&running, "pinned", 4, 512, json!({"hw:cpu_policy": "dedicated"})).await;
        let id = running.active_server(&cloud, "one", "pinned").await;
        let before = topology(&running, &id).await;
        let image = cloud.image_with("cells", &[("hw_numa_nodes", "2")], b"disk".to_vec()).await;
        running.try_act(&id, json!({"rebuild": {"imageRef": image}})).await.refused(
            400,
            "An instance's NUMA topology cannot be changed as part of a rebuild. The image provided is \
             invalid for this instance.",
        );
        running.act(&id, json!({"rebuild": {"imageRef": cloud.image}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(topology(&running, &id).await, before);
        cloud.assert_consistent(&running, "rebuilt").await;
    }
}

#[tokio::test]
async fn guests_keep_cpus_that_the_host_no_longer_offers() {
    let fewer = "numa = [\
        { shared = \"0-3\", dedicated = \"4-7\", threads = 2, memory_mb = 32736 }, \
        { shared = \"8-9\", dedicated = \"10-15\", threads = 2, memory_mb = 32736 }, \
        { shared = \"16-63\", memory_mb = 64 }]";
    for (mut cloud, mut running) in Cloud::all_running(two_cells(&["a"])).await {
        flavor(&running, "pinned", 4, 512, json!({"hw:cpu_policy": "dedicated"})).await;
        let one = running.active_server(&cloud, "one", "pinned").await;
        assert_eq!(pins(&running, &one).await, [2, 3, 4, 5]);
        restart_with(&mut cloud, &mut running, &[fewer]).await;
        assert_eq!(pins(&running, &one).await, [2, 3, 4, 5]);
        let two = running.active_server(&cloud, "two", "pinned").await;
        assert_eq!(topology(&running, &two).await["nodes"][0]["host_node"], 1);
        cloud.assert_consistent(&running, "fewer").await;

        // A host that reports no cells keeps its guests, but receives no others with a topology.
        restart_with(&mut cloud, &mut running, &[]).await;
        flavor(&running, "cells", 1, 512, json!({"hw:numa_nodes": "1"})).await;
        let three = running.boot(&cloud, "three", "cells").await;
        assert!(fault(&running, &three).await.contains("CUSTOM_GUEST_NUMA"));
        for id in [&one, &two] {
            running.delete(id).await;
            running.wait_until_gone(id).await;
        }
        assert_eq!(pins_of_all(&cloud).await, [""; 0]);
        cloud.audit("no cells").await;
    }
}

#[tokio::test]
async fn guests_keep_cpus_that_are_in_another_cell_after_a_reboot() {
    let swapped = "numa = [\
        { shared = \"8-9\", dedicated = \"10-15\", threads = 2, memory_mb = 32736 }, \
        { shared = \"0-1\", dedicated = \"2-7\", threads = 2, memory_mb = 32736 }, \
        { shared = \"16-63\", memory_mb = 64 }]";
    for (mut cloud, mut running) in Cloud::all_running(two_cells(&["a"])).await {
        flavor(&running, "pinned", 4, 512, json!({"hw:cpu_policy": "dedicated"})).await;
        let one = running.active_server(&cloud, "one", "pinned").await;
        assert_eq!(pins(&running, &one).await, [2, 3, 4, 5]);
        restart_with(&mut cloud, &mut running, &[swapped]).await;
        let undivided = "SELECT undivided FROM hosts WHERE host = 'a'";
        let why = cloud.column(undivided).await;
        assert!(why[0].contains("its CPUs 2-5 are in another cell now"), "{why:?}");
        assert_eq!(pins(&running, &one).await, [2, 3, 4, 5]);
        let two = running.active_server(&cloud, "two", "pinned").await;
        assert_eq!(topology(&running, &two).await["nodes"][0]["host_node"], 0);
        let three = running.boot(&cloud, "three", "pinned").await;
        let why = fault(&running, &three).await;
        assert!(why.contains("too few free dedicated CPUs"), "{why}");
        cloud.assert_consistent(&running, "swapped").await;

        for id in [&one, &two, &three] {
            running.delete(id).await;
            running.wait_until_gone(id).await;
        }
        restart_with(&mut cloud, &mut running, &[swapped]).await;
        assert_eq!(cloud.column("SELECT host FROM divided_hosts").await, ["a"]);
        // Without guests the division follows the cells at once.
        restart_with(&mut cloud, &mut running, &[TWO_CELLS]).await;
        assert_eq!(cloud.column("SELECT host FROM divided_hosts").await, ["a"]);
        running.active_server(&cloud, "four", "pinned").await;
        cloud.assert_consistent(&running, "divided again").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_controllers_never_give_one_cpu_twice() {
    boot_at_two_controllers(two_cells(&["a", "b"])).await;
}

/// Boots more servers with dedicated CPUs than two hosts of two cells have room for, at two controllers.
pub async fn boot_at_two_controllers(topology: Topology) {
    let Some(both) = Controllers::with_hosts(topology).await else { return };
    let (cloud, running, other) = (&both.cloud, &both.running, &both.other.client);
    let own: &Client = running;
    flavor(running, "pinned", 4, 512, json!({"hw:cpu_policy": "dedicated"})).await;
    running.remove_quota_limits().await;
    // The hosts have room for four. Each controller boots four at the same time.
    let boot = async |client: &Client| {
        let request = running.boot_request(cloud, "one", "pinned");
        let made = client.call(ANN, "2.90", "POST /servers", Some(request)).await.expect(202);
        made["server"]["id"].as_str().expect("the answer has an id").to_owned()
    };
    tokio::join!(
        boot(own),
        boot(other),
        boot(own),
        boot(other),
        boot(own),
        boot(other),
        boot(own),
        boot(other)
    );
    wait_until("all boots have ended", async || {
        running.servers().await.iter().all(|server| server["status"] != "BUILD")
    })
    .await;
    let servers = running.servers().await;
    let active = servers.iter().filter(|server| server["status"] == "ACTIVE").count();
    assert_eq!((servers.len(), active), (8, 4), "{servers:?}");
    assert_eq!(pins_of_all(cloud).await.len(), 16);
    cloud.audit("two controllers").await;
}
