//! Guests that are paused until their ports are plugged.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use jiff::SignedDuration;
use kilonova_compute_app::ports::external::{self, NetworkEvent};
use kilonova_compute_app::{Error, flows};
use kilonova_hypervisor::DomainState;
use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::{Observation, Outcome};
use kilonova_store::testing::CrashPlan;
use kilonova_store::{Tx, params};
use kilonova_wire::time;
use serde_json::{Value, json};

use super::{clouds_with, end, event, operate, port_of, text};
use crate::kit::{ADMIN, Cloud, RunningCloud, fault, wait_until};

const STARTS_PAUSED: &str = r#""starts_paused":true"#;

/// The state of a guest on a host.
pub(super) async fn guest(running: &RunningCloud, host: &str, id: &str) -> Option<DomainState> {
    let server: ServerId = id.parse().expect("the id is a UUID");
    let found = running.nodes.hypervisor(host).domain(server).await.expect("the lookup succeeds");
    found.map(|found| found.state)
}

/// Waits until the guest of a server waits for its ports.
pub(super) async fn wait_for_pause(cloud: &Cloud, id: &str) {
    let sql = "SELECT server_id FROM external_servers WHERE waits_since IS NOT NULL";
    wait_until("the guest waits for its ports", async || {
        cloud.column(sql).await.contains(&id.to_owned())
    })
    .await;
}

#[tokio::test]
async fn a_build_waits_until_its_ports_are_plugged() {
    for (cloud, running, neutron) in
        clouds_with(&["a"], |options| options.vif_plugging_timeout = SignedDuration::from_secs(300))
            .await
    {
        let id = running.boot(&cloud, "one", "plain").await;
        wait_for_pause(&cloud, &id).await;
        assert_eq!(running.server(&id).await["OS-EXT-STS:task_state"], "spawning");
        assert_eq!(guest(&running, "a", &id).await, Some(DomainState::Paused));
        let port = text(&port_of(&neutron, &id), "id");
        event(&running, &id, "network-vif-unplugged", "completed", &port).await;
        cloud.wait_for_neutron().await;
        assert_eq!(running.server(&id).await["status"], "BUILD");
        event(&running, &id, "network-vif-plugged", "completed", &port).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(guest(&running, "a", &id).await, Some(DomainState::Running));
        // The wait leaves nothing behind.
        for (action, status) in [("os-stop", "SHUTOFF"), ("os-start", "ACTIVE")] {
            running.act(&id, json!({action: null})).await;
            running.wait_for_status(&id, status).await;
        }

        // Neutron cannot plug the port of one guest, and does not plug that of the other in time.
        let mut failed = Vec::new();
        for name in ["failed", "late"] {
            let id = running.boot(&cloud, name, "plain").await;
            wait_for_pause(&cloud, &id).await;
            if name == "failed" {
                let port = text(&port_of(&neutron, &id), "id");
                event(&running, &id, "network-vif-plugged", "failed", &port).await;
            } else {
                cloud.execute("UPDATE external_servers SET waits_since = 1").await;
            }
            let server = running.wait_for_status(&id, "ERROR").await;
            let words = format!(
                "Build of instance {id} aborted: Failed to allocate the network(s), not rescheduling."
            );
            assert_eq!(server["fault"]["message"], json!(words));
            assert_eq!(server["OS-EXT-SRV-ATTR:host"], Value::Null);
            failed.push(id);
        }
        cloud.wait_for_neutron().await;
        assert_eq!(neutron.state().ports().len(), 1, "the failed servers have no ports");

        // The event is lost, but Neutron knows that the port is plugged.
        let id = running.boot(&cloud, "lost", "plain").await;
        wait_for_pause(&cloud, &id).await;
        let port = text(&port_of(&neutron, &id), "id");
        neutron.state().set_status(&port, "ACTIVE");
        cloud.execute("UPDATE external_servers SET waits_since = 1").await;
        running.wait_for_status(&id, "ACTIVE").await;
        // A deletion does not wait.
        let id = running.boot(&cloud, "gone", "plain").await;
        wait_for_pause(&cloud, &id).await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        end(&cloud, &running, &neutron, &[]).await;
    }
}

