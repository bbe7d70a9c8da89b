//! `hw:gpu_topology` and `accel:topology`: servers get devices at one place of a host, or are refused with the
//! condition that no host meets.

pub mod exclusive;

use std::collections::BTreeSet;

use kilonova_node::topology::Topology;
use serde_json::{Value, json};

use crate::kit::{Cloud, RunningCloud, hosts, wait_until};
use crate::servers::checklist::inspect::devices;
use crate::servers::numa::flavor;
use crate::servers::pci_aliases::boot_without_valid_host;
use crate::servers::resize::admin;

/// A host with two switches of four GPUs, one at each NUMA node; NVLink connects pairs across them.
const EIGHT: &str = r#"
card = [
    { card = "h100", addresses = ["0000:18:00.0", "0000:19:00.0", "0000:1a:00.0", "0000:1b:00.0"], switch = "0000:16:00.0", numa_node = 0 },
    { card = "h100", addresses = ["0000:98:00.0", "0000:99:00.0", "0000:9a:00.0", "0000:9b:00.0"], switch = "0000:96:00.0", numa_node = 1 },
]
devices = { nvlink_islands = ["0000:18:00.0,0000:98:00.0", "0000:19:00.0,0000:99:00.0", "0000:1a:00.0,0000:9a:00.0", "0000:1b:00.0,0000:9b:00.0"] }
pci.device_spec = ['{"vendor_id": "10de", "product_id": "2330", "resource_class": "H100"}']
"#;
/// A host that does not report where its eight GPUs are.
const BARE: &str = r#"
card = [{ card = "h100", addresses = [
    "0000:18:00.0", "0000:19:00.0", "0000:1a:00.0", "0000:1b:00.0",
    "0000:98:00.0", "0000:99:00.0", "0000:9a:00.0", "0000:9b:00.0",
] }]
pci.device_spec = ['{"vendor_id": "10de", "product_id": "2330", "resource_class": "H100"}']
"#;

/// A host with two islands, each of two H100 GPUs and one M10.
const TWO_CLASSES: &str = r#"
card = [
    { card = "h100", addresses = ["0000:18:00.0", "0000:19:00.0", "0000:98:00.0", "0000:99:00.0"] },
    { card = "m10", addresses = ["0000:1a:00.0", "0000:9a:00.0"] },
]
devices = { nvlink_islands = ["0000:18:00.0,0000:19:00.0,0000:1a:00.0", "0000:98:00.0,0000:99:00.0,0000:9a:00.0"] }
pci.device_spec = [
    '{"vendor_id": "10de", "product_id": "2330", "resource_class": "H100"}',
    '{"vendor_id": "10de", "product_id": "13bd", "resource_class": "M10"}',
]
"#;
/// A host with two islands of two GPUs. The second entry lacks one of the GPUs, and thus its island.
const FOUR: [&str; 2] = [
    r#"
card = [{ card = "h100", addresses = ["0000:18:00.0", "0000:19:00.0", "0000:98:00.0", "0000:99:00.0"] }]
devices = { nvlink_islands = ["0000:18:00.0,0000:19:00.0", "0000:98:00.0,0000:99:00.0"] }
pci.device_spec = ['{"vendor_id": "10de", "product_id": "2330", "resource_class": "H100"}']
"#,
    r#"
card = [{ card = "h100", addresses = ["0000:19:00.0", "0000:98:00.0", "0000:99:00.0"] }]
devices = { nvlink_islands = ["0000:98:00.0,0000:99:00.0"] }
pci.device_spec = ['{"vendor_id": "10de", "product_id": "2330", "resource_class": "H100"}']
"#,
];

fn layouts(entries: &[(&str, &str)]) -> Topology {
    let entries: Vec<(&str, [&str; 1])> =
        entries.iter().map(|(name, one)| (*name, [*one])).collect();
    let entries: Vec<(&str, &[&str])> =
        entries.iter().map(|(name, lines)| (*name, &lines[..])).collect();
    hosts(&entries)
}

/// A flavor for `count` GPUs with a topology.
async fn gpus(running: &RunningCloud, name: &str, count: usize, topology: &str) {
    let mut specs = json!({"hw:gpu_topology": topology});
    for number in 0..count {
        specs[format!("resources{number}:CUSTOM_H100")] = "1".into();
    }
    flavor(running, name, 1, 512, specs).await;
}

