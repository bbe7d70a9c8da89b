//! Rebalancing: plans, their moves, and the operator's limits.

use jiff::SignedDuration;
use kilonova_compute_app::rebalance::RebalanceOptions;
use kilonova_compute_app::{Options, boot};
use kilonova_node::topology::Topology;
use kilonova_store::testing::{CrashPlan, Death};
use kilonova_testkit::shared;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Answer, Cloud, RunningCloud, fault, hosts, wait_until};
use crate::servers::golden::insert_for;
use crate::servers::resize::admin;

/// A host with one GPU of four vGPUs.
pub const ONE_GPU: &str = r#"
card = [{ card = "m10", addresses = ["0000:84:00.0"] }]
devices = { enabled_mdev_types = ["nvidia-35"] }
"#;

/// Clouds of two such hosts with these options.
pub async fn clouds(topology: Topology, options: RebalanceOptions) -> Vec<(Cloud, RunningCloud)> {
    let mut all = Vec::new();
    for mut cloud in Cloud::all(topology).await {
        cloud.options = Options { rebalance: options, ..cloud.options.clone() };
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        all.push((cloud, running));
    }
    all
}

/// Two hosts of one GPU each.
pub fn two_hosts() -> Topology {
    hosts(&[("a", &[ONE_GPU]), ("b", &[ONE_GPU])])
}

async fn plan(running: &RunningCloud, query: &str) -> Value {
    let path = format!("/kilonova/rebalance{query}");
    running.get(ADMIN, "2.1", &path).await.expect(200)["rebalance"].take()
}

async fn begin(running: &RunningCloud, server: &Value, host: &Value) -> Answer {
    let body = json!({"move": {"server": server, "host": host}});
    running.admin("2.1", "POST /kilonova/rebalance", body).await
}

async fn enable(running: &RunningCloud, host: &str, enabled: bool) {
    let what = if enabled { "PUT /os-services/enable" } else { "PUT /os-services/disable" };
    let body = json!({"host": host, "binary": "nova-compute"});
    running.admin("2.11", what, body).await.expect(200);
}

/// Waits until a server has moved and its former host has nothing left of it.
async fn wait_until_moved(running: &RunningCloud, id: &str) {
    wait_until("the server has moved", async || {
        let path = format!("/kilonova/servers/{id}");
        let shown = running.get(ADMIN, "2.90", &path).await.expect(200);
        let moves = shown["server"]["moves"].as_array().expect("a list").clone();
        moves.iter().all(|one| one["open"] == false && one["holds_on"].is_null())
    })
    .await;
}

#[tokio::test]
async fn a_move_makes_room_for_a_whole_gpu() {
    for (cloud, running) in clouds(two_hosts(), RebalanceOptions::default()).await {
        let one = running.active_server_on(&cloud, "a", "vgpu").await;
        let two = running.active_server_on(&cloud, "b", "vgpu").await;
        let refused = running.boot(&cloud, "whole", "vgpu4").await;
        running.wait_for_status(&refused, "ERROR").await;
        running.delete(&refused).await;

        let found = plan(&running, "?flavor=vgpu4").await;
        let moves = found["moves"].as_array().expect("a list");
        assert_eq!(moves.len(), 1, "{found}");
        let (server, from, to) = (&moves[0]["server"], &moves[0]["from"], &moves[0]["to"]);
        let (own, other) = if *server == *one { ("a", "b") } else { ("b", "a") };
        assert!([&one, &two].iter().any(|id| *server == ***id), "{found}");
        assert_eq!((from, to), (&json!(own), &json!(other)), "{found}");
        let gain = &found["flavors"][0];
        assert_eq!(gain["name"], "vgpu4", "{found}");
        assert_eq!((&gain["servers_before"], &gain["servers_after"]), (&json!(0), &json!(1)));
        assert_eq!(found["limits"]["reached"], Value::Null, "{found}");
        assert_eq!((&found["drain"]["servers"], &found["drain"]["gain"]), (&json!(1), &json!(1)));
        let capacity =
            running.get(ADMIN, "2.1", "/kilonova/capacity?flavor=vgpu4").await.expect(200);
        let gains = &capacity["capacity"]["gains"];
        assert_eq!((&gains["moves"], &gains["gain"]), (&found["moves"], &json!(1)), "{capacity}");
        assert_eq!(gains["drain"], found["drain"], "{capacity}");
        assert_eq!(cloud.column("SELECT id FROM moves").await.len(), 0, "a plan changes nothing");

        let begun = begin(&running, server, to).await.expect(202);
        assert_eq!((&begun["move"]["from"], &begun["move"]["to"]), (from, to), "{begun}");
        let moved = server.as_str().expect("an id").to_owned();
        wait_until_moved(&running, &moved).await;
        let shown = running.wait_for_status(&moved, "ACTIVE").await;
        assert_eq!(shown["OS-EXT-SRV-ATTR:host"], *to);
        let path = format!("/servers/{moved}/os-instance-actions");
        let actions = running.get(ADMIN, "2.90", &path).await.expect(200);
        assert_eq!(actions["instanceActions"][0]["action"], "live-migration", "{actions}");
        assert_eq!(actions["instanceActions"][0]["request_id"], begun["move"]["request_id"]);

        let after = plan(&running, "?flavor=vgpu4").await;
        assert_eq!(after["moves"], json!([]), "{after}");
        assert_eq!(after["flavors"][0]["servers_before"], 1, "{after}");
        assert!(after["reason"].as_str().expect("a reason").contains("live migrations"), "{after}");
        running.active_server(&cloud, "whole", "vgpu4").await;
        cloud.assert_consistent(&running, "rebalanced").await;
        cloud.teardown(&running, "rebalanced").await;
    }
}