/// The agent or the controller dies while the guest is paused, or the event arrives first.
#[tokio::test]
async fn a_paused_guest_runs_once_its_ports_are_plugged() {
    for (cloud, mut running, neutron) in
        clouds_with(&["a"], |options| options.vif_plugging_timeout = SignedDuration::from_secs(300))
            .await
    {
        // The agent and the controller die after the guest was started, and their successors receive the event.
        let id = running.boot(&cloud, "one", "plain").await;
        wait_for_pause(&cloud, &id).await;
        running.nodes.kill("a").await;
        running.replace_services(&cloud, CrashPlan::default()).await;
        running.start_node(&cloud, "a").await;
        assert_eq!(guest(&running, "a", &id).await, Some(DomainState::Paused));
        assert_eq!(running.server(&id).await["status"], "BUILD");
        let port = text(&port_of(&neutron, &id), "id");
        event(&running, &id, "network-vif-plugged", "completed", &port).await;
        running.wait_for_status(&id, "ACTIVE").await;

        // The event arrives while the agent is dead.
        let id = running.boot(&cloud, "two", "plain").await;
        wait_for_pause(&cloud, &id).await;
        running.nodes.kill("a").await;
        let port = text(&port_of(&neutron, &id), "id");
        event(&running, &id, "network-vif-plugged", "completed", &port).await;
        running.replace_services(&cloud, CrashPlan::default()).await;
        running.start_node(&cloud, "a").await;
        running.wait_for_status(&id, "ACTIVE").await;

        // The event arrives before the host has received the document.
        running.nodes.kill("a").await;
        let id = running.boot(&cloud, "three", "plain").await;
        wait_until("the document is delivered", async || {
            let sql = "SELECT body FROM documents WHERE held = 0";
            cloud.column(sql).await.iter().any(|body| body.contains(STARTS_PAUSED))
        })
        .await;
        cloud.wait_for_neutron().await;
        let port = text(&port_of(&neutron, &id), "id");
        event(&running, &id, "network-vif-plugged", "completed", &port).await;
        running.start_node(&cloud, "a").await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(guest(&running, "a", &id).await, Some(DomainState::Running));
        assert!(!cloud.column("SELECT body FROM documents").await.concat().contains(STARTS_PAUSED));

        // A controller of an earlier version has received the event.
        let id = running.boot(&cloud, "four", "plain").await;
        wait_for_pause(&cloud, &id).await;
        cloud.execute("UPDATE external_ports SET is_plugged = 1").await;
        running.wait_for_status(&id, "ACTIVE").await;

        // An agent of an earlier version does not pause the guest.
        running.nodes.kill("a").await;
        let id = running.boot(&cloud, "five", "plain").await;
        wait_until("the document is delivered", async || {
            cloud.column("SELECT server_id FROM documents WHERE held = 1").await.is_empty()
        })
        .await;
        running.report(&cloud, "a", &id, Outcome::Running).await;
        wait_for_pause(&cloud, &id).await;
        let port = text(&port_of(&neutron, &id), "id");
        event(&running, &id, "network-vif-plugged", "completed", &port).await;
        running.report(&cloud, "a", &id, Outcome::Running).await;
        running.wait_for_status(&id, "ACTIVE").await;
        running.start_node(&cloud, "a").await;
        end(&cloud, &running, &neutron, &[]).await;
    }
}

