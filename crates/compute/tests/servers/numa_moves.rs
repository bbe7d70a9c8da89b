//! Moves of servers with a NUMA topology: each claims cells and CPUs anew on the destination, and releases those on
//! the source together with its other resources.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_node_api::GUEST_DEVICE_CELLS;
use serde_json::{Value, json};

use super::numa::{domain, flavor, pins_of_all, topology, two_cells};
use super::owner_traits::{placement, traits};
use crate::kit::{ADMIN, Cloud, RunningCloud, TWO_CELLS, hosts, wait_until};

const PINNED: fn() -> Value = || json!({"hw:cpu_policy": "dedicated"});

async fn host_of(running: &RunningCloud, id: &str) -> String {
    let host = running.server(id).await["OS-EXT-SRV-ATTR:host"].clone();
    host.as_str().unwrap_or_default().to_owned()
}

/// The dedicated CPUs in use, by host.
async fn used(cloud: &Cloud) -> BTreeMap<String, usize> {
    let mut used = BTreeMap::new();
    for pin in pins_of_all(cloud).await {
        let (host, _) = pin.split_once(':').expect("a host and a CPU");
        *used.entry(host.to_owned()).or_default() += 1;
    }
    used
}

async fn act(running: &RunningCloud, id: &str, action: Value, status: u16) {
    let path = format!("POST /servers/{id}/action");
    running.admin("2.90", &path, action).await.expect(status);
}

