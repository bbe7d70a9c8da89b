//! Live migration: success, abort, forced completion, failures and refusals.

use serde_json::{Value, json};

use crate::kit::{
    ADMIN, Cloud, FPGA, GPU, RunningCloud, VFIO_VGPU, hosts, network_cards, wait_until,
};
use crate::servers::resize::admin;

const SLOW_MIGRATION: &str = "times_ms = { migrate = 60000 }";

fn live(host: Option<&str>) -> Value {
    json!({"os-migrateLive": {"host": host, "block_migration": "auto"}})
}

async fn host_of(running: &RunningCloud, id: &str) -> Value {
    running.server(id).await["OS-EXT-SRV-ATTR:host"].clone()
}

/// The running live migrations of a server.
async fn running_migrations(running: &RunningCloud, id: &str) -> Vec<Value> {
    let list = running.get(ADMIN, "2.80", &format!("/servers/{id}/migrations")).await.expect(200);
    list["migrations"].as_array().expect("the answer has a list").clone()
}

/// Waits until the migration of a guest runs, and returns its number.
pub async fn wait_until_migrating(running: &RunningCloud, id: &str) -> i64 {
    let mut number = 0;
    wait_until("the migration runs", async || {
        let found = running_migrations(running, id).await;
        let migration = found.iter().find(|one| {
            one["status"] == "running" && one["memory_processed_bytes"].as_i64() > Some(0)
        });
        number = migration.and_then(|one| one["id"].as_i64()).unwrap_or_default();
        number > 0
    })
    .await;
    number
}

async fn events(running: &RunningCloud, id: &str) -> Vec<String> {
    events_of(running, id, "live-migration").await
}

/// The events of the newest action of a kind.
async fn events_of(running: &RunningCloud, id: &str, action: &str) -> Vec<String> {
    let path = format!("/servers/{id}/os-instance-actions");
    let list = running.get(ADMIN, "2.90", &path).await.expect(200);
    let all = list["instanceActions"].as_array().expect("the answer has a list");
    let found = all.iter().find(|one| one["action"] == action).expect("the entry exists");
    let request = found["request_id"].as_str().expect("the answer has an id");
    let shown = running.get(ADMIN, "2.90", &format!("{path}/{request}")).await.expect(200);
    let events = shown["instanceAction"]["events"].as_array().expect("the action has events");
    events
        .iter()
        .map(|event| event["event"].as_str().expect("the value has a name").to_owned())
        .collect()
}

async fn status(cloud: &Cloud) -> String {
    let all = cloud.column("SELECT status FROM moves ORDER BY number DESC LIMIT 1").await;
    all.into_iter().next().unwrap_or_default()
}

#[tokio::test]
async fn guests_migrate_with_their_devices() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        for flavor in ["plain", "vgpu", "vgpu-pair", "profile"] {
            let id = running.active_server_on(&cloud, "a", flavor).await;
            for (version, there) in [("2.30", "b"), ("2.90", "a")] {
                admin(&running, version, &id, live(None)).await.expect(202);
                running.wait_for_status(&id, "ACTIVE").await;
                assert_eq!(host_of(&running, &id).await, there);
                assert_eq!(status(&cloud).await, "completed");
                running.wait_for_host_cleanup(&cloud).await;
                cloud.assert_consistent(&running, flavor).await;
            }
            let all = [
                "conductor_live_migrate_instance",
                "compute_check_can_live_migrate_destination",
                "compute_check_can_live_migrate_source",
                "compute_pre_live_migration",
                "compute_live_migration",
                "compute_post_live_migration_at_destination",
            ];
            assert_eq!(events(&running, &id).await, all);
            cloud.teardown(&running, flavor).await;
        }
    }
}

#[tokio::test]
async fn a_paused_guest_arrives_paused() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        admin(&running, "2.90", &id, json!({"pause": null})).await.expect(202);
        running.wait_for_status(&id, "PAUSED").await;
        admin(&running, "2.90", &id, live(None)).await.expect(202);
        assert_eq!(running.wait_for_status(&id, "PAUSED").await["OS-EXT-STS:power_state"], 3);
        assert_eq!(
            (host_of(&running, &id).await, status(&cloud).await),
            (json!("b"), "completed".into())
        );
        running.wait_for_host_cleanup(&cloud).await;
        cloud.assert_consistent(&running, "paused").await;
        admin(&running, "2.90", &id, json!({"unpause": null})).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.assert_consistent(&running, "unpaused").await;
        cloud.teardown(&running, "unpaused").await;
    }
}