/// A guest does not fail because its ports cannot be read when its timeout expires: the call to Neutron is
/// repeated until it is answered, though not for ever.
#[tokio::test]
async fn a_late_guest_waits_while_neutron_is_away() {
    for (cloud, running, neutron) in
        clouds_with(&["a"], |options| options.vif_plugging_timeout = SignedDuration::from_secs(300))
            .await
    {
        let timeout = async |past: i64| {
            let since = time::before(time::now(), SignedDuration::from_secs(300 + past));
            let set = "UPDATE external_servers SET waits_since = ?1";
            let set = move |tx: &mut Tx<'_>| tx.execute(set, params![since]);
            cloud.store.write(set).await.expect("the row is written");
        };
        let asked = async || {
            wait_until("Neutron was asked twice", async || {
                let sql = "SELECT server_id FROM external_servers WHERE attempts >= 2";
                !cloud.column(sql).await.is_empty()
            })
            .await;
        };
        for plugs in [true, false] {
            let id = running.boot(&cloud, "one", "plain").await;
            wait_for_pause(&cloud, &id).await;
            cloud.wait_for_neutron().await;
            let port = text(&port_of(&neutron, &id), "id");
            neutron.die_after(0);
            timeout(10).await;
            asked().await;
            assert_eq!(running.server(&id).await["status"], "BUILD");
            assert_eq!(guest(&running, "a", &id).await, Some(DomainState::Paused));
            if plugs {
                neutron.heal();
                neutron.state().set_status(&port, "ACTIVE");
                running.wait_for_status(&id, "ACTIVE").await;
            } else {
                timeout(600).await;
                running.wait_for_status(&id, "ERROR").await;
                neutron.heal();
            }
            running.delete(&id).await;
            running.wait_until_gone(&id).await;
            cloud.wait_for_neutron().await;
        }
        end(&cloud, &running, &neutron, &[]).await;
    }
}

/// A running guest no longer waits: the sweep reads its ports once.
#[tokio::test]
async fn a_guest_that_runs_waits_for_no_port() {
    for (cloud, running, neutron) in
        clouds_with(&["a"], |options| options.vif_plugging_timeout = SignedDuration::from_secs(300))
            .await
    {
        let id = running.boot(&cloud, "one", "plain").await;
        wait_for_pause(&cloud, &id).await;
        let port = text(&port_of(&neutron, &id), "id");
        event(&running, &id, "network-vif-plugged", "completed", &port).await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.wait_for_neutron().await;
        for (status, plugged) in [
            ("ACTIVE", "UPDATE external_ports SET is_plugged = 1"),
            ("DOWN", "UPDATE external_ports SET is_plugged = 0"),
        ] {
            neutron.state().set_status(&port, status);
            cloud.execute(plugged).await;
            cloud.execute("UPDATE external_servers SET waits_since = 1").await;
            wait_until("the guest does not wait", async || {
                let sql = "SELECT server_id FROM external_servers WHERE waits_since IS NOT NULL";
                cloud.column(sql).await.is_empty()
            })
            .await;
            assert_eq!(running.server(&id).await["status"], "ACTIVE");
        }
        assert_eq!(guest(&running, "a", &id).await, Some(DomainState::Running));
        end(&cloud, &running, &neutron, &[]).await;
    }
}

