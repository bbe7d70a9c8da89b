//! Live migration: success, abort, forced completion, failures and refusals.

use serde_json::{Value, json};

use crate::kit::{ADMIN, Cloud, FPGA, GPU, Up, VFIO_VGPU, hosts, network_cards, wait_until};
use crate::servers::resize::admin;

const SLOW_MIGRATION: &str = "times_ms = { migrate = 60000 }";

fn live(host: Option<&str>) -> Value {
    json!({"os-migrateLive": {"host": host, "block_migration": "auto"}})
}

async fn host_of(up: &Up, id: &str) -> Value {
    up.server(id).await["OS-EXT-SRV-ATTR:host"].clone()
}

/// The running live migrations of a server.
async fn running_migrations(up: &Up, id: &str) -> Vec<Value> {
    let list = up.get(ADMIN, "2.80", &format!("/servers/{id}/migrations")).await.expect(200);
    list["migrations"].as_array().expect("the answer has a list").clone()
}

/// Waits until the migration of a guest runs, and returns its number.
pub async fn wait_until_migrating(up: &Up, id: &str) -> i64 {
    let mut number = 0;
    wait_until("the migration runs", async || {
        let found = running_migrations(up, id).await;
        let running = found.iter().find(|one| {
            one["status"] == "running" && one["memory_processed_bytes"].as_i64() > Some(0)
        });
        number = running.and_then(|one| one["id"].as_i64()).unwrap_or_default();
        number > 0
    })
    .await;
    number
}

async fn events(up: &Up, id: &str) -> Vec<String> {
    let path = format!("/servers/{id}/os-instance-actions");
    let list = up.get(ADMIN, "2.90", &path).await.expect(200);
    let all = list["instanceActions"].as_array().expect("the answer has a list");
    let live = all.iter().find(|one| one["action"] == "live-migration").expect("the entry exists");
    let request = live["request_id"].as_str().expect("the answer has an id");
    let shown = up.get(ADMIN, "2.90", &format!("{path}/{request}")).await.expect(200);
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
    for (cloud, up) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        for flavor in ["plain", "vgpu", "vgpu-pair", "profile"] {
            let id = up.active_server_on(&cloud, "a", flavor).await;
            for (version, there) in [("2.30", "b"), ("2.90", "a")] {
                admin(&up, version, &id, live(None)).await.expect(202);
                up.wait_for_status(&id, "ACTIVE").await;
                assert_eq!(host_of(&up, &id).await, there);
                assert_eq!(status(&cloud).await, "completed");
                up.wait_for_host_cleanup(&cloud).await;
                cloud.assert_consistent(&up, flavor).await;
            }
            let all = [
                "conductor_live_migrate_instance",
                "compute_check_can_live_migrate_destination",
                "compute_check_can_live_migrate_source",
                "compute_pre_live_migration",
                "compute_live_migration",
                "compute_post_live_migration_at_destination",
            ];
            assert_eq!(events(&up, &id).await, all);
            cloud.teardown(&up, flavor).await;
        }
    }
}

#[tokio::test]
async fn a_paused_guest_arrives_paused() {
    for (cloud, up) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = up.active_server_on(&cloud, "a", "vgpu").await;
        admin(&up, "2.90", &id, json!({"pause": null})).await.expect(202);
        up.wait_for_status(&id, "PAUSED").await;
        admin(&up, "2.90", &id, live(None)).await.expect(202);
        assert_eq!(up.wait_for_status(&id, "PAUSED").await["OS-EXT-STS:power_state"], 3);
        assert_eq!(
            (host_of(&up, &id).await, status(&cloud).await),
            (json!("b"), "completed".into())
        );
        up.wait_for_host_cleanup(&cloud).await;
        cloud.assert_consistent(&up, "paused").await;
        admin(&up, "2.90", &id, json!({"unpause": null})).await.expect(202);
        up.wait_for_status(&id, "ACTIVE").await;
        cloud.assert_consistent(&up, "unpaused").await;
        cloud.teardown(&up, "unpaused").await;
    }
}