#[tokio::test]
async fn without_a_flavor_moves_gather_what_is_scattered() {
    for (cloud, running) in clouds(two_hosts(), RebalanceOptions::default()).await {
        let refused = running.boot(&cloud, "whole", "vgpu4").await;
        running.wait_for_status(&refused, "ACTIVE").await;
        running.delete(&refused).await;
        running.wait_until_gone(&refused).await;
        running.active_server_on(&cloud, "a", "vgpu").await;
        running.active_server_on(&cloud, "b", "vgpu").await;
        let found = plan(&running, "").await;
        assert_eq!(found["moves"].as_array().map(Vec::len), Some(1), "{found}");
        assert!(found["saved_devices"].as_f64() > Some(0.1), "{found}");
        let flavors = found["flavors"].as_array().expect("a list");
        let whole = flavors.iter().find(|one| one["name"] == "vgpu4").expect("it gains");
        assert_eq!((&whole["servers_before"], &whole["gain"]), (&json!(0), &json!(1)), "{found}");
        cloud.teardown(&running, "gathered").await;
    }
}

#[tokio::test]
async fn a_server_that_cannot_move_stays() {
    let topology = hosts(&[("a", &[ONE_GPU]), ("b", &[ONE_GPU]), ("c", &[ONE_GPU])]);
    for (cloud, running) in clouds(topology, RebalanceOptions::default()).await {
        let locked = running.active_server_on(&cloud, "a", "vgpu").await;
        admin(&running, "2.90", &locked, json!({"lock": null})).await.expect(202);
        let paused = running.active_server_on(&cloud, "b", "vgpu").await;
        admin(&running, "2.90", &paused, json!({"pause": null})).await.expect(202);
        running.wait_for_status(&paused, "PAUSED").await;
        running.active_server_on(&cloud, "c", "vgpu").await;
        enable(&running, "c", false).await;
        let found = plan(&running, "?flavor=vgpu4").await;
        assert_eq!(found["moves"], json!([]), "{found}");

        let refused = begin(&running, &json!(locked), &json!("b")).await;
        refused.refused(409, &format!("Instance {locked} is locked"));
        begin(&running, &json!(locked), &json!("a")).await.refused(409, "is locked");
        admin(&running, "2.90", &locked, json!({"unlock": null})).await.expect(202);
        begin(&running, &json!(locked), &json!("a")).await.refused(400, "current host");
        let drains = begin(&running, &json!(locked), &json!("c")).await;
        drains.refused(409, "Compute host c is disabled or down");
        begin(&running, &json!(locked), &json!("z")).await.refused(409, "Compute host z");
        let nobody = json!("00000000-0000-4000-8000-000000000000");
        begin(&running, &nobody, &json!("b")).await.refused(404, "could not be found");
        begin(&running, &json!("?"), &json!("b")).await.refused(404, "could not be found");
        for body in [json!({}), json!({"move": {"server": locked}}), json!({"move": 1})] {
            running.admin("2.1", "POST /kilonova/rebalance", body).await.refused(400, "nvalid");
        }
        running
            .get(ANN, "2.1", "/kilonova/rebalance")
            .await
            .refused(403, "kilonova:rebalance:show");
        let body = json!({"move": {"server": locked, "host": "b"}});
        let own = running.call(ANN, "2.1", "POST /kilonova/rebalance", Some(body)).await;
        own.refused(403, "kilonova:rebalance:move");
        let unknown = running.get(ADMIN, "2.1", "/kilonova/rebalance?flavor=nothing").await;
        unknown.refused(404, "Flavor nothing could not be found.");
        for path in ["rebalance", "capacity", "room"] {
            let path = format!("/kilonova/{path}?flavor=vgpu&flavor=vgpu4");
            let twice = running.get(ADMIN, "2.1", &path).await;
            twice.refused(400, "The query must name one flavor.");
        }
        assert_eq!(cloud.column("SELECT id FROM moves").await.len(), 0);
        enable(&running, "c", true).await;
        cloud.teardown(&running, "stays").await;
    }
}

