//! Drains of hosts, which the controllers carry out.

use jiff::Timestamp;
use kilonova_compute_app::drain::{self, DrainRequest};
use kilonova_compute_app::reconcile::drains;
use kilonova_ids::{HostName, ServerId};
use kilonova_store::testing::{CrashPlan, Death, Meter, Transaction};
use kilonova_store::{Error, Tx, params};
use kilonova_testkit::shared;
use kilonova_wire::{Context, time};
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Answer, Cloud, FPGA, GPU, RunningCloud, hosts, wait_until};
use crate::servers::resize::admin;

async fn shown(running: &RunningCloud, host: &str) -> Value {
    running.get(ADMIN, "2.1", &format!("/kilonova/hosts/{host}")).await.expect(200)["host"].take()
}

async fn begin(running: &RunningCloud, host: &str, drain: Value) -> Answer {
    let what = format!("POST /kilonova/hosts/{host}/drain");
    running.admin("2.1", &what, json!({"drain": drain})).await
}

async fn stop(running: &RunningCloud, host: &str) -> Answer {
    running.call(ADMIN, "2.1", &format!("DELETE /kilonova/hosts/{host}/drain"), None).await
}

async fn enable(running: &RunningCloud, host: &str, enabled: bool) {
    let what = if enabled { "PUT /os-services/enable" } else { "PUT /os-services/disable" };
    let body = json!({"host": host, "binary": "nova-compute"});
    running.admin("2.11", what, body).await.expect(200);
}

async fn round(running: &RunningCloud) {
    drains::run(running.compute.clone()).await.expect("the loop runs");
}

/// Runs rounds until the drain of a host ends, and returns the host. Checks that at most `parallel` servers move at any
/// time.
async fn until_ended(running: &RunningCloud, host: &str, parallel: usize) -> Value {
    let mut found = Value::Null;
    wait_until("the drain has ended", async || {
        round(running).await;
        found = shown(running, host).await;
        let guests = found["guests"].as_array().expect("a list");
        let moving = guests.iter().filter(|guest| {
            let action = guest["operation"]["action"].as_str().unwrap_or_default();
            ["live-migration", "migrate"].contains(&action)
        });
        assert!(moving.count() <= parallel, "{found}");
        found["drain"]["state"] != "running"
    })
    .await;
    assert_eq!(found["drain"]["state"], "ended", "{found}");
    found
}

async fn host_of(running: &RunningCloud, id: &str) -> Value {
    running.server(id).await["OS-EXT-SRV-ATTR:host"].take()
}

#[tokio::test]
async fn a_drain_needs_nobody_who_waits_for_it() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let mut servers = Vec::new();
        for _ in 0..3 {
            servers.push(running.active_server_on(&cloud, "a", "vgpu").await);
        }
        admin(&running, "2.90", &servers[2], json!({"os-stop": null})).await.expect(202);
        running.wait_for_status(&servers[2], "SHUTOFF").await;

        let begun = begin(&running, "a", json!({"parallel": 1, "reason": "new fans"})).await;
        let begun = begun.expect(202);
        let (host, drain) = (&begun["host"], &begun["host"]["drain"]);
        assert_eq!(
            (&host["status"], &host["disabled_reason"]),
            (&json!("disabled"), &json!("new fans"))
        );
        assert_eq!((&drain["state"], &drain["total"]), (&json!("running"), &json!(3)), "{begun}");
        assert_eq!(drain["moves"], json!([]), "{begun}");

        let found = until_ended(&running, "a", 1).await;
        assert_eq!(found["guests"], json!([]), "{found}");
        assert!(found["drain"]["ended_at"].is_string(), "{found}");
        for (id, status) in servers.iter().zip(["ACTIVE", "ACTIVE", "SHUTOFF"]) {
            running.wait_for_status(id, status).await;
            assert_eq!(host_of(&running, id).await, "b");
        }
        let path = format!("/servers/{}/os-instance-actions", servers[0]);
        let actions = running.get(ADMIN, "2.90", &path).await.expect(200);
        assert_eq!(actions["instanceActions"][0]["action"], "live-migration", "{actions}");
        assert_eq!(actions["instanceActions"][0]["user_id"], found["drain"]["user_id"]);

        enable(&running, "a", true).await;
        let found = shown(&running, "a").await;
        assert_eq!((&found["status"], &found["drain"]), (&json!("enabled"), &Value::Null));
        assert_eq!(cloud.column("SELECT server_id FROM host_drain_moves").await.len(), 0);
        cloud.assert_consistent(&running, "drained").await;
        cloud.teardown(&running, "drained").await;
    }
}

