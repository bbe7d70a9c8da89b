//! Live migrations that copy no memory before the destination has plugged the ports.

use jiff::SignedDuration;
use kilonova_compute_app::ports::external::CloudNeutronOptions;
use kilonova_hypervisor::DomainState;
use kilonova_store::testing::CrashPlan;
use kilonova_testkit::neutron::FakeNeutron;
use serde_json::{Value, json};

use super::plugging::{guest, wait_for_pause};
use super::{clouds_with, end, event, hosts_of, operate, port_of, text};
use crate::kit::{ADMIN, Cloud, RunningCloud, wait_until};

fn waits(options: &mut CloudNeutronOptions) {
    options.vif_plugging_timeout = SignedDuration::from_secs(300);
}

/// Boots a server on `a` and plugs its port there. Returns the ids of both.
async fn server_on_a(
    cloud: &Cloud,
    running: &RunningCloud,
    neutron: &FakeNeutron,
) -> (String, String) {
    let mut request = running.boot_request(cloud, "one", "plain");
    request["server"]["host"] = json!("a");
    let made = running.admin("2.90", "POST /servers", request).await.expect(202);
    let id = text(&made["server"], "id");
    wait_for_pause(cloud, &id).await;
    let port = text(&port_of(neutron, &id), "id");
    neutron.state().set_status(&port, "ACTIVE");
    event(running, &id, "network-vif-plugged", "completed", &port).await;
    running.wait_for_status(&id, "ACTIVE").await;
    cloud.wait_for_neutron().await;
    (id, port)
}

async fn migrate(running: &RunningCloud, id: &str) {
    let live = json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
    operate(running, id, live).await;
}

/// The status of the last migration.
async fn last_migration(running: &RunningCloud) -> Value {
    let found = running.get(ADMIN, "2.90", "/os-migrations").await.expect(200);
    found["migrations"][0]["status"].clone()
}

/// Checks that the guest is on its source, which has not been requested to migrate it.
async fn assert_stays(cloud: &Cloud, running: &RunningCloud, id: &str) {
    assert_eq!(running.server(id).await["status"], "MIGRATING");
    assert_eq!(last_migration(running).await, "preparing");
    assert_eq!(guest(running, "a", id).await, Some(DomainState::Running));
    let documents = cloud.column("SELECT body FROM documents WHERE host = 'a'").await;
    assert!(!documents.iter().any(|body| body.contains("departure")), "{documents:?}");
}

#[tokio::test]
async fn no_memory_is_copied_before_the_ports_are_plugged() {
    for (cloud, mut running, neutron) in clouds_with(&["a", "b"], waits).await {
        neutron.state().add_hybrid_agent("b");
        let (id, port) = server_on_a(&cloud, &running, &neutron).await;
        migrate(&running, &id).await;
        wait_for_pause(&cloud, &id).await;
        assert_stays(&cloud, &running, &id).await;
        // The ports are read again, and the port is still plugged only on the source.
        neutron.take_calls();
        event(&running, &id, "network-changed", "completed", &port).await;
        wait_until("the ports are read", async || {
            neutron.take_calls().iter().any(|call| call.starts_with("GET /ports"))
        })
        .await;
        assert_stays(&cloud, &running, &id).await;
        // The controller dies, and one of an earlier version, which does not have this wait, ends it. The
        // destination then reports again that it is ready.
        running.replace_services(&cloud, CrashPlan::default()).await;
        cloud.execute("UPDATE external_servers SET waits_since = NULL").await;
        running.nodes.kill("b").await;
        running.start_node(&cloud, "b").await;
        wait_for_pause(&cloud, &id).await;
        assert_stays(&cloud, &running, &id).await;
        event(&running, &id, "network-vif-plugged", "completed", &port).await;
        let server = running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], "b");
        wait_until("the source's binding is gone", async || hosts_of(&neutron, &id) == ["b"]).await;
        let waiting = "SELECT server_id FROM external_servers WHERE waits_since IS NOT NULL";
        assert!(cloud.column(waiting).await.is_empty());

        // Host `a` plugs a port only when its guest arrives, so this migration does not wait.
        migrate(&running, &id).await;
        let server = running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], "a");
        // A host that dies before it has removed a guest receives no other document of the same server.
        running.wait_for_host_cleanup(&cloud).await;

        // The event arrives before the destination reports.
        running.nodes.kill("b").await;
        migrate(&running, &id).await;
        wait_until("the document is delivered", async || {
            let sql = "SELECT body FROM documents WHERE host = 'b' AND held = 0";
            cloud.column(sql).await.iter().any(|body| body.contains("ovs_hybrid"))
        })
        .await;
        event(&running, &id, "network-vif-plugged", "completed", &port).await;
        running.start_node(&cloud, "b").await;
        let server = running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], "b");
        end(&cloud, &running, &neutron, &[]).await;
    }
}