#[tokio::test]
async fn abort() {
    for (cloud, running) in
        Cloud::all_running(hosts(&[("a", &[GPU, SLOW_MIGRATION]), ("b", &[GPU])])).await
    {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        admin(&running, "2.90", &id, live(None)).await.expect(202);
        let number = wait_until_migrating(&running, &id).await;
        assert_eq!(running.server(&id).await["status"], "MIGRATING");
        let path = format!("/servers/{id}/migrations/{number}");
        let shown = running.get(ADMIN, "2.80", &path).await.expect(200);
        assert_eq!(shown["migration"]["memory_total_bytes"], 64 * 1024 * 1024);
        let list = running.get(ADMIN, "2.80", "/os-migrations").await.expect(200);
        assert!(list["migrations"][0]["links"].is_array(), "{list}");
        wait_until("one per cent of the memory has left", async || {
            running.server(&id).await["progress"].as_i64() > Some(0)
        })
        .await;
        let listed = running.get(ADMIN, "2.1", "/servers/detail?all_tenants=1").await.expect(200);
        let percent = listed["servers"][0]["progress"].as_i64();
        assert!(percent > Some(0) && percent < Some(100), "{listed}");
        cloud.audit("migrating").await;
        let what = format!("DELETE {path}");
        running.call(ADMIN, "2.23", &what, None).await.refused(404, "is not supported");
        running.call("ann:red", "2.80", &what, None).await.refused(403, "migrations:delete");
        running.call(ADMIN, "2.80", &what, None).await.expect(202);
        assert_eq!(running.wait_for_status(&id, "ACTIVE").await["progress"], 0);
        assert_eq!(
            (host_of(&running, &id).await, status(&cloud).await),
            (json!("a"), "cancelled".into())
        );
        running.get(ADMIN, "2.80", &path).await.refused(404, "is not in progress");
        cloud.assert_consistent(&running, "aborted").await;
        let abort = "compute_live_migration_abort";
        assert_eq!(events_of(&running, &id, "live_migration_cancel").await, [abort]);
        assert!(!events(&running, &id).await.contains(&abort.to_owned()));
        admin(&running, "2.90", &id, live(None)).await.expect(202);
        wait_until_migrating(&running, &id).await;
        // The migration that was aborted, and migrations that do not exist.
        let force = |number: &str| format!("POST /servers/{id}/migrations/{number}/action");
        let body = || Some(json!({"force_complete": null}));
        let words = |method: &str| {
            format!(
                "Migration {number} state of instance {id} is cancelled. Cannot {method} while the migration is in \
                 this state."
            )
        };
        let again = running.call(ADMIN, "2.80", &what, None).await;
        again.refused(400, &words("abort live migration"));
        let again = running.call(ADMIN, "2.80", &force(&number.to_string()), body()).await;
        again.refused(400, &words("force complete"));
        for none in ["987", "x"] {
            let words = format!("Migration {none} not found for instance {id}");
            let what = format!("DELETE /servers/{id}/migrations/{none}");
            running.call(ADMIN, "2.80", &what, None).await.refused(404, &words);
            running.call(ADMIN, "2.80", &force(none), body()).await.refused(400, &words);
        }
        running.call(ADMIN, "2.90", &format!("DELETE /servers/{id}"), None).await.expect(204);
        running.wait_until_gone(&id).await;
        cloud.assert_empty(&running, "deleted while migrating").await;
    }
}