/// A finished migration refuses other moves until it is confirmed or reverted, also after a reset.
#[tokio::test]
async fn a_server_with_a_finished_migration_stays() {
    let topology = hosts(&[("a", &[ONE_GPU]), ("b", &[ONE_GPU]), ("c", &[ONE_GPU])]);
    for (cloud, running) in clouds(topology, RebalanceOptions::default()).await {
        let locked = running.active_server_on(&cloud, "c", "vgpu").await;
        admin(&running, "2.90", &locked, json!({"lock": null})).await.expect(202);
        enable(&running, "c", false).await;
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        admin(&running, "2.90", &id, json!({"migrate": null})).await.expect(202);
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        let reset = json!({"os-resetState": {"state": "active"}});
        admin(&running, "2.90", &id, reset).await.expect(202);
        enable(&running, "c", true).await;
        let found = plan(&running, "?flavor=vgpu4").await;
        assert_eq!(found["moves"], json!([]), "{found}");
        admin(&running, "2.90", &id, json!({"confirmResize": null})).await.expect(204);
        running.wait_for_host_cleanup(&cloud).await;
        admin(&running, "2.90", &locked, json!({"unlock": null})).await.expect(202);
        cloud.teardown(&running, "stays").await;
    }
}

#[tokio::test]
async fn moves_are_limited_across_controllers() {
    const SLOW: &str = "times_ms = { migrate = 60000 }";
    let topology = hosts(&[("a", &[ONE_GPU, SLOW]), ("b", &[ONE_GPU])]);
    let limits =
        RebalanceOptions { max_concurrent_moves: 1, moves_per_hour: 2, ..Default::default() };
    for (cloud, mut running) in clouds(topology, limits).await {
        let one = running.active_server_on(&cloud, "a", "vgpu").await;
        let two = running.active_server_on(&cloud, "a", "vgpu").await;
        begin(&running, &json!(one), &json!("b")).await.expect(202);
        // The rows count, not the memory of one controller.
        running.replace_services(&cloud, Default::default()).await;
        let refused = begin(&running, &json!(two), &json!("b")).await;
        refused
            .refused(409, "1 move(s) are in progress, as many as [rebalance] max_concurrent_moves");
        let found = plan(&running, "").await;
        assert_eq!(found["limits"]["in_progress"], 1, "{found}");
        assert!(found["limits"]["reached"].is_string(), "{found}");
        let number = super::live_migration::wait_until_migrating(&running, &one).await;
        let path = format!("DELETE /servers/{one}/migrations/{number}");
        running.call(ADMIN, "2.90", &path, None).await.expect(202);
        running.wait_for_status(&one, "ACTIVE").await;
        wait_until_moved(&running, &one).await;

        begin(&running, &json!(two), &json!("b")).await.expect(202);
        let number = super::live_migration::wait_until_migrating(&running, &two).await;
        let path = format!("DELETE /servers/{two}/migrations/{number}");
        running.call(ADMIN, "2.90", &path, None).await.expect(202);
        running.wait_for_status(&two, "ACTIVE").await;
        let refused = begin(&running, &json!(two), &json!("b")).await;
        refused.refused(409, "2 move(s) began within the last hour");
        cloud.execute("UPDATE rebalance_moves SET begun_at = begun_at - 3600000000").await;
        assert_eq!(plan(&running, "").await["limits"]["last_hour"], 0);
        begin(&running, &json!(two), &json!("b")).await.expect(202);
        assert_eq!(cloud.column("SELECT server_id FROM rebalance_moves").await, [two.as_str()]);
        cloud.teardown(&running, "limited").await;
    }
}

