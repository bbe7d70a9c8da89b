//! Scheduler filters and weighers: server groups, hints, aggregates, and boots of several servers.

use std::collections::BTreeMap;

use kilonova_compute_scheduler::Filter;
use serde_json::{Value, json};

use crate::kit::{ANN, Cloud, GPU, RunningCloud, fault, hosts};

async fn group(running: &RunningCloud, policy: &str, rules: Value) -> String {
    let body = json!({"server_group": {"name": "g", "policy": policy, "rules": rules}});
    let made = running.call(ANN, "2.64", "POST /os-server-groups", Some(body)).await.expect(200);
    made["server_group"]["id"].as_str().expect("the answer has an id").to_owned()
}

/// Boots servers with scheduler hints.
async fn boot_with_hints(
    running: &RunningCloud,
    cloud: &Cloud,
    name: &str,
    count: i64,
    hints: Value,
) -> Vec<Value> {
    let mut boot_request = running.boot_request(cloud, name, "plain");
    boot_request["server"]["min_count"] = json!(count);
    boot_request["os:scheduler_hints"] = hints;
    running.call(ANN, "2.90", "POST /servers", Some(boot_request)).await.expect(202);
    let mut servers = running.wait_all_idle().await;
    servers.retain(|server| server["name"].as_str().is_some_and(|full| full.starts_with(name)));
    servers
}

/// The number of servers on each host.
fn servers_per_host(servers: &[Value]) -> BTreeMap<String, usize> {
    let mut hosts = BTreeMap::new();
    for server in servers {
        assert_eq!(server["status"], "ACTIVE", "{server:#}");
        let host = server["OS-EXT-SRV-ATTR:host"].as_str().expect("the server has a host");
        *hosts.entry(host.to_owned()).or_default() += 1;
    }
    hosts
}

#[tokio::test]
async fn anti_affinity_groups_use_different_hosts() {
    let topology = hosts(&[("a", &[]), ("b", &[]), ("c", &[])]);
    for (cloud, running) in Cloud::all_running(topology).await {
        let id = group(&running, "anti-affinity", json!({})).await;
        let hints = json!({"group": id});
        let two = boot_with_hints(&running, &cloud, "two", 2, hints.clone()).await;
        assert_eq!(servers_per_host(&two).len(), 2);
        let path = format!("/servers/{}", two[0]["id"].as_str().expect("the answer has an id"));
        let shown = running.get(ANN, "2.100", &path).await.expect(200);
        assert_eq!(shown["server"]["scheduler_hints"], json!({"group": [id]}), "each is a list");
        let third = boot_with_hints(&running, &cloud, "third", 1, hints.clone()).await;
        let all: Vec<Value> = two.into_iter().chain(third).collect();
        assert_eq!(servers_per_host(&all).len(), 3);
        let fourth = boot_with_hints(&running, &cloud, "fourth", 1, hints).await;
        assert_eq!(
            fault(&fourth[0]),
            "No valid host was found. There are not enough hosts available. All 3 hosts have room. \
             All 3 of them are rejected by ServerGroupAntiAffinityFilter.",
            "{}",
            fourth[0]
        );
        cloud.assert_consistent(&running, "apart").await;
        cloud.teardown(&running, "apart").await;
    }
}

#[tokio::test]
async fn an_anti_affinity_group_may_allow_several_on_a_host() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[])])).await {
        let id = group(&running, "anti-affinity", json!({"max_server_per_host": 2})).await;
        let servers = boot_with_hints(&running, &cloud, "four", 4, json!({"group": id})).await;
        assert_eq!(servers_per_host(&servers), [("a".into(), 2), ("b".into(), 2)].into());
        let hints = json!({"group": id});
        let more = boot_with_hints(&running, &cloud, "fifth", 1, hints).await;
        assert_eq!(more[0]["status"], "ERROR");
        cloud.teardown(&running, "two on a host").await;
    }
}

/// Concurrent boots into one group see each other's claims.
#[tokio::test]
async fn anti_affinity_holds_for_concurrent_boots() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[]), ("c", &[])])).await {
        let id = group(&running, "anti-affinity", json!({})).await;
        let boot = |n: usize| {
            let mut boot_request = running.boot_request(&cloud, &format!("n{n}"), "plain");
            boot_request["os:scheduler_hints"] = json!({"group": id});
            running.call(ANN, "2.90", "POST /servers", Some(boot_request))
        };
        let answers = tokio::join!(boot(0), boot(1), boot(2), boot(3), boot(4));
        for answer in [answers.0, answers.1, answers.2, answers.3, answers.4] {
            answer.expect(202);
        }
        let servers = running.wait_all_idle().await;
        let (there, refused): (Vec<Value>, Vec<Value>) =
            servers.into_iter().partition(|server| server["status"] == "ACTIVE");
        assert_eq!((there.len(), refused.len()), (3, 2), "{}: {refused:?}", cloud.name);
        assert_eq!(servers_per_host(&there).len(), 3);
        cloud.assert_consistent(&running, "at once").await;
        cloud.teardown(&running, "at once").await;
    }
}

#[tokio::test]
async fn affinity_groups_share_one_host() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[]), ("c", &[])])).await {
        let id = group(&running, "affinity", json!({})).await;
        let hints = json!({"group": id});
        let mut all = boot_with_hints(&running, &cloud, "three", 3, hints.clone()).await;
        assert_eq!(servers_per_host(&all).len(), 1);
        all.extend(boot_with_hints(&running, &cloud, "more", 1, hints).await);
        assert_eq!(servers_per_host(&all).len(), 1);
        cloud.teardown(&running, "together").await;
    }
}