/// The buses of a server's GPUs, as `18 98`.
async fn buses(cloud: &Cloud, running: &RunningCloud, id: &str) -> String {
    let server = running.server(id).await;
    let host = server["OS-EXT-SRV-ATTR:host"].as_str().expect("the server has a host");
    let all: BTreeSet<String> =
        devices(cloud, host, id).into_iter().map(|seen| seen.is[5..7].to_owned()).collect();
    all.into_iter().collect::<Vec<_>>().join(" ")
}

/// The number of devices that hosts report.
async fn present(cloud: &Cloud) -> i64 {
    let sql = "SELECT COUNT(*) FROM devices WHERE present = 1";
    let read = cloud.store.read(move |tx| tx.row(sql, &[])?.map_or(Ok(0), |row| row.int(0)));
    read.await.unwrap_or_else(|error: kilonova_store::Error| panic!("{error}"))
}

#[tokio::test]
async fn devices_are_at_one_place() {
    for (cloud, running) in Cloud::all_running(layouts(&[("a", EIGHT), ("b", BARE)])).await {
        for (name, count, topology) in [
            ("any-8", 8, "any"),
            ("numa-3", 3, "same-numa"),
            ("switch-4", 4, "same-switch"),
            ("switch-5", 5, "same-switch"),
            ("link-2", 2, "nvlink"),
            ("link-3", 3, "nvlink"),
            ("full-1", 1, "nvlink-full"),
            ("full-2", 2, "nvlink-full"),
        ] {
            gpus(&running, name, count, topology).await;
        }
        let first = running.active_server(&cloud, "first", "link-2").await;
        let pair = buses(&cloud, &running, &first).await;
        assert!(["18 98", "19 99", "1a 9a", "1b 9b"].contains(&&*pair), "{pair}");
        let why = boot_without_valid_host(&cloud, &running, "switch-4").await;
        assert!(why.contains("free below one PCIe switch (hw:gpu_topology=same-switch)"), "{why}");
        let three = running.active_server(&cloud, "three", "numa-3").await;
        let near = buses(&cloud, &running, &three).await;
        let nodes: BTreeSet<Option<char>> = near.split(' ').map(|bus| bus.chars().next()).collect();
        assert!(nodes.len() == 1 && near.split(' ').count() == 3, "{near}");
        assert!(!near.contains(&pair[..2]) && !near.contains(&pair[3..]), "{near} {pair}");
        let why = boot_without_valid_host(&cloud, &running, "link-2").await;
        assert!(why.contains("one NVLink island (hw:gpu_topology=nvlink)"), "{why}");
        cloud.assert_consistent(&running, "near").await;
        for id in [&first, &three] {
            running.delete(id).await;
            running.wait_until_gone(id).await;
        }

        for (flavor, sentence) in [
            ("switch-5", "below one PCIe switch (hw:gpu_topology=same-switch)"),
            ("link-3", "in one NVLink island (hw:gpu_topology=nvlink)"),
            ("full-1", "exactly the requested number of devices (hw:gpu_topology=nvlink-full)"),
        ] {
            let why = boot_without_valid_host(&cloud, &running, flavor).await;
            assert!(why.contains("No valid host") && why.contains(sentence), "{flavor}: {why}");
        }
        let one = running.active_server(&cloud, "one", "switch-4").await;
        let two = running.active_server(&cloud, "two", "switch-4").await;
        let mut both = [buses(&cloud, &running, &one).await, buses(&cloud, &running, &two).await];
        both.sort_unstable();
        assert_eq!(both, ["18 19 1a 1b", "98 99 9a 9b"]);
        // The other host has eight GPUs, and does not report where they are.
        boot_without_valid_host(&cloud, &running, "switch-4").await;
        let free = running.active_server(&cloud, "free", "any-8").await;
        assert_eq!(running.server(&free).await["OS-EXT-SRV-ATTR:host"], "b");
        cloud.assert_consistent(&running, "full").await;
        cloud.teardown(&running, "topology").await;

        let full = running.active_server(&cloud, "full", "full-2").await;
        let pair = buses(&cloud, &running, &full).await;
        assert!(["18 98", "19 99", "1a 9a", "1b 9b"].contains(&&*pair), "{pair}");
        cloud.teardown(&running, "whole island").await;
    }
}

