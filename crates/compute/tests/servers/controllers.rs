//! Several controllers on one PostgreSQL: a request and a host may be at different ones, and the rows
//! decide which agent is the valid one.

use kilonova_changes::Subscriber;
use kilonova_ids::HostName;
use kilonova_node_api::{Attempt, ControlPlane, Observation, Outcome, Refusal, Registration};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::kit::{ADMIN, ANN, Client, Controllers, GPU, RunningCloud, hosts, wait_until};

fn named(host: &str) -> HostName {
    HostName::verbatim(host)
}

fn registration(host: &str, attempt: Option<Attempt>) -> Registration {
    Registration {
        host: named(host),
        machine_id: "0123456789abcdef0123456789abcdef".into(),
        hypervisor_type: "simulated".into(),
        hypervisor_version: 1000,
        host_ip: "127.0.0.1".into(),
        vcpus: 8,
        memory_mb: 8192,
        disk_gb: 100,
        ratios: [1.0; 3],
        initial_ratios: [false; 3],
        reserved_memory_mb: 0,
        reserved_cpus: 0,
        reserved_disk_gb: 0,
        traits: Vec::new(),
        devices: Vec::new(),
        agent_version: None,
        attempt,
        connector: None,
        routes: None,
        cells: None,
        numa_in_placement: false,
    }
}

async fn show(client: &Client, id: &str) -> Value {
    let answer = client.get(ADMIN, "2.90", &format!("/servers/{id}")).await;
    if answer.status == 404 { Value::Null } else { answer.expect(200)["server"].take() }
}

/// Waits until both controllers show a state.
async fn wait_for(both: &Controllers, id: &str, status: &str) {
    for client in [&both.other.client, &*both.running] {
        wait_until(&format!("{id} is {status}"), async || {
            let server = show(client, id).await;
            let is_idle = server["OS-EXT-STS:task_state"].is_null();
            let is_lost = is_idle && server["status"] == "ERROR" && status != "ERROR";
            assert!(!is_lost, "{server}");
            server["status"] == status && is_idle
        })
        .await;
    }
}

/// A host may poll another controller than the one that requests its reports.
#[tokio::test]
async fn either_controller_requests_a_report_that_the_database_lost() {
    let Some(both) = Controllers::with_hosts(hosts(&[("a", &[GPU])])).await else { return };
    for compute in [&both.running.compute, &both.other.compute] {
        let mut id = String::new();
        let boots = async |running: &RunningCloud| {
            id = running.boot(&both.cloud, "lost", "plain").await;
        };
        both.running.lose_reports(1, boots).await;
        compute.reloaded();
        wait_for(&both, &id, "ACTIVE").await;
    }
    both.running.kill().await;
}