/// Once an operator has reset the state, no operation waits for the ports: the guest runs, and nothing has failed.
#[tokio::test]
async fn a_paused_guest_without_an_operation_runs() {
    for (cloud, mut running, neutron) in
        clouds_with(&["a"], |options| options.vif_plugging_timeout = SignedDuration::from_secs(300))
            .await
    {
        let runs = async |running: &RunningCloud, id: &str| {
            wait_until("the guest runs", async || {
                guest(running, "a", id).await == Some(DomainState::Running)
            })
            .await;
            let sql = "SELECT server_id FROM external_servers WHERE waits_since IS NOT NULL";
            assert_eq!(cloud.column(sql).await, [""; 0]);
            running.wait_for_status(id, "ACTIVE").await;
        };
        let id = running.boot(&cloud, "one", "plain").await;
        wait_for_pause(&cloud, &id).await;
        cloud.wait_for_neutron().await;
        operate(&running, &id, json!({"os-resetState": {"state": "active"}})).await;
        runs(&running, &id).await;

        // A controller of an earlier version has reset the state, and the agent sends no report.
        let id = running.boot(&cloud, "two", "plain").await;
        wait_for_pause(&cloud, &id).await;
        cloud.wait_for_neutron().await;
        running.nodes.kill("a").await;
        let sql = "UPDATE operations SET outcome = 'cancelled', open_subject = NULL WHERE outcome = 'open'";
        cloud.execute(sql).await;
        cloud.execute("UPDATE servers SET vm_state = 'active', task_state = NULL").await;
        cloud.execute("UPDATE external_servers SET waits_since = 1").await;
        wait_until("the document requests a running guest", async || {
            !cloud.column("SELECT body FROM documents").await.concat().contains(STARTS_PAUSED)
        })
        .await;
        running.start_node(&cloud, "a").await;
        runs(&running, &id).await;
        end(&cloud, &running, &neutron, &[]).await;
    }
}

/// A build that an earlier version began waits while its guest runs.
#[tokio::test]
async fn a_build_that_an_earlier_version_began_ends() {
    for (cloud, running, neutron) in
        clouds_with(&["a"], |options| options.vif_plugging_timeout = SignedDuration::from_secs(300))
            .await
    {
        for fate in ["plugged", "late"] {
            let id = running.boot(&cloud, fate, "plain").await;
            wait_for_pause(&cloud, &id).await;
            let port = text(&port_of(&neutron, &id), "id");
            cloud.wait_for_neutron().await;
            cloud.execute("UPDATE external_servers SET waits_since = NULL").await;
            cloud
                .execute("UPDATE operations SET step = 'plug', data = '{}' WHERE outcome = 'open'")
                .await;
            let sql = "UPDATE documents SET body = REPLACE(body, '\"starts_paused\":true,', '')";
            cloud.execute(sql).await;
            if fate == "plugged" {
                event(&running, &id, "network-vif-plugged", "completed", &port).await;
                running.wait_for_status(&id, "ACTIVE").await;
            } else {
                cloud.execute("UPDATE operations SET updated_at = 0 WHERE step = 'plug'").await;
                running.wait_for_status(&id, "ERROR").await;
            }
        }
        end(&cloud, &running, &neutron, &[]).await;
    }
}

/// Upstream waits for ports where a guest is created anew, and where a resize is reverted. A migrated guest runs
/// immediately.
#[tokio::test]
async fn moves_wait_for_plugged_ports_where_upstream_does() {
    for (cloud, running, neutron) in clouds_with(&["a", "b"], |options| {
        options.vif_plugging_timeout = SignedDuration::from_secs(300);
    })
    .await
    {
        let mut boot = running.boot_request(&cloud, "one", "plain");
        boot["server"]["host"] = json!("a");
        let made = running.admin("2.90", "POST /servers", boot).await.expect(202);
        let id = text(&made["server"], "id");
        let plug = async || {
            wait_for_pause(&cloud, &id).await;
            let port = text(&port_of(&neutron, &id), "id");
            event(&running, &id, "network-vif-plugged", "completed", &port).await;
        };
        plug().await;
        running.wait_for_status(&id, "ACTIVE").await;

        operate(&running, &id, json!({"migrate": null})).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        assert_eq!(guest(&running, "b", &id).await, Some(DomainState::Running));
        operate(&running, &id, json!({"revertResize": null})).await;
        wait_for_pause(&cloud, &id).await;
        assert_eq!(guest(&running, "a", &id).await, Some(DomainState::Paused));
        assert_eq!(running.server(&id).await["OS-EXT-STS:task_state"], "resize_reverting");
        let path = format!("/kilonova/servers/{id}");
        let explained = running.get(ADMIN, "2.90", &path).await.expect(200);
        assert!(
            explained.to_string().contains("the ports of its guest are plugged"),
            "{explained}"
        );
        plug().await;
        running.wait_for_status(&id, "ACTIVE").await;

        running.force_down("a", true).await;
        let path = format!("POST /servers/{id}/action");
        running.admin("2.91", &path, json!({"evacuate": {}})).await.expect(200);
        wait_for_pause(&cloud, &id).await;
        assert_eq!(guest(&running, "b", &id).await, Some(DomainState::Paused));
        plug().await;
        running.wait_for_status(&id, "ACTIVE").await;
        running.force_down("a", false).await;
        running.wait_for_host_cleanup(&cloud).await;

        operate(&running, &id, json!({"shelve": null})).await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        operate(&running, &id, json!({"unshelve": {"host": "a"}})).await;
        wait_for_pause(&cloud, &id).await;
        assert_eq!(guest(&running, "a", &id).await, Some(DomainState::Paused));
        plug().await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(guest(&running, "a", &id).await, Some(DomainState::Running));
        end(&cloud, &running, &neutron, &[]).await;
    }
}