#[tokio::test]
async fn a_resize_claims_other_cpus_and_a_revert_gives_the_old_ones_back() {
    for (cloud, running) in Cloud::all_running(two_cells(&["a", "b"])).await {
        flavor(&running, "pinned", 4, 512, PINNED()).await;
        let split = json!({"hw:cpu_policy": "dedicated", "hw:numa_nodes": "2"});
        flavor(&running, "split", 6, 512, split).await;
        let id = running.active_server(&cloud, "one", "pinned").await;
        let (before, source) = (topology(&running, &id).await, host_of(&running, &id).await);
        running.act(&id, json!({"resize": {"flavorRef": "split"}})).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        let dest = host_of(&running, &id).await;
        assert_ne!(dest, source);
        assert_eq!(used(&cloud).await, [(source.clone(), 4), (dest.clone(), 6)].into());
        let resized = topology(&running, &id).await;
        assert_eq!(resized["nodes"].as_array().map(Vec::len), Some(2));
        assert!(domain(&cloud, &dest, &id).contains("kilonova:numa"), "the guest has its cells");
        cloud.assert_consistent(&running, "resized").await;

        running.act(&id, json!({"revertResize": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        wait_until("the destination is empty", async || used(&cloud).await.len() == 1).await;
        assert_eq!(used(&cloud).await, [(source.clone(), 4)].into());
        assert_eq!(topology(&running, &id).await, before);
        cloud.assert_consistent(&running, "reverted").await;

        running.act(&id, json!({"resize": {"flavorRef": "split"}})).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        act(&running, &id, json!({"confirmResize": null}), 204).await;
        wait_until("the source is empty", async || {
            used(&cloud).await == [(dest.clone(), 6)].into()
        })
        .await;
        assert_eq!(topology(&running, &id).await["nodes"].as_array().map(Vec::len), Some(2));

        // To a flavor without a topology and back.
        running.act(&id, json!({"resize": {"flavorRef": "plain"}})).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        act(&running, &id, json!({"confirmResize": null}), 204).await;
        wait_until("no CPU is dedicated", async || used(&cloud).await.is_empty()).await;
        assert_eq!(topology(&running, &id).await["nodes"], json!([]));
        let plain = domain(&cloud, &host_of(&running, &id).await, &id);
        assert!(!plain.contains("kilonova:numa"), "{plain}");
        cloud.assert_consistent(&running, "plain").await;
    }
}

#[tokio::test]
async fn a_resize_on_its_host_has_both_sets_of_cpus_until_the_confirmation() {
    for mut cloud in Cloud::all(two_cells(&["a"])).await {
        cloud.options.allow_resize_to_same_host = true;
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        flavor(&running, "two", 2, 256, PINNED()).await;
        flavor(&running, "four", 4, 256, PINNED()).await;
        let id = running.active_server(&cloud, "one", "two").await;
        running.act(&id, json!({"resize": {"flavorRef": "four"}})).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        assert_eq!(used(&cloud).await, [("a".to_owned(), 6)].into());
        cloud.audit("both").await;
        running.act(&id, json!({"revertResize": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(used(&cloud).await, [("a".to_owned(), 2)].into());
        cloud.assert_consistent(&running, "same host").await;
    }
}

#[tokio::test]
async fn a_cold_migration_and_an_unshelve_fit_the_guest_anew() {
    for (cloud, running) in Cloud::all_running(two_cells(&["a", "b"])).await {
        flavor(&running, "pinned", 4, 512, PINNED()).await;
        let id = running.active_server(&cloud, "one", "pinned").await;
        let source = host_of(&running, &id).await;
        act(&running, &id, json!({"migrate": null}), 202).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        let dest = host_of(&running, &id).await;
        assert_eq!(used(&cloud).await, [(source.clone(), 4), (dest.clone(), 4)].into());
        act(&running, &id, json!({"confirmResize": null}), 204).await;
        wait_until("the source is empty", async || {
            used(&cloud).await == [(dest.clone(), 4)].into()
        })
        .await;
        running.act(&id, json!({"shelve": null})).await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        assert_eq!(used(&cloud).await, BTreeMap::new());
        cloud.assert_consistent(&running, "shelved").await;
        running.act(&id, json!({"unshelve": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(used(&cloud).await.values().sum::<usize>(), 4);
        let host = host_of(&running, &id).await;
        assert!(domain(&cloud, &host, &id).contains("kilonova:numa"), "the guest has its cells");
        cloud.assert_consistent(&running, "unshelved").await;
    }
}

#[tokio::test]
async fn a_live_migration_rewrites_cells_and_cpus_for_the_destination() {
    for (cloud, running) in Cloud::all_running(two_cells(&["a", "b"])).await {
        flavor(&running, "pinned", 4, 512, PINNED()).await;
        let id = running.active_server_on(&cloud, "a", "pinned").await;
        // The first cell of the destination is in use.
        running.active_server_on(&cloud, "b", "pinned").await;
        assert_eq!(topology(&running, &id).await["nodes"][0]["host_node"], 0);
        let live = json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
        act(&running, &id, live, 202).await;
        wait_until("the guest has moved", async || {
            let server = running.server(&id).await;
            server["status"] == "ACTIVE" && server["OS-EXT-SRV-ATTR:host"] == "b"
        })
        .await;
        wait_until("the source is empty", async || {
            used(&cloud).await == [("b".to_owned(), 8)].into()
        })
        .await;
        let shown = topology(&running, &id).await;
        assert_eq!(shown["nodes"][0]["host_node"], 1);
        // The guest uses cells of its new host, not those of the source.
        let xml = domain(&cloud, "b", &id);
        assert!(xml.contains("\"host\":1") && !xml.contains("\"host\":0"), "{xml}");
        cloud.assert_consistent(&running, "moved").await;
    }
}

#[tokio::test]
async fn a_live_migration_that_fails_keeps_cells_and_cpus_of_the_source() {
    let failing = "fail = [{ step = \"migrate\" }]";
    let topology_ = hosts(&[("a", &[TWO_CELLS, failing]), ("b", &[TWO_CELLS])]);
    for (cloud, running) in Cloud::all_running(topology_).await {
        flavor(&running, "pinned", 4, 512, PINNED()).await;
        let id = running.active_server_on(&cloud, "a", "pinned").await;
        let before = topology(&running, &id).await;
        let live = json!({"os-migrateLive": {"host": "b", "block_migration": "auto"}});
        act(&running, &id, live, 202).await;
        settled(&cloud).await;
        assert_eq!(running.server(&id).await["OS-EXT-SRV-ATTR:host"], "a");
        assert_eq!(used(&cloud).await, [("a".to_owned(), 4)].into());
        assert_eq!(topology(&running, &id).await, before);
        cloud.assert_consistent(&running, "failed").await;
    }
}

/// A host of two cells with a GPU at one of them.
fn with_gpu(node: u32) -> String {
    format!(
        "card = [{{ card = \"m10\", addresses = [\"0000:84:00.0\"], numa_node = {node} }}]\n\
         devices = {{ enabled_mdev_types = [\"nvidia-35\"] }}\n{TWO_CELLS}"
    )
}

/// The host cell of each guest cell.
async fn host_cells(running: &RunningCloud, id: &str) -> Vec<u64> {
    let shown = topology(running, id).await;
    let nodes = shown["nodes"].as_array().cloned().unwrap_or_default();
    nodes.iter().filter_map(|node| node["host_node"].as_u64()).collect()
}

/// The cells at which a guest sees its devices, as its domain records them.
fn seen(cloud: &Cloud, host: &str, id: &str) -> Vec<u64> {
    let xml = domain(cloud, host, id);
    let Some((_, devices)) = xml.split_once("\"devices\":{") else { return Vec::new() };
    let devices = devices.split('}').next().unwrap_or_default().split(',');
    devices.filter_map(|device| device.rsplit_once(':')?.1.parse().ok()).collect()
}

/// Deletes a server as an administrator, and waits until its host has removed it.
async fn delete(cloud: &Cloud, running: &RunningCloud, id: &str) {
    running.call(ADMIN, "2.90", &format!("DELETE /servers/{id}"), None).await.expect(204);
    settled(cloud).await;
}

#[tokio::test]
async fn a_live_migration_keeps_the_cells_at_which_the_guest_sees_its_devices() {
    let (one, zero) = (with_gpu(1), with_gpu(0));
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[&one]), ("b", &[&zero])])).await {
        let specs = |cells: &str| json!({"hw:cpu_policy": "dedicated", "hw:numa_nodes": cells, "resources:VGPU": "1"});
        let mut split = specs("2");
        split["hw:numa_cpus.0"] = json!("0-3");
        split["hw:numa_mem.0"] = json!("256");
        split["hw:numa_cpus.1"] = json!("4-5");
        split["hw:numa_mem.1"] = json!("256");
        flavor(&running, "split", 6, 512, split).await;
        flavor(&running, "near", 4, 512, specs("1")).await;
        flavor(&running, "full", 6, 512, PINNED()).await;
        flavor(&running, "four", 4, 512, PINNED()).await;
        let live = json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
        // The first guest takes the first cell. The cell of the GPU on host a then has two CPUs left.
        let first = running.active_server_on(&cloud, "a", "full").await;
        let four = running.active_server_on(&cloud, "a", "four").await;
        delete(&cloud, &running, &first).await;
        let id = running.active_server_on(&cloud, "a", "split").await;
        assert_eq!(host_cells(&running, &id).await, [0, 1]);
        assert_eq!(seen(&cloud, "a", &id), [1], "the GPU of host a is at its cell 1");
        act(&running, &id, live.clone(), 202).await;
        settled(&cloud).await;
        assert_eq!(host_of(&running, &id).await, "b");
        assert_eq!(host_cells(&running, &id).await, [1, 0], "cell 1 of the guest is at the GPU");
        assert_eq!(seen(&cloud, "b", &id), [1]);
        act(&running, &id, json!({"reboot": {"type": "HARD"}}), 202).await;
        settled(&cloud).await;
        assert_eq!(seen(&cloud, "b", &id), [1]);
        cloud.assert_consistent(&running, "moved").await;
        delete(&cloud, &running, &id).await;
        delete(&cloud, &running, &four).await;

        // The cell of the GPU on host b is full. A guest that is shut off may have a far GPU, a running one may not.
        let id = running.active_server_on(&cloud, "a", "near").await;
        assert_eq!((host_cells(&running, &id).await, seen(&cloud, "a", &id)), (vec![1], vec![0]));
        let full = running.active_server_on(&cloud, "b", "full").await;
        assert_eq!(host_cells(&running, &full).await, [0]);
        act(&running, &id, live, 202).await;
        settled(&cloud).await;
        assert_eq!(host_of(&running, &id).await, "a");
        let messages =
            cloud.column("SELECT message FROM operations WHERE message LIKE '%NUMA%'").await;
        let why = messages.join("\n");
        assert!(why.contains("not at the devices that the running guest has there"), "{why}");
        assert_eq!(seen(&cloud, "a", &id), [0]);
        act(&running, &id, json!({"migrate": null}), 202).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        assert_eq!(host_cells(&running, &id).await, [1]);
        assert_eq!(seen(&cloud, "b", &id), [0; 0], "the guest sees no cell of a far device");
        cloud.assert_consistent(&running, "far").await;
    }
}

#[tokio::test]
async fn a_guest_of_an_older_agent_has_no_cells_of_its_devices() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[&with_gpu(0)])])).await {
        let (path, mut body) = traits(&running, "a").await;
        let all = body["traits"].as_array_mut().expect("the answer has traits");
        all.retain(|name| name != GUEST_DEVICE_CELLS);
        placement(&running, "PUT", &path, body).await;
        let specs = json!({"hw:numa_nodes": "1", "resources:VGPU": "1"});
        flavor(&running, "cell", 2, 512, specs).await;
        let id = running.active_server(&cloud, "one", "cell").await;
        assert_eq!((host_cells(&running, &id).await, seen(&cloud, "a", &id)), (vec![0], vec![]));
        cloud.assert_consistent(&running, "older agent").await;
    }
}