#[tokio::test]
async fn what_cannot_move_stays_with_its_reason() {
    let topology = hosts(&[("a", &[GPU, FPGA]), ("b", &[GPU, FPGA])]);
    for (cloud, running) in Cloud::all_running(topology).await {
        let live = running.active_server_on(&cloud, "a", "vgpu").await;
        let whole = running.active_server_on(&cloud, "a", "fpga").await;
        enable(&running, "b", false).await;
        begin(&running, "a", json!({})).await.expect(202);
        let found = until_ended(&running, "a", 4).await;
        assert_eq!(found["guests"].as_array().map(Vec::len), Some(2), "{found}");
        let moves = &found["drain"]["moves"];
        assert_eq!(
            moves.as_array().map(Vec::len),
            Some(1),
            "a server with an FPGA is not live-migrated: {found}"
        );
        assert_eq!((&moves[0]["server"], &moves[0]["state"]), (&json!(live), &json!("failed")));
        let why = moves[0]["why"].as_str().expect("a reason");
        assert!(why.contains("No valid host was found"), "{why}");

        // Once there is room, the host can be drained again.
        enable(&running, "b", true).await;
        begin(&running, "a", json!({"cold": true})).await.expect(202);
        let found = until_ended(&running, "a", 4).await;
        assert_eq!(found["guests"], json!([]), "{found}");
        for id in [&live, &whole] {
            running.wait_for_status(id, "ACTIVE").await;
            assert_eq!(host_of(&running, id).await, "b");
        }
        cloud.assert_consistent(&running, "drained").await;
        cloud.teardown(&running, "drained").await;
    }
}

#[tokio::test]
async fn a_resize_is_left_to_its_owner() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        admin(&running, "2.90", &id, json!({"resize": {"flavorRef": "vgpu-pair"}}))
            .await
            .expect(202);
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        begin(&running, "a", json!({})).await.expect(202);
        let found = until_ended(&running, "a", 4).await;
        assert_eq!(found["drain"]["moves"], json!([]), "{found}");
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        // A reset keeps the migration, for which a drain does not wait either.
        for state in ["active", "error"] {
            let reset = json!({"os-resetState": {"state": state}});
            admin(&running, "2.90", &id, reset).await.expect(202);
            begin(&running, "a", json!({})).await.expect(202);
            let found = until_ended(&running, "a", 4).await;
            assert_eq!(found["drain"]["moves"], json!([]), "{found}");
            let path = format!("/kilonova/servers/{id}");
            let shown = running.get(ADMIN, "2.1", &path).await.expect(200);
            let next = shown["server"]["next"].to_string();
            assert!(next.contains("confirm or revert the resize"), "{state}: {next}");
        }
        cloud.teardown(&running, "resized").await;
    }
}

/// After `os-resetState`, the server of a finished move is not moved from its destination, and the drain does not ask for
/// that: the move must be confirmed or reverted first.
#[tokio::test]
async fn a_reset_server_waits_at_its_destination_for_its_confirmation() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        for moved in [json!({"migrate": null}), json!({"resize": {"flavorRef": "vgpu-pair"}})] {
            let id = running.active_server_on(&cloud, "a", "vgpu").await;
            admin(&running, "2.56", &id, moved.clone()).await.expect(202);
            running.wait_for_status(&id, "VERIFY_RESIZE").await;
            let reset = json!({"os-resetState": {"state": "active"}});
            admin(&running, "2.90", &id, reset).await.expect(202);
            for stopped in [false, true] {
                if stopped {
                    admin(&running, "2.90", &id, json!({"os-stop": null})).await.expect(202);
                    running.wait_for_status(&id, "SHUTOFF").await;
                }
                begin(&running, "b", json!({"cold": true})).await.expect(202);
                round(&running).await;
                let found = shown(&running, "b").await;
                assert_eq!(found["drain"]["state"], "ended", "at once: {found}");
                assert_eq!(found["drain"]["moves"], json!([]), "{moved}: {found}");
                assert_eq!(found["guests"][0]["move"]["status"], "finished", "{found}");
            }
            admin(&running, "2.90", &id, json!({"confirmResize": null})).await.expect(204);
            running.wait_for_host_cleanup(&cloud).await;
            begin(&running, "b", json!({"cold": true})).await.expect(202);
            until_ended(&running, "b", 4).await;
            assert_eq!(host_of(&running, &id).await, "a");
            enable(&running, "b", true).await;
            running.call("admin", "2.90", &format!("DELETE /servers/{id}"), None).await.expect(204);
            running.wait_until_gone(&id).await;
        }
        cloud.teardown(&running, "moved").await;
    }
}