/// Every action that waits for a host, requested at the two controllers in turn.
#[tokio::test]
async fn requests_and_hosts_may_be_at_different_controllers() {
    let Some(both) = Controllers::with_hosts(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await else {
        return;
    };
    let clients = [&*both.running, &both.other.client];
    for (turn, client) in clients.into_iter().enumerate() {
        let there = clients[1 - turn];
        let request = both.running.boot_request(&both.cloud, "one", "vgpu");
        let made = client.call(ANN, "2.90", "POST /servers", Some(request)).await.expect(202);
        let id = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
        wait_for(&both, &id, "ACTIVE").await;
        let steps = [
            (json!({"os-stop": null}), "SHUTOFF"),
            (json!({"os-start": null}), "ACTIVE"),
            (json!({"reboot": {"type": "HARD"}}), "ACTIVE"),
            (json!({"reboot": {"type": "SOFT"}}), "ACTIVE"),
            (json!({"pause": null}), "PAUSED"),
            (json!({"unpause": null}), "ACTIVE"),
            (json!({"suspend": null}), "SUSPENDED"),
            (json!({"resume": null}), "ACTIVE"),
            (json!({"rebuild": {"imageRef": both.cloud.image}}), "ACTIVE"),
            (json!({"os-migrateLive": {"host": null, "block_migration": "auto"}}), "ACTIVE"),
            (json!({"migrate": {"host": null}}), "VERIFY_RESIZE"),
            (json!({"revertResize": null}), "ACTIVE"),
            (json!({"migrate": {"host": null}}), "VERIFY_RESIZE"),
            (json!({"confirmResize": null}), "ACTIVE"),
        ];
        for (number, (action, status)) in steps.into_iter().enumerate() {
            let asked = if number % 2 == 0 { client } else { there };
            let path = format!("POST /servers/{id}/action");
            let answer = asked.call(ADMIN, "2.90", &path, Some(action.clone())).await;
            assert!(answer.status.is_success(), "{action}: {answer:?}");
            wait_for(&both, &id, status).await;
            // A host accepts a server again only after it has removed the server's previous guest.
            both.running.wait_for_host_cleanup(&both.cloud).await;
        }
        let path = format!("POST /servers/{id}/action");
        let question = json!({"os-getConsoleOutput": {}});
        for asked in clients {
            asked.call(ANN, "2.90", &path, Some(question.clone())).await.expect(200);
        }
        there.call(ANN, "2.90", &format!("DELETE /servers/{id}"), None).await.expect(204);
        wait_until("the server is gone", async || show(client, &id).await.is_null()).await;
    }
    both.running.wait_for_host_cleanup(&both.cloud).await;
    for host in ["a", "b"] {
        assert!(both.running.nodes.is_running(host), "{host} is not fenced");
    }
    both.cloud.assert_empty(&both.running, "after all actions").await;
}

/// The other controller has no reports from the host, so the row decides.
#[tokio::test]
async fn a_host_may_use_a_controller_that_does_not_know_it() {
    let Some(both) = Controllers::apart(hosts(&[("a", &[GPU])])).await else { return };
    let [here, there] = both.links();
    let host = named("a");
    let Refusal::Rejected(why) = there.desired(&host, 1, 0).await.expect_err("it is unknown")
    else {
        panic!("the refusal is not a rejection");
    };
    assert!(why.contains("has not registered"), "{why}");
    let epoch = here.register(registration("a", None)).await.expect("the host registers").epoch;
    let batch = there.desired(&host, epoch, 0).await.expect("the session is valid");
    assert!(batch.complete && batch.documents.is_empty());
    assert!(both.other.compute.fleet.by_name(&host).is_some());
}

/// Two agents with one identity, at two controllers that do not follow each other: the later agent
/// wins, and both controllers fence the earlier one.
#[tokio::test]
async fn the_later_of_two_agents_wins_at_every_controller() {
    let Some(both) = Controllers::apart(hosts(&[("a", &[GPU])])).await else { return };
    let [here, there] = both.links();
    let host = named("a");
    let agent = || Some(Attempt { agent: Uuid::new_v4(), number: 0 });
    let earlier = here.register(registration("a", agent())).await.expect("it registers").epoch;
    here.desired(&host, earlier, 0).await.expect("the session is valid");
    there.desired(&host, earlier, 0).await.expect("the session is valid");
    let later = there.register(registration("a", agent())).await.expect("it registers").epoch;
    assert!(later > earlier);
    for link in [&here, &there] {
        assert_eq!(link.desired(&host, earlier, 0).await, Err(Refusal::Fenced));
        assert_eq!(link.observed(&host, earlier, Vec::new()).await, Err(Refusal::Fenced));
        assert_eq!(link.report_replies(&host, earlier, Vec::new()).await, Err(Refusal::Fenced));
        let image = both.cloud.image;
        assert_eq!(link.image(&host, earlier, image, 0).await, Err(Refusal::Fenced));
        link.desired(&host, later, 0).await.expect("the later agent is valid");
        link.observed(&host, later, Vec::new()).await.expect("the later agent is valid");
    }
}

/// A poll that waits at one controller ends when another agent registers at the other one.
#[tokio::test]
async fn a_waiting_poll_is_fenced_by_a_registration_elsewhere() {
    let Some(mut both) = Controllers::apart(hosts(&[("a", &[GPU])])).await else { return };
    both.follow().await;
    let [here, there] = both.links();
    let host = named("a");
    let earlier = here.register(registration("a", None)).await.expect("it registers").epoch;
    let since = here.desired(&host, earlier, 0).await.expect("the session is valid").generation;
    let waiting = tokio::spawn(async move { here.desired(&named("a"), earlier, since).await });
    there.register(registration("a", None)).await.expect("it registers");
    assert_eq!(waiting.await.expect("the poll does not panic"), Err(Refusal::Fenced));
}

/// A controller that was suspended processes an attempt that the agent has meanwhile repeated elsewhere.
#[tokio::test]
async fn an_outdated_attempt_does_not_fence_its_own_agent() {
    let Some(both) = Controllers::apart(hosts(&[("a", &[GPU])])).await else { return };
    let [here, there] = both.links();
    let agent = Uuid::new_v4();
    let attempt = |number| registration("a", Some(Attempt { agent, number }));
    let epoch = there.register(attempt(1)).await.expect("the host registers").epoch;
    let late = here.register(attempt(0)).await.expect("it is ignored").epoch;
    assert_eq!(late, epoch);
    for link in [&here, &there] {
        link.desired(&named("a"), epoch, 0).await.expect("the session is valid");
    }
    let newer = here.register(attempt(2)).await.expect("the host registers").epoch;
    assert!(newer > epoch);
}

/// After a failover to a standby that lacks the last commits, hosts register again, and no poll spins.
#[tokio::test]
async fn a_database_that_lost_commits_makes_hosts_register_again() {
    let Some(both) = Controllers::apart(hosts(&[("a", &[GPU])])).await else { return };
    let [here, there] = both.links();
    let host = named("a");
    for _ in 0..3 {
        here.register(registration("a", None)).await.expect("the host registers");
    }
    let epoch = there.register(registration("a", None)).await.expect("it registers").epoch;
    for link in [&here, &there] {
        link.desired(&host, epoch, 0).await.expect("the session is valid");
    }
    both.cloud.execute("UPDATE hosts SET generation = 50").await;
    for link in [&here, &there] {
        link.desired(&host, epoch, 7).await.expect("the session is valid");
    }
    both.cloud.execute("UPDATE hosts SET epoch = 2, generation = 5").await;
    for compute in [&both.running.compute, &both.other.compute] {
        kilonova_compute_app::follow::read_hosts(compute).await.expect("the rows are read");
    }
    for link in [&here, &there] {
        let refusal = link.desired(&host, epoch, 50).await.expect_err("the row is older");
        assert!(matches!(refusal, Refusal::Rejected(_)), "{refusal:?}");
        let refusal = link.observed(&host, epoch, Vec::new()).await.expect_err("the row is older");
        assert!(matches!(refusal, Refusal::Rejected(_)), "{refusal:?}");
    }
    let epoch = there.register(registration("a", None)).await.expect("it registers").epoch;
    for link in [&here, &there] {
        let refusal = link.desired(&host, epoch, 50).await.expect_err("the documents are lost");
        assert!(matches!(refusal, Refusal::Rejected(_)), "{refusal:?}");
        let batch = link.desired(&host, epoch, 0).await.expect("the session is valid");
        assert_eq!(batch.generation, 5);
    }
    for controller in [&both.running.compute, &both.other.compute] {
        let newest = *controller.fleet.by_name(&host).expect("it is known").newest().borrow();
        assert_eq!((newest.epoch, newest.generation), (epoch, 5));
    }
    both.cloud.execute("UPDATE hosts SET generation = 60, history = '5 '").await;
    for link in [&here, &there] {
        let refusal =
            link.desired(&host, epoch, 50).await.expect_err("later documents hide the loss");
        assert!(matches!(refusal, Refusal::Rejected(_)), "{refusal:?}");
        for (since, complete) in [(5, false), (4, true)] {
            let batch = link.desired(&host, epoch, since).await.expect("the session is valid");
            assert_eq!((batch.generation, batch.complete), (60, complete));
        }
    }
}

/// An operator's change at one controller applies to the scheduler of the other.
#[tokio::test]
async fn the_scheduler_respects_changes_made_at_another_controller() {
    let Some(both) = Controllers::with_hosts(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await else {
        return;
    };
    let seen = |host: &str| both.other.compute.fleet.by_name(host).expect("the host is known");
    wait_until("the other controller knows the hosts", async || {
        ["a", "b"].iter().all(|host| both.other.compute.fleet.by_name(host).is_some())
    })
    .await;
    let disable = json!({"host": "a", "binary": "nova-compute"});
    both.running.admin("2.11", "PUT /os-services/disable", disable.clone()).await.expect(200);
    wait_until("a is disabled", async || !seen("a").is_enabled()).await;
    let host_of = async |id: String| {
        wait_for(&both, &id, "ACTIVE").await;
        show(&both.other.client, &id).await["OS-EXT-SRV-ATTR:host"].clone()
    };
    let boot = async |zone: Option<&str>| {
        let mut request = both.running.boot_request(&both.cloud, "one", "vgpu");
        if let Some(zone) = zone {
            request["server"]["availability_zone"] = zone.into();
        }
        let made = both.other.client.call(ANN, "2.90", "POST /servers", Some(request)).await;
        made.expect(202)["server"]["id"].as_str().expect("the answer has an id").to_owned()
    };
    assert_eq!(host_of(boot(None).await).await, "b");
    both.running.admin("2.11", "PUT /os-services/enable", disable).await.expect(200);
    let aggregate = json!({"aggregate": {"name": "fast", "availability_zone": "east"}});
    let made = both.running.admin("2.90", "POST /os-aggregates", aggregate).await.expect(200);
    let path = format!("POST /os-aggregates/{}/action", made["aggregate"]["id"]);
    let join = json!({"add_host": {"host": "a"}});
    both.running.admin("2.90", &path, join).await.expect(200);
    let metadata = json!({"set_metadata": {"metadata": {"speed": "high"}}});
    both.running.admin("2.90", &path, metadata).await.expect(200);
    wait_until("a is enabled in its zone", async || {
        let host = seen("a");
        host.is_enabled() && host.is_in("east") && host.aggregates().values("speed").count() == 1
    })
    .await;
    assert_eq!(host_of(boot(Some("east")).await).await, "a");
    both.running.force_down("b", true).await;
    wait_until("b is down", async || seen("b").is_forced_down()).await;
}

/// A host's number of failed builds, and its reset by a successful build, reach every controller.
#[tokio::test]
async fn failed_builds_count_at_every_controller() {
    let Some(mut both) = Controllers::with_hosts(hosts(&[("a", &[GPU])])).await else { return };
    both.running.restart_failing(&both.cloud, "a", &[("start", Some(1))]).await;
    let id = both.running.boot(&both.cloud, "one", "vgpu").await;
    wait_for(&both, &id, "ERROR").await;
    let failures = |compute: &kilonova_compute_app::Compute| {
        compute.fleet.by_name("a").map(|host| host.build_failures())
    };
    for compute in [&both.running.compute, &both.other.compute] {
        wait_until("the failure is known", async || failures(compute) == Some(1)).await;
    }
    let id = both.running.boot(&both.cloud, "two", "vgpu").await;
    wait_for(&both, &id, "ACTIVE").await;
    for compute in [&both.running.compute, &both.other.compute] {
        wait_until("the success is known", async || failures(compute) == Some(0)).await;
    }
}

/// A host that was deleted and registered again has a new epoch and begins with new generations at every controller.
#[tokio::test]
async fn a_host_that_comes_back_is_a_new_one_at_every_controller() {
    let Some(mut both) = Controllers::apart(hosts(&[("a", &[GPU])])).await else { return };
    both.follow().await;
    let [here, there] = both.links();
    let host = named("a");
    let mut last = 0;
    for _ in 0..3 {
        last = here.register(registration("a", None)).await.expect("the host registers").epoch;
    }
    let known = async || {
        wait_until("both know the host", async || {
            [&both.running.compute, &both.other.compute]
                .iter()
                .all(|compute| compute.fleet.by_name("a").is_some())
        })
        .await;
    };
    known().await;
    both.running.force_down("a", true).await;
    let list = both.running.get(ADMIN, "2.60", "/os-services?binary=nova-compute").await;
    let id =
        list.expect(200)["services"][0]["id"].as_str().expect("the service has an id").to_owned();
    let path = format!("DELETE /os-services/{id}");
    both.running.call(ADMIN, "2.60", &path, None).await.expect(204);
    wait_until("the other controller has removed the host", async || {
        both.other.compute.fleet.by_name("a").is_none()
    })
    .await;
    let refusal = there.desired(&host, last, 1).await.expect_err("the host is unknown");
    assert!(matches!(refusal, Refusal::Rejected(_)), "{refusal:?}");
    let epoch = here.register(registration("a", None)).await.expect("it registers").epoch;
    assert_eq!(epoch, last + 1);
    known().await;
    there.desired(&host, epoch, 0).await.expect("the session is valid");
    let report = vec![Observation::new(kilonova_ids::ServerId::new_v4(), 1, Outcome::Absent)];
    there.observed(&host, epoch, report).await.expect("the session is valid");
}