/// A small random number generator with the same sequence in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % limit.max(1) as u64).unwrap_or(0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_operations_never_give_a_cpu_to_two_guests() {
    let steps: usize =
        std::env::var("KILONOVA_NUMA_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(30);
    let clouds = Cloud::all_running(two_cells(&["a", "b", "c"])).await;
    // Each store has its own sequence of steps.
    for (seed, (cloud, running)) in (17..).zip(clouds) {
        let dedicated = |specs: Value| {
            let mut all = PINNED();
            let more = specs.as_object().cloned().unwrap_or_default();
            all.as_object_mut().expect("an object").extend(more);
            all
        };
        for (name, vcpus, specs) in [
            ("one", 1, dedicated(json!({}))),
            ("three", 3, dedicated(json!({}))),
            ("require", 2, dedicated(json!({"hw:cpu_thread_policy": "require"}))),
            ("isolated", 2, dedicated(json!({"hw:emulator_threads_policy": "isolate"}))),
            ("split", 4, dedicated(json!({"hw:numa_nodes": "2"}))),
            ("mixed", 3, json!({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "1-2"})),
            ("large", 2, json!({"hw:mem_page_size": "2MB"})),
        ] {
            flavor(&running, name, vcpus, 512, specs).await;
        }
        running.remove_quota_limits().await;
        let flavors = ["one", "three", "require", "isolated", "split", "mixed", "large", "plain"];
        let mut random = Random(seed);
        for step in 0..steps {
            // Several at the same time, so that claims compete.
            for _ in 0..=random.below(3) {
                running.boot(&cloud, "one", flavors[random.below(flavors.len())]).await;
            }
            let servers = running.servers().await;
            let idle: Vec<&Value> =
                servers.iter().filter(|one| one["OS-EXT-STS:task_state"].is_null()).collect();
            for _ in 0..random.below(4) {
                let Some(server) = idle.get(random.below(idle.len())) else { continue };
                let id = server["id"].as_str().expect("the answer has an id");
                let path = format!("POST /servers/{id}/action");
                match (server["status"].as_str().unwrap_or_default(), random.below(4)) {
                    ("VERIFY_RESIZE", 0) => {
                        running.admin("2.90", &path, json!({"revertResize": null})).await;
                    }
                    ("VERIFY_RESIZE", _) => {
                        running.admin("2.90", &path, json!({"confirmResize": null})).await;
                    }
                    ("ACTIVE", 0) => {
                        running.admin("2.90", &path, json!({"migrate": null})).await;
                    }
                    ("ACTIVE", 1) => {
                        let live =
                            json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
                        running.admin("2.90", &path, live).await;
                    }
                    ("ACTIVE", 2) => {
                        let to = flavors[random.below(flavors.len())];
                        let resize = json!({"resize": {"flavorRef": to}});
                        running.admin("2.90", &path, resize).await;
                    }
                    _ => {
                        running.call(ADMIN, "2.90", &format!("DELETE /servers/{id}"), None).await;
                    }
                }
            }
            if step % 4 == 0 {
                settled(&cloud).await;
                check(&cloud, &running, step).await;
            }
        }
        settled(&cloud).await;
        check(&cloud, &running, steps).await;
        cloud.assert_consistent(&running, "random").await;
        for server in running.servers().await {
            let id = server["id"].as_str().expect("the answer has an id");
            running.call(ADMIN, "2.90", &format!("DELETE /servers/{id}"), None).await.expect(204);
        }
        settled(&cloud).await;
        assert_eq!(pins_of_all(&cloud).await, [""; 0]);
        assert_eq!(cloud.used("PCPU").await, 0);
    }
}

