//! Which host is chosen: server groups, filters, and servers that are placed together.

use std::collections::BTreeMap;

use kilonova_compute::app::scheduler::Filter;
use serde_json::{Value, json};

use crate::kit::{ANN, Cloud, GPU, Up, fault, hosts};

async fn group(up: &Up, policy: &str, rules: Value) -> String {
    let body = json!({"server_group": {"name": "g", "policy": policy, "rules": rules}});
    let made = up.call(ANN, "2.64", "POST /os-server-groups", Some(body)).await.expect(200);
    made["server_group"]["id"].as_str().expect("an id").to_owned()
}

/// Asks for servers with hints.
async fn ask(up: &Up, cloud: &Cloud, name: &str, count: i64, hints: Value) -> Vec<Value> {
    let mut wish = up.wish(cloud, name, "plain");
    wish["server"]["min_count"] = json!(count);
    wish["os:scheduler_hints"] = hints;
    up.call(ANN, "2.90", "POST /servers", Some(wish)).await.expect(202);
    let mut servers = up.settle().await;
    servers.retain(|server| server["name"].as_str().is_some_and(|full| full.starts_with(name)));
    servers
}

/// How many of the servers each host has.
fn spread(servers: &[Value]) -> BTreeMap<String, usize> {
    let mut hosts = BTreeMap::new();
    for server in servers {
        assert_eq!(server["status"], "ACTIVE", "{server:#}");
        let host = server["OS-EXT-SRV-ATTR:host"].as_str().expect("a host");
        *hosts.entry(host.to_owned()).or_default() += 1;
    }
    hosts
}

#[tokio::test]
async fn servers_of_an_anti_affinity_group_keep_apart() {
    let topology = hosts(&[("a", &[]), ("b", &[]), ("c", &[])]);
    for (cloud, up) in Cloud::all_up(topology).await {
        let id = group(&up, "anti-affinity", json!({})).await;
        let hints = json!({"group": id});
        let two = ask(&up, &cloud, "two", 2, hints.clone()).await;
        assert_eq!(spread(&two).len(), 2);
        let third = ask(&up, &cloud, "third", 1, hints.clone()).await;
        let all: Vec<Value> = two.into_iter().chain(third).collect();
        assert_eq!(spread(&all).len(), 3);
        let fourth = ask(&up, &cloud, "fourth", 1, hints).await;
        assert_eq!(
            fault(&fourth[0]),
            "No valid host was found. There are not enough hosts available. All 3 hosts have room. All \
             3 of them are turned down by ServerGroupAntiAffinityFilter.",
            "{}",
            fourth[0]
        );
        cloud.sound(&up, "apart").await;
        cloud.sweep(&up, "apart").await;
    }
}

#[tokio::test]
async fn an_anti_affinity_group_may_allow_several_on_a_host() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[]), ("b", &[])])).await {
        let id = group(&up, "anti-affinity", json!({"max_server_per_host": 2})).await;
        let servers = ask(&up, &cloud, "four", 4, json!({"group": id})).await;
        assert_eq!(spread(&servers), [("a".into(), 2), ("b".into(), 2)].into());
        let hints = json!({"group": id});
        let more = ask(&up, &cloud, "fifth", 1, hints).await;
        assert_eq!(more[0]["status"], "ERROR");
        cloud.sweep(&up, "two on a host").await;
    }
}

/// Two who boot into one group at the same time do not place without each other.
#[tokio::test]
async fn a_group_is_kept_apart_when_all_boot_at_once() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[]), ("b", &[]), ("c", &[])])).await {
        let id = group(&up, "anti-affinity", json!({})).await;
        let boot = |n: usize| {
            let mut wish = up.wish(&cloud, &format!("n{n}"), "plain");
            wish["os:scheduler_hints"] = json!({"group": id});
            up.call(ANN, "2.90", "POST /servers", Some(wish))
        };
        let answers = tokio::join!(boot(0), boot(1), boot(2), boot(3), boot(4));
        for answer in [answers.0, answers.1, answers.2, answers.3, answers.4] {
            answer.expect(202);
        }
        let servers = up.settle().await;
        let (there, refused): (Vec<Value>, Vec<Value>) =
            servers.into_iter().partition(|server| server["status"] == "ACTIVE");
        assert_eq!((there.len(), refused.len()), (3, 2), "{}", cloud.name);
        assert_eq!(spread(&there).len(), 3);
        cloud.sound(&up, "at once").await;
        cloud.sweep(&up, "at once").await;
    }
}

#[tokio::test]
async fn servers_of_an_affinity_group_stay_together() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[]), ("b", &[]), ("c", &[])])).await {
        let id = group(&up, "affinity", json!({})).await;
        let hints = json!({"group": id});
        let mut all = ask(&up, &cloud, "three", 3, hints.clone()).await;
        assert_eq!(spread(&all).len(), 1);
        all.extend(ask(&up, &cloud, "more", 1, hints).await);
        assert_eq!(spread(&all).len(), 1);
        cloud.sweep(&up, "together").await;
    }
}