#[tokio::test]
async fn of_two_moves_that_begin_together_one_is_refused() {
    const SLOW: &str = "times_ms = { migrate = 60000 }";
    let topology = hosts(&[("a", &[ONE_GPU, SLOW]), ("b", &[ONE_GPU])]);
    let limits =
        RebalanceOptions { max_concurrent_moves: 1, moves_per_hour: 100, ..Default::default() };
    for (cloud, running) in clouds(topology, limits).await {
        let one = running.active_server_on(&cloud, "a", "vgpu").await;
        let two = running.active_server_on(&cloud, "a", "vgpu").await;
        for round in 0..6 {
            let (id, other, to) = (json!(one), json!(two), json!("b"));
            let both = tokio::join!(begin(&running, &id, &to), begin(&running, &other, &to));
            let (begun, refused, moving) = match both {
                (begun, refused) if begun.status == 202 => (begun, refused, &one),
                (refused, begun) => (begun, refused, &two),
            };
            begun.expect(202);
            refused.refused(409, "1 move(s) are in progress");
            let number = super::live_migration::wait_until_migrating(&running, moving).await;
            let path = format!("DELETE /servers/{moving}/migrations/{number}");
            running.call(ADMIN, "2.90", &path, None).await.expect(202);
            running.wait_for_status(moving, "ACTIVE").await;
            wait_until_moved(&running, moving).await;
            let moves = cloud.column("SELECT server_id FROM rebalance_moves").await;
            assert_eq!(moves.len(), round + 1, "{moves:?}");
        }
        cloud.teardown(&running, "together").await;
    }
}

/// Options with which a boot without room waits this many seconds for moves.
fn on_refusal(wait: i64) -> RebalanceOptions {
    RebalanceOptions {
        on_refusal: true,
        wait: SignedDuration::from_secs(wait),
        moves_per_hour: 1000,
        ..Default::default()
    }
}

/// A server on each host, and a boot that has room once one of them has moved.
async fn boot_without_room(cloud: &Cloud, running: &RunningCloud) -> String {
    running.active_server_on(cloud, "a", "vgpu").await;
    running.active_server_on(cloud, "b", "vgpu").await;
    running.boot(cloud, "whole", "vgpu4").await
}

#[tokio::test]
async fn a_boot_without_room_waits_for_a_move() {
    for (cloud, running) in clouds(two_hosts(), on_refusal(20)).await {
        let id = boot_without_room(&cloud, &running).await;
        let booted = running.wait_for_status(&id, "ACTIVE").await;
        assert!(booted["OS-EXT-SRV-ATTR:host"].is_string(), "{booted}");
        assert!(booted["addresses"].is_object(), "{booted}");
        assert_eq!(cloud.column("SELECT status FROM moves").await, ["completed"]);
        assert_eq!(cloud.column("SELECT server_id FROM rebalance_moves").await.len(), 1);
        let kinds = cloud.column("SELECT kind FROM operations ORDER BY kind").await;
        assert_eq!(kinds, ["create", "create", "create", "live-migration"]);
        // The move has a request id of its own.
        let requests = cloud.column("SELECT DISTINCT request_id FROM operations").await;
        assert_eq!(requests.len(), 4, "{requests:?}");
        cloud.assert_consistent(&running, "waited").await;
        // No move makes room for the next boot.
        let full = running.boot(&cloud, "whole", "vgpu4").await;
        running.wait_for_status(&full, "ERROR").await;
        assert_eq!(cloud.column("SELECT id FROM moves").await.len(), 1);
        cloud.teardown(&running, "waited").await;
    }
}