#[tokio::test]
async fn force_complete() {
    for (cloud, running) in
        Cloud::all_running(hosts(&[("a", &[GPU, SLOW_MIGRATION]), ("b", &[GPU])])).await
    {
        let id = running.active_server_on(&cloud, "a", "vgpu-pair").await;
        admin(&running, "2.90", &id, live(Some("b"))).await.expect(202);
        let number = wait_until_migrating(&running, &id).await;
        let what = format!("POST /servers/{id}/migrations/{number}/action");
        let wrong = running.call(ADMIN, "2.80", &what, Some(json!({"hurry": null}))).await;
        wrong.refused(400, "force_complete");
        running.call(ADMIN, "2.80", &what, Some(json!({"force_complete": null}))).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        let forced = events_of(&running, &id, "live_migration_force_complete").await;
        assert_eq!(forced, ["compute_live_migration_force_complete"]);
        assert_eq!(
            (host_of(&running, &id).await, status(&cloud).await),
            (json!("b"), "completed".into())
        );
        running.wait_for_host_cleanup(&cloud).await;
        cloud.assert_consistent(&running, "forced to complete").await;
        cloud.teardown(&running, "forced to complete").await;
    }
}

#[tokio::test]
async fn a_restarted_agent_migrates_again() {
    for (cloud, mut running) in
        Cloud::all_running(hosts(&[("a", &[GPU, SLOW_MIGRATION]), ("b", &[GPU])])).await
    {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        admin(&running, "2.90", &id, live(None)).await.expect(202);
        let number = wait_until_migrating(&running, &id).await;
        running.nodes.kill("a").await;
        running.start_node(&cloud, "a").await;
        let what = format!("POST /servers/{id}/migrations/{number}/action");
        running.call(ADMIN, "2.80", &what, Some(json!({"force_complete": null}))).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(host_of(&running, &id).await, "b");
        running.wait_for_host_cleanup(&cloud).await;
        cloud.assert_consistent(&running, "migrated again").await;
        cloud.teardown(&running, "migrated again").await;
    }
}

#[tokio::test]
async fn a_failed_migration_keeps_the_guest_on_the_source() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        for (host, step, ends) in
            [("b", "create_mdev", "failed"), ("b", "receive", "failed"), ("a", "migrate", "failed")]
        {
            let id = running.active_server_on(&cloud, "a", "vgpu").await;
            running.restart_failing(&cloud, host, &[(step, None)]).await;
            admin(&running, "2.90", &id, live(None)).await.expect(202);
            running.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(host_of(&running, &id).await, "a", "{step}");
            assert_eq!(status(&cloud).await, ends, "{step}");
            cloud.assert_consistent(&running, step).await;
            running.restart_failing(&cloud, host, &[]).await;
            cloud.teardown(&running, step).await;
        }
    }
}

/// After `os-resetState` a suspended guest may begin a live migration, which fails and ends as it began.
#[tokio::test]
async fn a_suspended_guest_that_is_reset_to_active_does_not_stay_in_migration() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        admin(&running, "2.90", &id, json!({"suspend": null})).await.expect(202);
        running.wait_for_status(&id, "SUSPENDED").await;
        for state in ["error", "active"] {
            let reset = json!({"os-resetState": {"state": state}});
            admin(&running, "2.90", &id, reset).await.expect(202);
        }
        admin(&running, "2.90", &id, live(None)).await.expect(202);
        wait_until("the migration has ended", async || status(&cloud).await == "failed").await;
        let server = running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(server["OS-EXT-STS:power_state"], 7, "the guest is still suspended");
        assert_eq!(host_of(&running, &id).await, "a");
        cloud.audit("the migration has failed").await;
        admin(&running, "2.90", &id, json!({"reboot": {"type": "HARD"}})).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.teardown(&running, "the guest runs again").await;
    }
}

#[tokio::test]
async fn a_failed_destination_is_followed_by_the_next_host() {
    for (cloud, mut running) in
        Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU]), ("c", &[GPU])])).await
    {
        running.restart_failing(&cloud, "b", &[("receive", None)]).await;
        for _ in 0..3 {
            let id = running.active_server_on(&cloud, "a", "vgpu").await;
            admin(&running, "2.90", &id, live(None)).await.expect(202);
            running.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(host_of(&running, &id).await, "c");
            running.wait_for_host_cleanup(&cloud).await;
            cloud.assert_consistent(&running, "the next host").await;
            cloud.teardown(&running, "the next host").await;
        }
    }
}