/// If unplugged ports are fatal, the move fails as if its destination had failed.
#[tokio::test]
async fn a_move_fails_if_its_ports_are_not_plugged() {
    for (cloud, running, neutron) in clouds_with(&["a", "b"], |options| {
        options.vif_plugging_timeout = SignedDuration::from_secs(300);
    })
    .await
    {
        let id = running.boot(&cloud, "one", "plain").await;
        let fate = async |status: &str| {
            wait_for_pause(&cloud, &id).await;
            let port = text(&port_of(&neutron, &id), "id");
            event(&running, &id, "network-vif-plugged", status, &port).await;
        };
        fate("completed").await;
        running.wait_for_status(&id, "ACTIVE").await;
        // Each host is tried.
        operate(&running, &id, json!({"shelve": null})).await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        operate(&running, &id, json!({"unshelve": null})).await;
        fate("failed").await;
        wait_until("the next host is tried", async || {
            let sql = "SELECT data FROM operations WHERE outcome = 'open' AND step = 'unshelve'";
            cloud.column(sql).await.concat().contains("Virtual Interface creation failed")
        })
        .await;
        wait_for_pause(&cloud, &id).await;
        cloud.execute("UPDATE external_servers SET waits_since = 1").await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        cloud.wait_for_neutron().await;
        operate(&running, &id, json!({"unshelve": null})).await;
        fate("completed").await;
        let server = running.wait_for_status(&id, "ACTIVE").await;
        let source = text(&server, "OS-EXT-SRV-ATTR:host");

        // A revert has only one host: the server is in ERROR, and its guest is shut off until it is rebooted.
        operate(&running, &id, json!({"migrate": null})).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        operate(&running, &id, json!({"revertResize": null})).await;
        fate("failed").await;
        let server = running.wait_for_status(&id, "ERROR").await;
        assert!(fault(&server).contains("Virtual Interface creation failed"), "{server}");
        wait_until("the guest is shut off", async || {
            guest(&running, &source, &id).await == Some(DomainState::Shutoff)
        })
        .await;
        operate(&running, &id, json!({"reboot": {"type": "HARD"}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(guest(&running, &source, &id).await, Some(DomainState::Running));
        end(&cloud, &running, &neutron, &[]).await;
    }
}

/// A point that two transactions reach before either commits, if the database runs both concurrently.
#[derive(Default)]
struct Meeting {
    came: Mutex<usize>,
    news: Condvar,
}

impl Meeting {
    fn join(&self) {
        let mut came = self.came.lock().expect("no holder panicked");
        *came += 1;
        self.news.notify_all();
        let longest = Duration::from_millis(500);
        drop(self.news.wait_timeout_while(came, longest, |came| *came < 2));
    }
}

/// The host's report and Neutron's event arrive at the same time, and neither transaction sees the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_build_ends_whatever_comes_first() {
    for (cloud, mut running, neutron) in
        clouds_with(&["a"], |options| options.vif_plugging_timeout = SignedDuration::from_secs(300))
            .await
    {
        running.nodes.kill("a").await;
        let id = running.boot(&cloud, "one", "plain").await;
        wait_until("the document is delivered", async || {
            !cloud.column("SELECT server_id FROM documents WHERE held = 0").await.is_empty()
        })
        .await;
        cloud.wait_for_neutron().await;
        let port = text(&port_of(&neutron, &id), "id");
        let server: ServerId = id.parse().expect("the id is a UUID");
        let meeting = Arc::new(Meeting::default());

        let (compute, point) = (running.compute.clone(), meeting.clone());
        let reported = running.compute.store.write(move |tx: &mut Tx<'_>| {
            let sql = "SELECT generation FROM documents WHERE server_id = ?1";
            let row = tx.row(sql, params![server])?.expect("the document exists");
            let report = Observation::new(server, row.int(0)?, Outcome::Paused);
            flows::observe(tx, &compute, &HostName::verbatim("a"), &report, time::now())?;
            point.join();
            Ok::<_, Error>(())
        });
        let (compute, point) = (running.compute.clone(), meeting);
        let plugged = running.compute.store.write(move |tx: &mut Tx<'_>| {
            let event = NetworkEvent::read(server, "network-vif-plugged", "completed", Some(&port));
            let event = event.expect("the event is known");
            external::observe(tx, &compute, &event, time::now())?;
            point.join();
            Ok::<_, Error>(())
        });
        let (reported, plugged) = tokio::join!(reported, plugged);
        reported.expect("the report is stored");
        plugged.expect("the event is stored");
        running.start_node(&cloud, "a").await;
        running.wait_for_status(&id, "ACTIVE").await;
        end(&cloud, &running, &neutron, &[]).await;
    }
}