#[tokio::test]
async fn a_boot_is_refused_where_its_move_fails_or_takes_too_long() {
    for (entry, wait, reason) in [
        ("fail = [{ step = \"migrate\" }]", 20, "could not be moved"),
        ("times_ms = { migrate = 60000 }", 1, "took longer than 1 s"),
    ] {
        let topology = hosts(&[("a", &[ONE_GPU, entry]), ("b", &[ONE_GPU, entry])]);
        for (cloud, running) in clouds(topology, on_refusal(wait)).await {
            let id = boot_without_room(&cloud, &running).await;
            let shown = running.server(&id).await;
            assert_eq!(shown["status"], "BUILD", "{shown}");
            let path = format!("/kilonova/servers/{id}");
            let explained = running.get(ADMIN, "2.90", &path).await.expect(200);
            let waits = &explained["server"]["operation"]["waits_for"];
            assert!(waits.is_null() || waits == "moves that make room for it", "{explained}");
            let refused = running.wait_for_status(&id, "ERROR").await;
            assert!(fault(&refused).contains(reason), "{refused}");
            assert!(fault(&refused).contains("No valid host was found"), "{refused}");
            assert!(!fault(&refused).contains("its migration is"), "{refused}");
            let own = running.get(ANN, "2.90", &format!("/servers/{id}")).await.expect(200);
            let message = own["server"]["fault"]["message"].as_str().expect("a message");
            assert!(message.starts_with("No valid host was found."), "{message}");
            assert!(message.contains("VGPU"), "{message}");
            cloud.audit("refused").await;
            running.delete_all_servers().await;
            running.wait_for_host_cleanup(&cloud).await;
            cloud.teardown(&running, "refused").await;
        }
    }
}

#[tokio::test]
async fn a_boot_waits_for_room_that_is_not_there_as_soon_as_the_moves_end() {
    for (comes, wait, status) in [(true, 30, "ACTIVE"), (false, 4, "ERROR")] {
        const SLOW: &str = "times_ms = { migrate = 1500 }";
        let topology = hosts(&[("a", &[ONE_GPU, SLOW]), ("b", &[ONE_GPU, SLOW])]);
        for (cloud, running) in clouds(topology, on_refusal(wait)).await {
            let id = boot_without_room(&cloud, &running).await;
            wait_until("the move begins", async || {
                !cloud.column("SELECT id FROM moves").await.is_empty()
            })
            .await;
            let source = cloud.column("SELECT source_host FROM moves").await.remove(0);
            enable(&running, &source, false).await;
            let moved = cloud.column("SELECT server_id FROM moves").await.remove(0);
            wait_until_moved(&running, &moved).await;
            tokio::time::sleep(std::time::Duration::from_millis(600)).await;
            assert_eq!(running.server(&id).await["status"], "BUILD");
            if comes {
                enable(&running, &source, true).await;
            }
            let shown = running.wait_for_status(&id, status).await;
            let reason = "There is no room after the moves: ";
            assert!(comes || fault(&shown).contains(reason), "{shown}");
            enable(&running, &source, true).await;
            cloud.teardown(&running, "room").await;
        }
    }
}

#[tokio::test]
async fn no_boot_waits_for_more_moves_than_the_hour_has_left() {
    for (moves_per_hour, status, begun) in [(1, "ERROR", 0), (2, "ACTIVE", 2)] {
        let options = RebalanceOptions { moves_per_hour, ..on_refusal(20) };
        for (cloud, running) in clouds(two_hosts(), options).await {
            for host in ["a", "a", "b", "b"] {
                running.active_server_on(&cloud, host, "vgpu").await;
            }
            let id = running.boot(&cloud, "whole", "vgpu4").await;
            running.wait_for_status(&id, status).await;
            assert_eq!(cloud.column("SELECT id FROM moves").await.len(), begun);
            cloud.assert_consistent(&running, "hour").await;
            cloud.teardown(&running, "hour").await;
        }
    }
}

#[tokio::test]
async fn a_waiting_server_can_be_deleted_and_others_do_not_wait() {
    const SLOW: &str = "times_ms = { migrate = 2000 }";
    let topology = hosts(&[("a", &[ONE_GPU, SLOW]), ("b", &[ONE_GPU, SLOW])]);
    for (cloud, running) in clouds(topology, on_refusal(20)).await {
        let id = boot_without_room(&cloud, &running).await;
        assert_eq!(
            cloud
                .column("SELECT step FROM operations WHERE outcome = 'open' AND kind = 'create'")
                .await,
            ["wait_for_room"]
        );
        let before = cloud.used("VGPU").await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        assert!(
            cloud.used("VGPU").await >= before.min(2),
            "only the moving server has more claims"
        );
        cloud.audit("deleted while it waits").await;
        wait_until("the move has ended", async || {
            cloud.column("SELECT id FROM moves WHERE open_server IS NOT NULL").await.is_empty()
        })
        .await;
        running.wait_for_host_cleanup(&cloud).await;
        assert!(running.server(&id).await.is_null(), "the server stays deleted");
        cloud.assert_consistent(&running, "deleted").await;
        cloud.teardown(&running, "deleted").await;
    }
}