#[tokio::test]
async fn abort() {
    for (cloud, up) in
        Cloud::all_running(hosts(&[("a", &[GPU, SLOW_MIGRATION]), ("b", &[GPU])])).await
    {
        let id = up.active_server_on(&cloud, "a", "vgpu").await;
        admin(&up, "2.90", &id, live(None)).await.expect(202);
        let number = wait_until_migrating(&up, &id).await;
        assert_eq!(up.server(&id).await["status"], "MIGRATING");
        let path = format!("/servers/{id}/migrations/{number}");
        let shown = up.get(ADMIN, "2.80", &path).await.expect(200);
        assert_eq!(shown["migration"]["memory_total_bytes"], 64 * 1024 * 1024);
        let list = up.get(ADMIN, "2.80", "/os-migrations").await.expect(200);
        assert!(list["migrations"][0]["links"].is_array(), "{list}");
        cloud.audit("migrating").await;
        let what = format!("DELETE {path}");
        up.call(ADMIN, "2.23", &what, None).await.refused(404, "is not supported");
        up.call("ann:red", "2.80", &what, None).await.refused(403, "migrations:delete");
        up.call(ADMIN, "2.80", &what, None).await.expect(202);
        up.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(
            (host_of(&up, &id).await, status(&cloud).await),
            (json!("a"), "cancelled".into())
        );
        up.get(ADMIN, "2.80", &path).await.refused(404, "is not in progress");
        cloud.assert_consistent(&up, "aborted").await;
        assert!(events(&up, &id).await.contains(&"compute_live_migration_abort".to_owned()));
        admin(&up, "2.90", &id, live(None)).await.expect(202);
        wait_until_migrating(&up, &id).await;
        up.call(ADMIN, "2.90", &format!("DELETE /servers/{id}"), None).await.expect(204);
        up.wait_until_gone(&id).await;
        cloud.assert_empty(&up, "deleted while migrating").await;
    }
}

#[tokio::test]
async fn force_complete() {
    for (cloud, up) in
        Cloud::all_running(hosts(&[("a", &[GPU, SLOW_MIGRATION]), ("b", &[GPU])])).await
    {
        let id = up.active_server_on(&cloud, "a", "vgpu-pair").await;
        admin(&up, "2.90", &id, live(Some("b"))).await.expect(202);
        let number = wait_until_migrating(&up, &id).await;
        let what = format!("POST /servers/{id}/migrations/{number}/action");
        let wrong = up.call(ADMIN, "2.80", &what, Some(json!({"hurry": null}))).await;
        wrong.refused(400, "force_complete");
        up.call(ADMIN, "2.80", &what, Some(json!({"force_complete": null}))).await.expect(202);
        up.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(
            (host_of(&up, &id).await, status(&cloud).await),
            (json!("b"), "completed".into())
        );
        up.wait_for_host_cleanup(&cloud).await;
        cloud.assert_consistent(&up, "forced to complete").await;
        cloud.teardown(&up, "forced to complete").await;
    }
}

#[tokio::test]
async fn a_restarted_agent_migrates_again() {
    for (cloud, mut up) in
        Cloud::all_running(hosts(&[("a", &[GPU, SLOW_MIGRATION]), ("b", &[GPU])])).await
    {
        let id = up.active_server_on(&cloud, "a", "vgpu").await;
        admin(&up, "2.90", &id, live(None)).await.expect(202);
        let number = wait_until_migrating(&up, &id).await;
        up.nodes.kill("a").await;
        up.start_node(&cloud, "a").await;
        let what = format!("POST /servers/{id}/migrations/{number}/action");
        up.call(ADMIN, "2.80", &what, Some(json!({"force_complete": null}))).await.expect(202);
        up.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(host_of(&up, &id).await, "b");
        up.wait_for_host_cleanup(&cloud).await;
        cloud.assert_consistent(&up, "migrated again").await;
        cloud.teardown(&up, "migrated again").await;
    }
}

#[tokio::test]
async fn a_failed_migration_keeps_the_guest_on_the_source() {
    for (cloud, mut up) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        for (host, step, ends) in
            [("b", "create_mdev", "error"), ("b", "receive", "error"), ("a", "migrate", "failed")]
        {
            let id = up.active_server_on(&cloud, "a", "vgpu").await;
            up.restart_failing(&cloud, host, &[(step, None)]).await;
            admin(&up, "2.90", &id, live(None)).await.expect(202);
            up.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(host_of(&up, &id).await, "a", "{step}");
            assert_eq!(status(&cloud).await, ends, "{step}");
            cloud.assert_consistent(&up, step).await;
            up.restart_failing(&cloud, host, &[]).await;
            cloud.teardown(&up, step).await;
        }
    }
}

#[tokio::test]
async fn a_failed_destination_is_followed_by_the_next_host() {
    for (cloud, mut up) in
        Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU]), ("c", &[GPU])])).await
    {
        up.restart_failing(&cloud, "b", &[("receive", None)]).await;
        for _ in 0..3 {
            let id = up.active_server_on(&cloud, "a", "vgpu").await;
            admin(&up, "2.90", &id, live(None)).await.expect(202);
            up.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(host_of(&up, &id).await, "c");
            up.wait_for_host_cleanup(&cloud).await;
            cloud.assert_consistent(&up, "the next host").await;
            cloud.teardown(&up, "the next host").await;
        }
    }
}