/// Before a build fails, its ports are read. While another worker reads them, nothing is decided.
#[tokio::test]
async fn a_late_build_is_judged_by_what_neutron_says() {
    for (cloud, running, neutron) in
        clouds_with(&["a"], |options| options.vif_plugging_timeout = SignedDuration::from_secs(300))
            .await
    {
        let mut ids = Vec::new();
        for name in ["one", "two", "three"] {
            let id = running.boot(&cloud, name, "plain").await;
            wait_for_pause(&cloud, &id).await;
            ids.push(id);
        }
        cloud.wait_for_neutron().await;
        let taken = "UPDATE external_servers SET taken_until = 9000000000000000";
        cloud.execute(taken).await;
        cloud.execute("UPDATE external_servers SET waits_since = 1").await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        for id in &ids {
            assert_eq!(running.server(id).await["status"], "BUILD");
            let port = text(&port_of(&neutron, id), "id");
            neutron.state().set_status(&port, "ACTIVE");
        }
        cloud.execute("UPDATE external_servers SET taken_until = 0").await;
        for id in &ids {
            running.wait_for_status(id, "ACTIVE").await;
        }
        end(&cloud, &running, &neutron, &[]).await;
    }
}

#[tokio::test]
async fn a_build_goes_on_without_plugged_ports_where_that_is_not_fatal() {
    for (cloud, running, neutron) in clouds_with(&["a"], |options| {
        options.vif_plugging_timeout = SignedDuration::from_secs(300);
        options.vif_plugging_is_fatal = false;
    })
    .await
    {
        let id = running.boot(&cloud, "one", "plain").await;
        wait_for_pause(&cloud, &id).await;
        let port = text(&port_of(&neutron, &id), "id");
        event(&running, &id, "network-vif-plugged", "failed", &port).await;
        assert_eq!(running.server(&id).await["status"], "BUILD");
        cloud.execute("UPDATE external_servers SET waits_since = 1").await;
        running.wait_for_status(&id, "ACTIVE").await;
        end(&cloud, &running, &neutron, &[]).await;
    }
}
