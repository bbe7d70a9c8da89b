//! Moves whose new host fails or is lost go on to a third; live migrations take their turns; what is
//! forced is forced.

use kilonova_compute::Options;
use kilonova_compute::reconcile::nudge;
use serde_json::{Value, json};

use crate::kit::{ADMIN, Cloud, GPU, Up, hosts, patiently};
use crate::servers::moving::admin;

const LASTING: &str = "times_ms = { migrate = 60000 }";

fn three() -> kilonova_node::topology::Topology {
    hosts(&[("a", &[GPU, LASTING]), ("b", &[GPU, LASTING]), ("c", &[GPU, LASTING])])
}

async fn host_of(up: &Up, id: &str) -> Value {
    up.server(id).await["OS-EXT-SRV-ATTR:host"].clone()
}

/// The host that the newest migration goes to.
async fn dest(cloud: &Cloud) -> String {
    let sql = "SELECT COALESCE(dest_host, '') FROM moves ORDER BY number DESC LIMIT 1";
    cloud.column(sql).await.remove(0)
}

async fn statuses(cloud: &Cloud) -> Vec<String> {
    cloud.column("SELECT status FROM moves ORDER BY number").await
}

/// The host is lost, and whatever waits for it is looked at.
async fn lose(cloud: &Cloud, up: &Up, host: &str) {
    up.force_down(host, true).await;
    cloud.execute("UPDATE operations SET updated_at = 0 WHERE outcome = 'open'").await;
    nudge::run(up.compute.clone()).await.expect("runs");
}

/// Hosts that were lost are back.
async fn find(up: &mut Up, cloud: &Cloud, hosts: &[&str]) {
    for host in hosts {
        up.start_node(cloud, host).await;
        up.force_down(host, false).await;
    }
    up.hosts_have_dropped(cloud).await;
}

/// Waits until some host is to make the guest.
async fn being_made(cloud: &Cloud) {
    let sql = "SELECT subject FROM operations WHERE step = 'make_dest' AND outcome = 'open'";
    patiently("a document", async || cloud.column(sql).await.len() == 1).await;
}

/// Which is lost is whichever was chosen: both are stopped, and the other one comes back.
#[tokio::test]
async fn a_third_host_is_tried_when_the_second_is_lost() {
    for (cloud, mut up) in Cloud::all_up(three()).await {
        for (action, ends) in [
            (json!({"migrate": null}), "VERIFY_RESIZE"),
            (json!({"resize": {"flavorRef": "vgpu-pair"}}), "VERIFY_RESIZE"),
            (json!({"evacuate": {}}), "ACTIVE"),
        ] {
            let id = up.active_on(&cloud, "a", "vgpu").await;
            let evacuates = action.get("evacuate").is_some();
            for host in ["b", "c"] {
                up.nodes.kill(host).await;
            }
            if evacuates {
                up.nodes.kill("a").await;
                up.force_down("a", true).await;
            }
            let answer = admin(&up, "2.90", &id, action.clone()).await;
            assert!(answer.status.is_success(), "{}", answer.body);
            being_made(&cloud).await;
            let second = dest(&cloud).await;
            let third = if second == "b" { "c" } else { "b" };
            lose(&cloud, &up, &second).await;
            assert_eq!(dest(&cloud).await, third);
            cloud.audit("on to the third").await;
            up.start_node(&cloud, third).await;
            up.becomes(&id, ends).await;
            assert_eq!(host_of(&up, &id).await, third);
            if evacuates {
                find(&mut up, &cloud, &["a", &second]).await;
            } else {
                admin(&up, "2.90", &id, json!({"confirmResize": null})).await.expect(204);
                up.becomes(&id, "ACTIVE").await;
                find(&mut up, &cloud, &[&second]).await;
            }
            cloud.sound(&up, "all are back").await;
            let mut all = statuses(&cloud).await;
            let last = if evacuates { "done" } else { "confirmed" };
            assert_eq!(all.split_off(all.len() - 2), ["error", last]);
            cloud.sweep(&up, ends).await;
        }
    }
}