#[tokio::test]
async fn soft_policies_give_way() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[]), ("b", &[])])).await {
        let apart = group(&up, "soft-anti-affinity", json!({})).await;
        let servers = ask(&up, &cloud, "apart", 2, json!({"group": apart})).await;
        assert_eq!(spread(&servers).len(), 2);
        let third = ask(&up, &cloud, "third", 1, json!({"group": apart})).await;
        assert_eq!(third[0]["status"], "ACTIVE");
        cloud.sweep(&up, "soft").await;
    }
}

#[tokio::test]
async fn a_group_that_is_not_there_is_refused() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[])])).await {
        let nobody = "11111111-2222-4333-8444-555555555555";
        let mut wish = up.wish(&cloud, "one", "plain");
        wish["os:scheduler_hints"] = json!({"group": nobody});
        let answer = up.call(ANN, "2.90", "POST /servers", Some(wish)).await;
        answer.refused(400, &format!("Instance group {nobody} could not be found."));
    }
}

#[tokio::test]
async fn hints_name_servers_to_be_with_or_without() {
    for mut cloud in Cloud::all(hosts(&[("a", &[]), ("b", &[])])).await {
        let filters = &mut cloud.options.scheduler.filters;
        filters.extend([Filter::SameHost, Filter::DifferentHost]);
        let up = cloud.start().await;
        up.hosts_are_there().await;
        let first = ask(&up, &cloud, "first", 1, json!({})).await;
        let (id, host) = (&first[0]["id"], &first[0]["OS-EXT-SRV-ATTR:host"]);
        let with = ask(&up, &cloud, "with", 1, json!({"same_host": [id]})).await;
        assert_eq!(with[0]["OS-EXT-SRV-ATTR:host"], *host);
        let without = ask(&up, &cloud, "without", 1, json!({"different_host": id})).await;
        assert_ne!(without[0]["OS-EXT-SRV-ATTR:host"], *host);
        cloud.sweep(&up, "hints").await;
    }
}

/// A server that needs no device is kept off the host that has some, while another has room: as far
/// as the operator wants that more than even hosts.
#[tokio::test]
async fn plain_servers_leave_the_devices_alone() {
    for mut cloud in Cloud::all(hosts(&[("gpu", &[GPU]), ("plain", &[])])).await {
        cloud.options.scheduler.weights.pci = 10.0;
        let up = cloud.start().await;
        up.hosts_are_there().await;
        for n in 0..4 {
            let servers = ask(&up, &cloud, &format!("n{n}"), 1, json!({})).await;
            assert_eq!(servers[0]["OS-EXT-SRV-ATTR:host"], "plain");
        }
        cloud.sweep(&up, "devices alone").await;
    }
}

/// Metadata of aggregates, and the filters that read it.
#[tokio::test]
async fn aggregates_keep_hosts_for_some() {
    for mut cloud in Cloud::all(hosts(&[("a", &[]), ("b", &[])])).await {
        let filters = &mut cloud.options.scheduler.filters;
        filters.push(Filter::AggregateInstanceExtraSpecs);
        filters.push(Filter::AggregateMultiTenancyIsolation);
        let up = cloud.start().await;
        up.hosts_are_there().await;
        let body = json!({"aggregate": {"name": "fast"}});
        let made = up.admin("2.90", "POST /os-aggregates", body).await.expect(200);
        let path = format!("POST /os-aggregates/{}/action", made["aggregate"]["id"]);
        up.admin("2.90", &path, json!({"add_host": {"host": "b"}})).await.expect(200);
        let metadata = |metadata: Value| json!({"set_metadata": {"metadata": metadata}});
        up.admin("2.90", &path, metadata(json!({"disk": "ssd"}))).await.expect(200);
        let specs = json!({"extra_specs": {"aggregate_instance_extra_specs:disk": "ssd"}});
        up.flavor("quick", json!({})).await;
        up.admin("2.61", "POST /flavors/quick/os-extra_specs", specs).await.expect(200);
        let id = up.active(&cloud, "quick", "quick").await;
        assert_eq!(up.server(&id).await["OS-EXT-SRV-ATTR:host"], "b");
        let kept = metadata(json!({"disk": null, "filter_tenant_id": "blue"}));
        up.admin("2.90", &path, kept).await.expect(200);
        for n in 0..3 {
            let id = up.active(&cloud, &format!("n{n}"), "plain").await;
            assert_eq!(up.server(&id).await["OS-EXT-SRV-ATTR:host"], "a");
        }
        cloud.sweep(&up, "aggregates").await;
    }
}

/// The group that is choosy about its card is not robbed of it by the one that is not.
#[tokio::test]
async fn servers_of_one_request_do_not_stand_in_each_others_way() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let specs = json!({"extra_specs": {
            "resources1:VGPU": "3", "resources2:VGPU": "1", "group_policy": "isolate",
        }});
        up.flavor("uneven", json!({})).await;
        up.admin("2.61", "POST /flavors/uneven/os-extra_specs", specs).await.expect(200);
        let more = json!({"min_count": 2, "max_count": 2});
        up.boot_with(&cloud, "two", "uneven", more).await;
        let servers = up.settle().await;
        assert_eq!(spread(&servers), [("a".to_owned(), 2)].into());
        cloud.sound(&up, "uneven").await;
        cloud.sweep(&up, "uneven").await;
    }
}