#[tokio::test]
async fn a_drain_is_stopped_and_ends_with_the_enabling_of_its_host() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        stop(&running, "a").await.refused(404, "is not being drained");
        stop(&running, "nobody").await.refused(404, "could not be found");
        begin(&running, "nobody", json!({})).await.refused(404, "could not be found");
        for wrong in [json!({"parallel": 0}), json!({"cold": "yes"}), json!({"to": "b"}), json!(7)]
        {
            begin(&running, "a", wrong).await.is(400);
        }
        let what = "POST /kilonova/hosts/a/drain";
        let body = Some(json!({"drain": {}}));
        running.call(ANN, "2.90", what, body).await.refused(403, "kilonova:hosts:drain");
        assert_eq!(shown(&running, "a").await["status"], "enabled");

        begin(&running, "a", json!({})).await.expect(202);
        stop(&running, "a").await.is(204);
        stop(&running, "a").await.refused(409, "has already ended");
        round(&running).await;
        let found = shown(&running, "a").await;
        assert_eq!(
            (&found["status"], &found["drain"]["state"]),
            (&json!("disabled"), &json!("stopped"))
        );
        assert_eq!(found["drain"]["moves"], json!([]), "{found}");

        // Enabling the host ends its drain, even if the host is disabled again before the next round.
        begin(&running, "a", json!({})).await.expect(202);
        enable(&running, "a", true).await;
        enable(&running, "a", false).await;
        round(&running).await;
        assert_eq!(shown(&running, "a").await["drain"], Value::Null);
        assert_eq!(host_of(&running, &id).await, "a");
        // A controller of an earlier version enables the host without ending the drain.
        begin(&running, "a", json!({})).await.expect(202);
        cloud.execute("UPDATE hosts SET status = 'enabled' WHERE host = 'a'").await;
        round(&running).await;
        assert_eq!(cloud.column("SELECT host FROM host_drains").await.len(), 0);
        assert_eq!(host_of(&running, &id).await, "a");
        enable(&running, "a", true).await;
        // An administrator may move a locked server.
        admin(&running, "2.90", &id, json!({"lock": null})).await.expect(202);
        begin(&running, "a", json!({})).await.expect(202);
        until_ended(&running, "a", 4).await;
        assert_eq!(host_of(&running, &id).await, "b");
        admin(&running, "2.90", &id, json!({"unlock": null})).await.expect(202);
        cloud.teardown(&running, "drained").await;
    }
}

/// At each write, a store has one of the two deaths, and the other one at the next write.
#[tokio::test]
async fn a_death_at_any_write_leaves_the_drain_to_the_next_controller() {
    let clouds = Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await;
    for (share, (cloud, mut running)) in shared(clouds) {
        let live = running.active_server_on(&cloud, "a", "vgpu").await;
        let stopped = running.active_server_on(&cloud, "a", "plain").await;
        admin(&running, "2.90", &stopped, json!({"os-stop": null})).await.expect(202);
        running.wait_for_status(&stopped, "SHUTOFF").await;
        let (mut from, mut to) = ("a", "b");
        let mut is_over = false;
        for at in (0..60).filter(|at| share.has((*at + at / 2) as usize)) {
            let death = if at % 2 == 0 { Death::BeforeCommit } else { Death::AfterCommit };
            let when = format!("{death:?} {}", at / 2);
            begin(&running, from, json!({})).await.expect(202);
            let plan = CrashPlan::at(at / 2, death);
            running.replace_services(&cloud, plan.clone()).await;
            wait_until("the drain has ended, or the process has died", async || {
                let _ = drains::run(running.compute.clone()).await;
                let ended = "SELECT host FROM host_drains WHERE state <> 'running'";
                plan.is_dead() || !cloud.column(ended).await.is_empty()
            })
            .await;
            is_over = !plan.is_dead();
            cloud.audit(&when).await;
            running.replace_services(&cloud, CrashPlan::default()).await;
            let found = until_ended(&running, from, 4).await;
            assert_eq!(found["guests"], json!([]), "{when}: {found}");
            for (id, status) in [(&live, "ACTIVE"), (&stopped, "SHUTOFF")] {
                running.wait_for_status(id, status).await;
                assert_eq!(host_of(&running, id).await, to, "{when}");
            }
            cloud.assert_consistent(&running, &when).await;
            enable(&running, from, true).await;
            (from, to) = (to, from);
            if is_over {
                break;
            }
        }
        assert!(is_over, "a drain ends without a crash");
        cloud.teardown(&running, "drained").await;
    }
}