/// Nobody is left to be tried: one migration, and the server goes on where it was.
#[tokio::test]
async fn without_a_third_host_it_goes_back() {
    let few = Options { max_attempts: 1, ..Options::default() };
    for options in [Options::default(), few] {
        let topology = if options.max_attempts == 1 {
            three()
        } else {
            hosts(&[("a", &[GPU]), ("b", &[GPU])])
        };
        for mut cloud in Cloud::all(topology).await {
            cloud.options = options.clone();
            let mut up = cloud.start().await;
            up.hosts_are_there().await;
            let id = up.active_on(&cloud, "a", "vgpu").await;
            let others: Vec<String> =
                up.nodes.names().into_iter().filter(|name| name != "a").collect();
            for host in &others {
                up.nodes.kill(host).await;
            }
            admin(&up, "2.90", &id, json!({"migrate": null})).await.expect(202);
            being_made(&cloud).await;
            let second = dest(&cloud).await;
            lose(&cloud, &up, &second).await;
            up.becomes(&id, "ACTIVE").await;
            assert_eq!(host_of(&up, &id).await, "a");
            assert_eq!(statuses(&cloud).await, ["error"]);
            for host in &others {
                up.start_node(&cloud, host).await;
            }
            up.force_down(&second, false).await;
            up.hosts_have_dropped(&cloud).await;
            cloud.sound(&up, "back").await;
            cloud.sweep(&up, "back").await;
        }
    }
}

#[tokio::test]
async fn an_unshelve_tries_other_hosts() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = up.active_on(&cloud, "a", "vgpu").await;
        admin(&up, "2.90", &id, json!({"shelve": null})).await.expect(202);
        up.becomes(&id, "SHELVED_OFFLOADED").await;
        up.restart_failing(&cloud, "a", &[("start", None)]).await;
        admin(&up, "2.90", &id, json!({"unshelve": null})).await.expect(202);
        up.becomes(&id, "ACTIVE").await;
        assert_eq!(host_of(&up, &id).await, "b");
        cloud.sound(&up, "unshelved").await;

        admin(&up, "2.90", &id, json!({"shelve": null})).await.expect(202);
        up.becomes(&id, "SHELVED_OFFLOADED").await;
        up.restart_failing(&cloud, "b", &[("start", None)]).await;
        admin(&up, "2.90", &id, json!({"unshelve": null})).await.expect(202);
        up.becomes(&id, "SHELVED_OFFLOADED").await;
        cloud.sound(&up, "nobody can").await;
        cloud.sweep(&up, "nobody can").await;
    }
}

fn live(host: Option<&str>) -> Value {
    json!({"os-migrateLive": {"host": host, "block_migration": "auto"}})
}

async fn goes_over(up: &Up, cloud: &Cloud, id: &str) {
    patiently("a guest on its way", async || {
        let sql = "SELECT o.subject FROM operations o WHERE o.step = 'transfer'";
        cloud.column(sql).await == [id] && up.server(id).await["status"] == "MIGRATING"
    })
    .await;
}

/// The source dies while the guest goes over: whatever the other host has of it goes first.
#[tokio::test]
async fn one_that_was_going_over_is_evacuated() {
    for lost in [false, true] {
        for (cloud, mut up) in Cloud::all_up(three()).await {
            let id = up.active_on(&cloud, "a", "vgpu").await;
            admin(&up, "2.90", &id, live(Some("b"))).await.expect(202);
            goes_over(&up, &cloud, &id).await;
            up.nodes.kill("a").await;
            let evacuate = json!({"evacuate": {}});
            admin(&up, "2.90", &id, evacuate.clone()).await.refused(400, "still in use");
            up.force_down("a", true).await;
            if lost {
                up.nodes.kill("b").await;
            }
            admin(&up, "2.90", &id, evacuate).await.expect(200);
            cloud.audit("evacuated").await;
            if lost {
                assert_eq!(up.server(&id).await["status"], "REBUILD", "it waits for b");
                lose(&cloud, &up, "b").await;
            }
            up.becomes(&id, "ACTIVE").await;
            let there = host_of(&up, &id).await;
            assert!(there != "a" && (!lost || there == "c"), "{there}");
            cloud.audit("arrived").await;
            let back: &[&str] = if lost { &["a", "b"] } else { &["a"] };
            find(&mut up, &cloud, back).await;
            cloud.sound(&up, "all are back").await;
            cloud.sweep(&up, "all are back").await;
        }
    }
}