#[tokio::test]
async fn a_wait_that_cannot_be_read_does_not_keep_others_from_their_end() {
    for (cloud, running) in clouds(two_hosts(), on_refusal(20)).await {
        let unreadable = running.active_server_on(&cloud, "a", "vgpu").await;
        let earlier = running.active_server_on(&cloud, "b", "vgpu").await;
        for (server, data) in
            [(&unreadable, r#"{"reason":"r"}"#), (&earlier, r#"{"reason":"r","until":1}"#)]
        {
            let row = ("create".to_owned(), "wait_for_room".to_owned(), data.to_owned());
            insert_for(&cloud.store, server.parse().expect("an id"), &row).await;
        }
        boot::end_overdue(running.compute.clone(), SignedDuration::ZERO).await.expect("it ends");
        let refused = running.wait_for_status(&earlier, "ERROR").await;
        let message = refused["fault"]["message"].as_str().expect("a message");
        assert!(message.contains("The moves that should make room failed."), "{refused}");
        assert!(fault(&refused).contains("has stopped"), "{refused}");
        let left = cloud.column("SELECT subject FROM operations WHERE outcome = 'open'").await;
        assert_eq!(left, [unreadable]);
        cloud.execute("DELETE FROM operations WHERE outcome = 'open'").await;
        cloud.teardown(&running, "unreadable").await;
    }
}

/// The services crash after each write from the boot on, and their successors leave no server in `BUILD`. The stores
/// take turns.
#[tokio::test]
async fn a_crash_while_a_boot_waits_leaves_no_server_in_build() {
    let mut together = 0;
    for (share, (cloud, mut running)) in shared(clouds(two_hosts(), on_refusal(1)).await) {
        let (mut ended, mut waited) = (false, 0);
        for at in (0..60).filter(|at| share.has(*at as usize)) {
            let when = format!("dead after write {at}");
            running.active_server_on(&cloud, "a", "vgpu").await;
            running.active_server_on(&cloud, "b", "vgpu").await;
            let plan = CrashPlan::at(at, Death::AfterCommit);
            running.replace_services(&cloud, plan.clone()).await;
            let request = running.boot_request(&cloud, "whole", "vgpu4");
            let answer = running.call(ANN, "2.90", "POST /servers", Some(request)).await;
            running.wait_all_idle_or_dead().await;
            cloud.audit(&when).await;
            ended = !plan.is_dead();
            running.replace_services(&cloud, CrashPlan::default()).await;
            let step =
                "SELECT id FROM operations WHERE outcome = 'open' AND step = 'wait_for_room'";
            waited += cloud.column(step).await.len();
            wait_until("no server waits", async || {
                let overdue = boot::end_overdue(running.compute.clone(), SignedDuration::ZERO);
                overdue.await.expect("the loop runs");
                running.all_idle().await
            })
            .await;
            let servers = running.servers().await;
            for server in servers.iter().filter(|server| server["name"] == "whole") {
                let status = server["status"].as_str().expect("a status");
                assert!(["ACTIVE", "ERROR"].contains(&status), "{when}: {server}");
                if status == "ERROR" {
                    assert!(server["OS-EXT-SRV-ATTR:host"].is_null(), "{when}: {server}");
                    assert!(!fault(server).is_empty(), "{when}: {server}");
                }
            }
            assert!(servers.len() == 3 || !answer.status.is_success(), "{when}: {servers:?}");
            running.wait_for_host_cleanup(&cloud).await;
            running.compute.world.load(&cloud.store).await.expect("the providers are loaded");
            cloud.assert_consistent(&running, &when).await;
            cloud.teardown(&running, &when).await;
            if ended {
                break;
            }
        }
        assert!(ended, "the last run has no crash");
        assert!(waited >= share.least(3) as usize, "{waited} crashes left a waiting server");
        together += waited;
    }
    assert!(together >= 3, "{together} crashes left a waiting server");
}