async fn settled(cloud: &Cloud) {
    wait_until("no operation is open", async || {
        cloud
            .column("SELECT server_id FROM documents WHERE body = '{\"state\":\"absent\"}'")
            .await
            .is_empty()
            && cloud
                .column("SELECT open_subject FROM operations WHERE open_subject IS NOT NULL")
                .await
                .is_empty()
    })
    .await;
}

/// Checks that the database, the servers' topologies and the guests on the hosts agree about pins.
async fn check(cloud: &Cloud, running: &RunningCloud, step: usize) {
    cloud.audit(&format!("step {step}")).await;
    let dedicated: BTreeSet<u64> = (2..8).chain(10..16).collect();
    let mut seen = BTreeSet::new();
    for server in running.servers().await {
        let id = server["id"].as_str().expect("the answer has an id");
        let host = server["OS-EXT-SRV-ATTR:host"].as_str().unwrap_or_default().to_owned();
        let shown = topology(running, id).await;
        for node in shown["nodes"].as_array().into_iter().flatten() {
            for cpu in node["cpu_pinning"].as_object().into_iter().flat_map(|pins| pins.values()) {
                let cpu = cpu.as_u64().expect("a number");
                assert!(dedicated.contains(&cpu), "{cpu} is not dedicated");
                assert!(seen.insert((host.clone(), cpu)), "{host}: two servers have {cpu}");
            }
        }
    }
    let mut of_guests = BTreeSet::new();
    for host in ["a", "b", "c"] {
        for cpu in cpus_of_guests(cloud, host).into_iter().filter(|cpu| dedicated.contains(cpu)) {
            assert!(of_guests.insert((host.to_owned(), cpu)), "{host}: two guests have {cpu}");
        }
    }
    let without: Vec<_> = seen.difference(&of_guests).collect();
    assert!(without.is_empty(), "step {step}: pinned CPUs that no guest uses: {without:?}");
    let pins: BTreeSet<String> = pins_of_all(cloud).await.into_iter().collect();
    let of_guests: BTreeSet<String> =
        of_guests.into_iter().map(|(host, cpu)| format!("{host}:{cpu}")).collect();
    let foreign: Vec<_> = of_guests.difference(&pins).collect();
    assert!(foreign.is_empty(), "step {step}: CPUs that guests use without a pin: {foreign:?}");
}