/// Kills the agent of `b`, which still counts as up, and begins the drain of `a`. No migration can make progress.
async fn begin_toward_a_dead_host(running: &mut RunningCloud, parallel: i64) {
    running.nodes.kill("b").await;
    begin(running, "a", json!({"parallel": parallel})).await.expect(202);
}

#[tokio::test]
async fn the_statements_of_a_round_do_not_grow_with_the_guests() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        running.active_server_on(&cloud, "a", "vgpu").await;
        let meter = Meter::listing();
        let mut counted = running.compute.clone();
        counted.store = counted.store.with_meter(meter.clone());
        let host = HostName::verbatim("a");
        begin_toward_a_dead_host(&mut running, 1).await;
        let first = shown(&running, "a").await;
        assert_eq!(first["drain"]["total"], 1, "{first}");
        round(&running).await;
        let waiting = async || {
            drain::round(&counted, &host).await.expect("the round ends");
            let all = meter.take_transactions();
            assert!(all.iter().all(|one| !one.is_write), "a waiting round writes nothing: {all:?}");
            all.iter().map(|one| one.statements.len()).sum::<usize>()
        };
        let one = waiting().await;
        let copies = "INSERT INTO servers (id, project_id, user_id, name, host, vm_state, power_state, vcpus,
            memory_mb, spec, metadata, tags, created_at, updated_at)
            SELECT ?1, project_id, user_id, 'copy', host, 'active', 1, 0, 0, spec, metadata, tags, created_at, updated_at
            FROM servers WHERE name = 'one'";
        let documents = "INSERT INTO documents (host, server_id, generation, body)
            SELECT host, ?1, 1, body FROM documents WHERE host = 'a' AND server_id =
                (SELECT id FROM servers WHERE name = 'one')";
        let copy = move |tx: &mut Tx<'_>| {
            for _ in 0..49 {
                let id = ServerId::new_v4();
                tx.execute(copies, params![id])?;
                tx.execute(documents, params![id])?;
            }
            Ok::<_, Error>(())
        };
        cloud.store.write(copy).await.expect("the rows are inserted");
        assert_eq!((waiting().await, one), (one, one), "{}", cloud.name);
        assert!(one <= 6, "{}: {one} statements", cloud.name);
        let found = shown(&running, "a").await;
        assert_eq!(found["guests"].as_array().map(Vec::len), Some(50), "all are guests");

        // The start of a drain counts the guests in one statement.
        let begun = async || {
            meter.take_transactions();
            let request = DrainRequest { cold: false, parallel: 1, reason: None };
            drain::begin(&counted, &Context::default(), &host, &request).await.expect("it begins");
            let all = meter.take_transactions();
            all.iter().map(|one| one.statements.len()).sum::<usize>()
        };
        let many = begun().await;
        assert_eq!(shown(&running, "a").await["drain"]["total"], 50);
        cloud.execute("DELETE FROM documents WHERE server_id IN (SELECT id FROM servers WHERE name = 'copy')").await;
        cloud.execute("DELETE FROM servers WHERE name = 'copy'").await;
        assert_eq!(begun().await, many, "{}", cloud.name);
        running.start_node(&cloud, "b").await;
        until_ended(&running, "a", 1).await;
        cloud.teardown(&running, "drained").await;
    }
}

/// The only move of the drain.
async fn only_move(running: &RunningCloud) -> Value {
    let found = shown(running, "a").await;
    assert_eq!(found["drain"]["moves"].as_array().map(Vec::len), Some(1), "{found}");
    found["drain"]["moves"][0].clone()
}