#[tokio::test]
async fn passthrough_devices_are_not_live_migrated() {
    let whole = network_cards(1);
    let topology = hosts(&[("a", &[FPGA, &whole]), ("b", &[FPGA, &whole])]);
    for (cloud, up) in Cloud::all_running(topology).await {
        up.flavor("whole", json!({})).await;
        let specs = json!({"extra_specs": {"resources:CUSTOM_X710": "1"}});
        up.admin("2.61", "POST /flavors/whole/os-extra_specs", specs).await.expect(200);
        for flavor in ["fpga", "whole"] {
            let id = up.active_server_on(&cloud, "a", flavor).await;
            let refused = admin(&up, "2.90", &id, live(None)).await;
            refused.refused(400, "cannot live-migrate");
            assert_eq!(cloud.column("SELECT id FROM moves").await, Vec::<String>::new());
            cloud.assert_consistent(&up, flavor).await;
            cloud.teardown(&up, flavor).await;
        }
    }
}

#[tokio::test]
async fn invalid_live_migrations_are_refused() {
    for (cloud, up) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[])])).await {
        let id = up.active_server_on(&cloud, "a", "vgpu").await;
        let same = admin(&up, "2.90", &id, live(Some("a"))).await;
        same.refused(400, &format!("Unable to migrate instance ({id}) to current host (a)."));
        let none = admin(&up, "2.90", &id, live(Some("x"))).await;
        none.refused(400, "Compute host x could not be found.");
        admin(&up, "2.30", &id, live(None)).await.refused(400, "No valid host was found.");
        admin(&up, "2.34", &id, live(None)).await.expect(202);
        assert_eq!(up.wait_for_status(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "a");
        assert_eq!(status(&cloud).await, "error");
        let short = admin(&up, "2.24", &id, json!({"os-migrateLive": {"host": null}})).await;
        short.refused(400, "'block_migration' is a required property");
        admin(&up, "2.24", &id, live(None)).await.refused(400, "disk_over_commit");
        let what = format!("DELETE /servers/{id}/migrations/1");
        let idle = up.call(ADMIN, "2.80", &what, None).await;
        idle.refused(409, "Cannot 'abort live migration' instance");
        admin(&up, "2.90", &id, json!({"os-stop": null})).await.expect(202);
        up.wait_for_status(&id, "SHUTOFF").await;
        let off = admin(&up, "2.90", &id, live(None)).await;
        off.refused(409, "Cannot 'os-migrateLive' instance");
        cloud.assert_consistent(&up, "refused").await;
        cloud.teardown(&up, "refused").await;
    }
}

/// VFIO vGPUs migrate between hosts whose libvirt and QEMU support it, which requires newer versions
/// than mediated devices do.
#[tokio::test]
async fn vfio_vgpus_migrate_between_capable_hosts() {
    const LESS: &str =
        "traits = [\"COMPUTE_NODE\", \"COMPUTE_ACCELERATORS\", \"CUSTOM_VGPU_LIVE_MIGRATION\"]";
    let all = hosts(&[("a", &[VFIO_VGPU]), ("b", &[VFIO_VGPU]), ("c", &[VFIO_VGPU, LESS])]);
    for (cloud, up) in Cloud::all_running(all).await {
        let id = up.active_server_on(&cloud, "c", "vgpu").await;
        let refused = admin(&up, "2.90", &id, live(Some("a"))).await;
        refused.refused(400, "too old than the supported ones : (QEMU: 8.2.2, libvirt: 10.0.0)");
        assert_eq!(cloud.column("SELECT id FROM moves").await, Vec::<String>::new());
        cloud.teardown(&up, "an old source").await;

        let id = up.active_server_on(&cloud, "a", "vgpu").await;
        let why = "c cannot receive PCI functions with a driver of their kind of a running guest";
        let refused = admin(&up, "2.30", &id, live(Some("c"))).await;
        assert!(refused.body.to_string().contains(why), "{}", refused.body);
        refused.refused(400, "No valid host was found.");
        assert_eq!(cloud.column("SELECT id FROM moves").await, Vec::<String>::new());
        admin(&up, "2.90", &id, live(Some("c"))).await.expect(202);
        assert_eq!(up.wait_for_status(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "a");
        cloud.audit("an old destination").await;
        admin(&up, "2.90", &id, live(None)).await.expect(202);
        up.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(
            (host_of(&up, &id).await, status(&cloud).await),
            (json!("b"), "completed".into())
        );
        up.wait_for_host_cleanup(&cloud).await;
        cloud.teardown(&up, "migrated").await;
    }
}