/// The host CPUs of those vCPUs of a simulated host's guests that are bound to a single CPU.
fn cpus_of_guests(cloud: &Cloud, host: &str) -> Vec<u64> {
    let domains = std::fs::read_dir(cloud.nodes().join(host).join("domains"));
    let mut cpus = Vec::new();
    for file in domains.into_iter().flatten() {
        let name = file.expect("the directory is read").file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_suffix(".xml")) else { continue };
        let xml = domain(cloud, host, id);
        let parts = xml.split("\"cpus\":\"").skip(1);
        cpus.extend(parts.filter_map(|part| part.split_once('"')?.0.parse::<u64>().ok()));
    }
    cpus
}

/// Checks that the guest of each server has the dedicated CPUs that are pinned for it on its host, and no others.
pub async fn assert_guests_have_their_pins(cloud: &Cloud, servers: &[Value], when: &str) {
    let pins = pins_of_all(cloud).await;
    for server in servers {
        let host = server["OS-EXT-SRV-ATTR:host"].as_str().unwrap_or_default();
        let on_host = pins.iter().filter_map(|pin| pin.strip_prefix(host)?.strip_prefix(':'));
        let mut wanted: Vec<u64> = on_host.filter_map(|cpu| cpu.parse().ok()).collect();
        wanted.sort_unstable();
        let mut cpus = cpus_of_guests(cloud, host);
        cpus.sort_unstable();
        assert!(!cpus.is_empty() && cpus == wanted, "{when}: {cpus:?} on {host}, not {wanted:?}");
    }
}