#[tokio::test]
async fn a_busy_server_is_asked_again_after_a_pause_that_every_controller_knows() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        cloud.execute("UPDATE servers SET task_state = 'rebooting'").await;
        begin(&running, "a", json!({})).await.expect(202);
        let began = time::now();
        round(&running).await;
        let refused = only_move(&running).await;
        assert_eq!((&refused["state"], &refused["tries"]), (&json!("refused"), &json!(1)));
        assert!(refused["why"].as_str().is_some_and(|why| why.contains("task_state")), "{refused}");
        let next: Timestamp =
            refused["next_try_at"].as_str().expect("a time").parse().expect("a time");
        let pause = next.duration_since(began).as_secs();
        assert!((0..=4).contains(&pause), "{pause} s");
        // Nothing happens before that time, in any number of rounds on any controller.
        cloud.execute("UPDATE host_drain_moves SET next_at = next_at + 3600000000").await;
        let paused = only_move(&running).await;
        round(&running).await;
        running.replace_services(&cloud, CrashPlan::default()).await;
        round(&running).await;
        assert_eq!(only_move(&running).await, paused);
        // The next controller continues the count.
        cloud.execute("UPDATE host_drain_moves SET next_at = 0").await;
        round(&running).await;
        assert_eq!(only_move(&running).await["tries"], 2);
        // A controller of an earlier version writes no time.
        cloud.execute("UPDATE host_drain_moves SET next_at = NULL, tries = 18").await;
        round(&running).await;
        let refused = only_move(&running).await;
        assert_eq!((&refused["state"], &refused["tries"]), (&json!("refused"), &json!(19)));
        cloud.execute("UPDATE host_drain_moves SET next_at = 0").await;
        round(&running).await;
        let failed = only_move(&running).await;
        assert_eq!((&failed["state"], &failed["tries"]), (&json!("failed"), &json!(20)));
        assert_eq!(failed["next_try_at"], Value::Null);

        // Once the server is idle, the host can be drained again.
        until_ended(&running, "a", 4).await;
        cloud.execute("UPDATE servers SET task_state = NULL").await;
        begin(&running, "a", json!({})).await.expect(202);
        until_ended(&running, "a", 4).await;
        assert_eq!(host_of(&running, &id).await, "b");
        cloud.teardown(&running, "drained").await;
    }
}

#[tokio::test]
async fn an_operation_that_cannot_be_read_is_named_once_and_keeps_no_other_server() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let stuck = running.active_server_on(&cloud, "a", "vgpu").await;
        let other = running.active_server_on(&cloud, "a", "vgpu").await;
        running.nodes.kill("b").await;
        let live = json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
        admin(&running, "2.90", &stuck, live).await.expect(202);
        let step =
            cloud.column("SELECT step FROM operations WHERE outcome = 'open'").await.remove(0);
        cloud.execute("UPDATE operations SET step = 'sleep' WHERE outcome = 'open'").await;
        running.start_node(&cloud, "b").await;
        begin(&running, "a", json!({"parallel": 1})).await.expect(202);
        // To the client, the unreadable migration is a second migration in progress.
        let found = until_ended(&running, "a", 2).await;
        assert_eq!(host_of(&running, &other).await, "b");
        assert_eq!(found["guests"].as_array().map(Vec::len), Some(1), "{found}");
        let guest = &found["guests"][0];
        assert_eq!((&guest["id"], &guest["operation"]["step"]), (&json!(stuck), &json!("sleep")));
        assert_eq!(guest["operation"]["unreadable"], "unknown step \"sleep\"", "{guest}");
        let moves = found["drain"]["moves"].as_array().expect("a list");
        let one = moves.iter().find(|one| one["server"] == json!(stuck)).expect("it is named");
        let why = one["why"].as_str().expect("a reason");
        assert!(why.contains("live-migration cannot be read by this controller"), "{why}");
        assert_eq!((&one["state"], &one["next_try_at"]), (&json!("refused"), &Value::Null));

        // A round that finds it again does not record it again.
        cloud.execute("UPDATE host_drains SET state = 'running'").await;
        let meter = Meter::listing();
        let mut counted = running.compute.clone();
        counted.store = counted.store.with_meter(meter.clone());
        drain::round(&counted, &HostName::verbatim("a")).await.expect("the round ends");
        let all = meter.take_transactions();
        let writes = |what: &str| {
            let of = |one: &&Transaction| one.is_write && format!("{one:?}").contains(what);
            all.iter().filter(of).count()
        };
        assert_eq!((writes("INSERT INTO host_drain_moves"), writes("UPDATE host_drains")), (0, 1));

        let known = "UPDATE operations SET step = ?1 WHERE outcome = 'open'";
        let restore = move |tx: &mut Tx<'_>| tx.execute(known, params![step.as_str()]);
        cloud.store.write(restore).await.expect("the step is restored");
        running.nodes.kill("b").await;
        running.start_node(&cloud, "b").await;
        begin(&running, "a", json!({})).await.expect(202);
        until_ended(&running, "a", 4).await;
        assert_eq!(host_of(&running, &stuck).await, "b");
        cloud.teardown(&running, "drained").await;
    }
}