#[tokio::test]
async fn soft_policies_do_not_refuse() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[])])).await {
        let apart = group(&running, "soft-anti-affinity", json!({})).await;
        let servers = boot_with_hints(&running, &cloud, "apart", 2, json!({"group": apart})).await;
        assert_eq!(servers_per_host(&servers).len(), 2);
        let third = boot_with_hints(&running, &cloud, "third", 1, json!({"group": apart})).await;
        assert_eq!(third[0]["status"], "ACTIVE");
        cloud.teardown(&running, "soft").await;
    }
}

#[tokio::test]
async fn an_unknown_group_is_refused() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let nobody = "11111111-2222-4333-8444-555555555555";
        let mut boot_request = running.boot_request(&cloud, "one", "plain");
        boot_request["os:scheduler_hints"] = json!({"group": nobody});
        let answer = running.call(ANN, "2.90", "POST /servers", Some(boot_request)).await;
        answer.refused(400, &format!("Instance group {nobody} could not be found."));
    }
}

#[tokio::test]
async fn same_host_and_different_host_hints() {
    for mut cloud in Cloud::all(hosts(&[("a", &[]), ("b", &[])])).await {
        let filters = &mut cloud.options.scheduler.filters;
        filters.extend([Filter::SameHost, Filter::DifferentHost]);
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        let first = boot_with_hints(&running, &cloud, "first", 1, json!({})).await;
        let (id, host) = (&first[0]["id"], &first[0]["OS-EXT-SRV-ATTR:host"]);
        let with = boot_with_hints(&running, &cloud, "with", 1, json!({"same_host": [id]})).await;
        assert_eq!(with[0]["OS-EXT-SRV-ATTR:host"], *host);
        let without =
            boot_with_hints(&running, &cloud, "without", 1, json!({"different_host": id})).await;
        assert_ne!(without[0]["OS-EXT-SRV-ATTR:host"], *host);
        cloud.teardown(&running, "hints").await;
    }
}

/// With a large PCI weight, a server without devices boots on a host without devices while one has
/// room.
#[tokio::test]
async fn the_pci_weigher_keeps_plain_servers_off_hosts_with_devices() {
    for mut cloud in Cloud::all(hosts(&[("gpu", &[GPU]), ("plain", &[])])).await {
        cloud.options.scheduler.weights.pci = 10.0;
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        for n in 0..4 {
            let servers = boot_with_hints(&running, &cloud, &format!("n{n}"), 1, json!({})).await;
            assert_eq!(servers[0]["OS-EXT-SRV-ATTR:host"], "plain");
        }
        cloud.teardown(&running, "pci weigher").await;
    }
}

/// The filters that read the metadata of aggregates.
#[tokio::test]
async fn aggregate_metadata_restricts_hosts() {
    for mut cloud in Cloud::all(hosts(&[("a", &[]), ("b", &[])])).await {
        let filters = &mut cloud.options.scheduler.filters;
        filters.push(Filter::AggregateInstanceExtraSpecs);
        filters.push(Filter::AggregateMultiTenancyIsolation);
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        let body = json!({"aggregate": {"name": "fast"}});
        let made = running.admin("2.90", "POST /os-aggregates", body).await.expect(200);
        let path = format!("POST /os-aggregates/{}/action", made["aggregate"]["id"]);
        running.admin("2.90", &path, json!({"add_host": {"host": "b"}})).await.expect(200);
        let metadata = |metadata: Value| json!({"set_metadata": {"metadata": metadata}});
        running.admin("2.90", &path, metadata(json!({"disk": "ssd"}))).await.expect(200);
        let specs = json!({"extra_specs": {"aggregate_instance_extra_specs:disk": "ssd"}});
        running.flavor("quick", json!({})).await;
        running.admin("2.61", "POST /flavors/quick/os-extra_specs", specs).await.expect(200);
        let id = running.active_server(&cloud, "quick", "quick").await;
        assert_eq!(running.server(&id).await["OS-EXT-SRV-ATTR:host"], "b");
        let kept = metadata(json!({"disk": null, "filter_tenant_id": "blue"}));
        running.admin("2.90", &path, kept).await.expect(200);
        for n in 0..3 {
            let id = running.active_server(&cloud, &format!("n{n}"), "plain").await;
            assert_eq!(running.server(&id).await["OS-EXT-SRV-ATTR:host"], "a");
        }
        cloud.teardown(&running, "aggregates").await;
    }
}

/// A request group that fits one card only is not blocked by a group that fits several.
#[tokio::test]
async fn servers_of_one_request_do_not_block_each_other() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let specs = json!({"extra_specs": {
            "resources1:VGPU": "3", "resources2:VGPU": "1", "group_policy": "isolate",
        }});
        running.flavor("uneven", json!({})).await;
        running.admin("2.61", "POST /flavors/uneven/os-extra_specs", specs).await.expect(200);
        let more = json!({"min_count": 2, "max_count": 2});
        running.boot_with(&cloud, "two", "uneven", more).await;
        let servers = running.wait_all_idle().await;
        assert_eq!(servers_per_host(&servers), [("a".to_owned(), 2)].into());
        cloud.assert_consistent(&running, "uneven").await;
        cloud.teardown(&running, "uneven").await;
    }
}