/// One guest leaves a host at a time, unless the operator wants more.
#[tokio::test]
async fn live_migrations_take_turns() {
    for (cloud, up) in Cloud::all_up(three()).await {
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(up.active_on(&cloud, "a", "vgpu").await);
        }
        for id in &ids {
            admin(&up, "2.90", id, live(None)).await.expect(202);
        }
        goes_over(&up, &cloud, &ids[0]).await;
        assert_eq!(statuses(&cloud).await, ["running", "queued", "queued"]);
        cloud.audit("waiting").await;
        // The second is called off, the third is deleted, and the first makes room for a fourth.
        let number = "SELECT CAST(number AS TEXT) FROM moves ORDER BY number";
        let numbers = cloud.column(number).await;
        let path = |n: usize| format!("DELETE /servers/{}/migrations/{}", ids[n], numbers[n]);
        up.call(ADMIN, "2.64", &path(1), None).await.refused(400, "is queued");
        up.call(ADMIN, "2.65", &path(1), None).await.expect(202);
        up.becomes(&ids[1], "ACTIVE").await;
        up.call(ADMIN, "2.90", &format!("DELETE /servers/{}", ids[2]), None).await.expect(204);
        up.goes(&ids[2]).await;
        cloud.audit("called off").await;
        admin(&up, "2.90", &ids[1], live(Some("c"))).await.expect(202);
        assert_eq!(statuses(&cloud).await[3], "queued");
        let hurry = format!("POST /servers/{}/migrations/{}/action", ids[0], numbers[0]);
        up.call(ADMIN, "2.90", &hurry, Some(json!({"force_complete": null}))).await.expect(202);
        up.becomes(&ids[0], "ACTIVE").await;
        goes_over(&up, &cloud, &ids[1]).await;
        cloud.audit("its turn").await;
        up.clear().await;
        up.hosts_have_dropped(&cloud).await;
        cloud.empty(&up, "all gone").await;
    }
}

/// A host that does not fit the zone and takes no servers: by force only, and with claims.
#[tokio::test]
async fn force_goes_past_filters_and_not_past_claims() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[GPU]), ("c", &[])])).await {
        let zone = json!({"aggregate": {"name": "east", "availability_zone": "east"}});
        let made = up.admin("2.90", "POST /os-aggregates", zone).await.expect(200);
        let path = format!("POST /os-aggregates/{}/action", made["aggregate"]["id"]);
        up.admin("2.90", &path, json!({"add_host": {"host": "a"}})).await.expect(200);
        let wish = json!({"availability_zone": "east"});
        let id = up.boot_with(&cloud, "one", "vgpu", wish).await;
        up.becomes(&id, "ACTIVE").await;

        let forced = |host: &str| {
            json!({"os-migrateLive": {
            "host": host, "block_migration": "auto", "force": true}})
        };
        admin(&up, "2.67", &id, live(Some("b"))).await.expect(202);
        up.becomes(&id, "ACTIVE").await;
        assert_eq!(host_of(&up, &id).await, "a", "the other one is in another zone");
        admin(&up, "2.68", &id, forced("b")).await.refused(400, "'force' was unexpected");
        admin(&up, "2.67", &id, forced("c")).await.expect(202);
        up.becomes(&id, "ACTIVE").await;
        assert_eq!(host_of(&up, &id).await, "a", "no device there can be claimed");
        admin(&up, "2.67", &id, forced("b")).await.expect(202);
        up.becomes(&id, "ACTIVE").await;
        assert_eq!(host_of(&up, &id).await, "b");
        up.hosts_have_dropped(&cloud).await;
        cloud.sound(&up, "forced").await;

        up.nodes.kill("b").await;
        up.force_down("b", true).await;
        for (host, ends) in [("c", "b"), ("a", "a")] {
            let evacuate = json!({"evacuate": {"host": host, "force": true}});
            admin(&up, "2.67", &id, evacuate).await.expect(200);
            up.becomes(&id, "ACTIVE").await;
            assert_eq!(host_of(&up, &id).await, ends, "{host}");
            cloud.audit(host).await;
        }
        find(&mut up, &cloud, &["b"]).await;
        cloud.sound(&up, "evacuated").await;
        cloud.sweep(&up, "evacuated").await;
    }
}