#[tokio::test]
async fn a_profile_has_a_topology_and_a_move_keeps_it() {
    let topology = layouts(&[("a", EIGHT), ("b", EIGHT), ("c", BARE)]);
    for (cloud, running) in Cloud::all_running(topology).await {
        let device = json!({"resources:CUSTOM_H100": "1", "accel:topology": "same-switch"});
        let other = json!({"resources:CUSTOM_H100": "1"});
        cloud.profile("near", &json!([device, other, other, other])).await;
        let specs = json!({"accel:device_profile": "near"});
        flavor(&running, "near", 1, 512, specs).await;
        let id = running.active_server(&cloud, "one", "near").await;
        let is_near = |buses: &str| ["18 19 1a 1b", "98 99 9a 9b"].contains(&buses);
        let before = buses(&cloud, &running, &id).await;
        assert!(is_near(&before), "{before}");
        let host = running.server(&id).await["OS-EXT-SRV-ATTR:host"].clone();
        admin(&running, "2.56", &id, json!({"migrate": null})).await.expect(202);
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        let moved = running.server(&id).await["OS-EXT-SRV-ATTR:host"].clone();
        assert!(moved != host && moved != json!("c"), "{host} {moved}");
        let after = buses(&cloud, &running, &id).await;
        assert!(is_near(&after), "{after}");
        cloud.assert_consistent(&running, "moved").await;
        cloud.teardown(&running, "profile").await;
    }
}

#[tokio::test]
async fn the_claim_reads_where_the_devices_are() {
    for (cloud, running) in Cloud::all_running(layouts(&[("a", EIGHT)])).await {
        gpus(&running, "switch-2", 2, "same-switch").await;
        gpus(&running, "full-2", 2, "nvlink-full").await;
        // The controller's memory is outdated: the plan still sees the switches and the islands.
        cloud.execute("UPDATE devices SET pcie_switch = NULL").await;
        cloud.execute("UPDATE devices SET island = '0000:18:00.0'").await;
        for flavor in ["switch-2", "full-2"] {
            let why = boot_without_valid_host(&cloud, &running, flavor).await;
            assert!(why.contains("was taken by other requests"), "{flavor}: {why}");
        }
        assert_eq!(cloud.used("CUSTOM_H100").await, 0);
        cloud.assert_consistent(&running, "refused").await;
    }
}

#[tokio::test]
async fn a_whole_island_is_all_its_devices_of_the_requested_classes() {
    for (cloud, running) in Cloud::all_running(layouts(&[("a", TWO_CLASSES)])).await {
        gpus(&running, "full-2", 2, "nvlink-full").await;
        let specs = json!({
            "hw:gpu_topology": "nvlink-full", "resources1:CUSTOM_H100": "1",
            "resources2:CUSTOM_H100": "1", "resources3:CUSTOM_M10": "1",
        });
        flavor(&running, "full-3", 1, 512, specs).await;
        let pair = running.active_server(&cloud, "pair", "full-2").await;
        let pair = buses(&cloud, &running, &pair).await;
        assert!(["18 19", "98 99"].contains(&&*pair), "{pair}");
        let three = running.active_server(&cloud, "three", "full-3").await;
        let three = buses(&cloud, &running, &three).await;
        let other = if pair == "18 19" { "98 99 9a" } else { "18 19 1a" };
        assert_eq!(three, other);
        cloud.teardown(&running, "classes").await;
    }
}

#[tokio::test]
async fn a_held_card_that_vanishes_is_in_no_island() {
    for (cloud, mut running) in Cloud::all_running(layouts(&[("a", FOUR[0])])).await {
        gpus(&running, "one", 1, "any").await;
        gpus(&running, "full-2", 2, "nvlink-full").await;
        let held = running.active_server(&cloud, "held", "one").await;
        assert_eq!(buses(&cloud, &running, &held).await, "18");
        // The other island now has the number of the island that is gone.
        running.nodes.kill("a").await;
        running.nodes.start(&layouts(&[("a", FOUR[1])]).hosts[0]);
        wait_until("the card is absent", async || present(&cloud).await == 3).await;
        let pair = running.active_server(&cloud, "pair", "full-2").await;
        assert_eq!(buses(&cloud, &running, &pair).await, "98 99");
        cloud.audit("the card is in use").await;
        running.delete_all_servers().await;
    }
}

#[tokio::test]
async fn unknown_topologies_are_refused() {
    for (cloud, running) in Cloud::all_running(layouts(&[("a", BARE)])).await {
        running.flavor("one", json!({})).await;
        for value in ["close", "", "exclusive", "NVLINK"] {
            let specs = json!({"extra_specs": {"hw:gpu_topology": value}});
            let answer = running.admin("2.104", "POST /flavors/one/os-extra_specs", specs).await;
            let answer: Value = answer.expect(400);
            assert!(answer.to_string().contains("hw:gpu_topology"), "{answer}");
        }
        cloud.assert_consistent(&running, "nothing").await;
    }
}