#[tokio::test]
async fn passthrough_devices_are_not_live_migrated() {
    let whole = network_cards(1);
    let topology = hosts(&[("a", &[FPGA, &whole]), ("b", &[FPGA, &whole])]);
    for (cloud, running) in Cloud::all_running(topology).await {
        running.flavor("whole", json!({})).await;
        let specs = json!({"extra_specs": {"resources:CUSTOM_X710": "1"}});
        running.admin("2.61", "POST /flavors/whole/os-extra_specs", specs).await.expect(200);
        for flavor in ["fpga", "whole"] {
            let id = running.active_server_on(&cloud, "a", flavor).await;
            let refused = admin(&running, "2.90", &id, live(None)).await;
            refused.refused(400, "cannot live-migrate");
            assert_eq!(cloud.column("SELECT id FROM moves").await, Vec::<String>::new());
            cloud.assert_consistent(&running, flavor).await;
            cloud.teardown(&running, flavor).await;
        }
    }
}

#[tokio::test]
async fn invalid_live_migrations_are_refused() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[])])).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        let same = admin(&running, "2.90", &id, live(Some("a"))).await;
        same.refused(400, &format!("Unable to migrate instance ({id}) to current host (a)."));
        let none = admin(&running, "2.90", &id, live(Some("x"))).await;
        none.refused(400, "Compute host x could not be found.");
        admin(&running, "2.30", &id, live(None)).await.refused(400, "No valid host was found.");
        admin(&running, "2.34", &id, live(None)).await.expect(202);
        assert_eq!(running.wait_for_status(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "a");
        assert_eq!(status(&cloud).await, "error");
        let short = admin(&running, "2.24", &id, json!({"os-migrateLive": {"host": null}})).await;
        short.refused(400, "'block_migration' is a required property");
        admin(&running, "2.24", &id, live(None)).await.refused(400, "disk_over_commit");
        let what = format!("DELETE /servers/{id}/migrations/1");
        let idle = running.call(ADMIN, "2.80", &what, None).await;
        idle.refused(409, "Cannot 'abort live migration' instance");
        admin(&running, "2.90", &id, json!({"os-stop": null})).await.expect(202);
        running.wait_for_status(&id, "SHUTOFF").await;
        let off = admin(&running, "2.90", &id, live(None)).await;
        off.refused(409, "Cannot 'os-migrateLive' instance");
        cloud.assert_consistent(&running, "refused").await;
        cloud.teardown(&running, "refused").await;
    }
}

/// VFIO vGPUs migrate between hosts whose libvirt and QEMU support it, which requires newer versions
/// than mediated devices do.
#[tokio::test]
async fn vfio_vgpus_migrate_between_capable_hosts() {
    const LESS: &str =
        "traits = [\"COMPUTE_NODE\", \"COMPUTE_ACCELERATORS\", \"CUSTOM_VGPU_LIVE_MIGRATION\"]";
    let all = hosts(&[("a", &[VFIO_VGPU]), ("b", &[VFIO_VGPU]), ("c", &[VFIO_VGPU, LESS])]);
    for (cloud, running) in Cloud::all_running(all).await {
        let id = running.active_server_on(&cloud, "c", "vgpu").await;
        let refused = admin(&running, "2.90", &id, live(Some("a"))).await;
        refused.refused(400, "too old than the supported ones : (QEMU: 8.2.2, libvirt: 10.0.0)");
        assert_eq!(cloud.column("SELECT id FROM moves").await, Vec::<String>::new());
        cloud.teardown(&running, "an old source").await;

        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        let why = "c cannot receive PCI functions with a variant driver of a running guest";
        let refused = admin(&running, "2.30", &id, live(Some("c"))).await;
        assert!(refused.body.to_string().contains(why), "{}", refused.body);
        refused.refused(400, "No valid host was found.");
        assert_eq!(cloud.column("SELECT id FROM moves").await, Vec::<String>::new());
        admin(&running, "2.90", &id, live(Some("c"))).await.expect(202);
        assert_eq!(running.wait_for_status(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "a");
        cloud.audit("an old destination").await;
        admin(&running, "2.90", &id, live(None)).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(
            (host_of(&running, &id).await, status(&cloud).await),
            (json!("b"), "completed".into())
        );
        running.wait_for_host_cleanup(&cloud).await;
        cloud.teardown(&running, "migrated").await;
    }
}