#[tokio::test]
async fn a_destination_that_plugs_no_port_has_failed() {
    for (cloud, running, neutron) in clouds_with(&["a", "b"], waits).await {
        neutron.state().add_hybrid_agent("b");
        let (id, port) = server_on_a(&cloud, &running, &neutron).await;
        for failure in ["never", "failed", "aborted"] {
            migrate(&running, &id).await;
            wait_for_pause(&cloud, &id).await;
            match failure {
                "never" => cloud.execute("UPDATE external_servers SET waits_since = 1").await,
                "failed" => event(&running, &id, "network-vif-plugged", "failed", &port).await,
                _ => {
                    let path = format!("/servers/{id}/migrations");
                    let found = running.get(ADMIN, "2.90", &path).await.expect(200);
                    let number = found["migrations"][0]["id"].to_string();
                    running
                        .call(ADMIN, "2.90", &format!("DELETE {path}/{number}"), None)
                        .await
                        .expect(202);
                }
            }
            let server = running.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(server["OS-EXT-SRV-ATTR:host"], "a", "{failure}");
            assert_eq!(guest(&running, "a", &id).await, Some(DomainState::Running));
            wait_until("the destination's binding is gone", async || {
                hosts_of(&neutron, &id) == ["a"]
            })
            .await;
            let aborted = !matches!(failure, "never" | "failed");
            let status = if aborted { "cancelled" } else { "failed" };
            assert_eq!(last_migration(&running).await, status, "{failure}");
            if !aborted {
                let path = format!("/servers/{id}/os-instance-actions");
                let actions = running.get(ADMIN, "2.90", &path).await.expect(200);
                let request = text(&actions["instanceActions"][0], "request_id");
                let shown =
                    running.get(ADMIN, "2.90", &format!("{path}/{request}")).await.expect(200);
                let shown = shown.to_string();
                assert!(shown.contains("Virtual Interface creation failed"), "{shown}");
            }
            cloud.audit(failure).await;
        }
        end(&cloud, &running, &neutron, &[]).await;
    }
}

/// The operator disables the wait, or makes its failure non-fatal.
#[tokio::test]
async fn the_options_of_the_wait_are_used() {
    let late = |options: &mut CloudNeutronOptions| {
        waits(options);
        options.vif_plugging_is_fatal = false;
    };
    for (cloud, running, neutron) in clouds_with(&["a", "b"], late).await {
        neutron.state().add_hybrid_agent("b");
        let (id, port) = server_on_a(&cloud, &running, &neutron).await;
        migrate(&running, &id).await;
        wait_for_pause(&cloud, &id).await;
        event(&running, &id, "network-vif-plugged", "failed", &port).await;
        assert_stays(&cloud, &running, &id).await;
        cloud.execute("UPDATE external_servers SET waits_since = 1").await;
        let server = running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], "b");
        end(&cloud, &running, &neutron, &[]).await;
    }
    let without = |options: &mut CloudNeutronOptions| {
        waits(options);
        options.live_migration_wait_for_vif_plug = false;
    };
    for (cloud, running, neutron) in clouds_with(&["a", "b"], without).await {
        neutron.state().add_hybrid_agent("b");
        let (id, _) = server_on_a(&cloud, &running, &neutron).await;
        migrate(&running, &id).await;
        let server = running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], "b");
        end(&cloud, &running, &neutron, &[]).await;
    }
}
