//! Servers with ports in an external Neutron and volumes in its Cinder. A host gets a document once both are ready.

use std::time::Duration;

use kilonova_compute_app::reconcile::slow;
use kilonova_ids::ServerId;
use kilonova_store::testing::CrashPlan;
use kilonova_testkit::cinder::{self, FakeCinder};
use kilonova_testkit::neutron::{Failure, FakeNeutron};
use serde_json::{Value, json};

use crate::kit::{ADMIN, Cloud, RunningCloud, hosts, wait_until};
use crate::servers::golden::insert_for;

/// The time that a slow service needs for a call.
const SLOW: Duration = Duration::from_millis(1500);

/// A running cloud with both services.
struct Both {
    cloud: Cloud,
    running: RunningCloud,
    neutron: FakeNeutron,
    cinder: FakeCinder,
}

impl Both {
    async fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for mut cloud in Cloud::all(hosts(&[("a", &[]), ("b", &[])])).await {
            let neutron = cloud.start_neutron().await;
            let cinder = cloud.start_cinder().await;
            let running = cloud.start_with_plan(CrashPlan::default()).await;
            running.wait_for_hosts().await;
            all.push(Self { cloud, running, neutron, cinder });
        }
        all
    }

    /// A bootable volume.
    fn volume(&self) -> String {
        let id = self.cinder.state().add_volume("red", 2, json!({"bootable": "true"}));
        self.cinder.state().use_iscsi(&id);
        id
    }

    /// Requests a server that boots from a volume. Returns its id, its host, and the other host.
    async fn boot(&self, volume: &str) -> (String, String, String) {
        let disks = json!([{
            "source_type": "volume", "destination_type": "volume", "boot_index": 0, "uuid": volume,
        }]);
        let more = json!({"imageRef": "", "block_device_mapping_v2": disks});
        let id = self.running.boot_with(&self.cloud, "one", "plain", more).await;
        let host = self.running.server(&id).await["OS-EXT-SRV-ATTR:host"].clone();
        let host = host.as_str().expect("the server has a host").to_owned();
        let other = if host == "a" { "b" } else { "a" };
        (id, host, other.to_owned())
    }

    async fn operate(&self, id: &str, action: Value) {
        let path = format!("POST /servers/{id}/action");
        let answer = self.running.call(ADMIN, "2.90", &path, Some(action)).await;
        assert!(answer.status.is_success(), "{} {}", answer.status, answer.body);
    }

    /// Waits until nothing is left to do in either service.
    async fn settled(&self) {
        self.cloud.wait_for_neutron().await;
        wait_until("nothing is left to do in Cinder", async || {
            let due = "SELECT server_id FROM volume_servers WHERE due_at IS NOT NULL";
            self.cloud.column(due).await.is_empty()
        })
        .await;
    }

    /// The only port of the server.
    fn port(&self) -> String {
        let ports = self.neutron.state().ports();
        assert_eq!(ports.len(), 1, "{ports:?}");
        ports[0]["id"].as_str().expect("an id").to_owned()
    }

    /// Checks that the server is on this host only, with its port and its volume.
    async fn assert_on(&self, id: &str, host: &str, volume: &str, when: &str) {
        self.settled().await;
        let server = self.running.server(id).await;
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], host, "{when}: {server}");
        let port = self.port();
        assert_eq!(self.neutron.state().hosts_of(&port), [host], "{when}");
        let attachments = self.cinder.state().attachments_of(volume);
        let hosts: Vec<&Value> =
            attachments.iter().map(|(_, one)| &one.connector["host"]).collect();
        assert_eq!(hosts, [host], "{when}: {attachments:?}");
        assert_eq!(self.cinder.state().status(volume), "in-use", "{when}");
        self.assert_guest(id, host, volume, when).await;
    }

    /// Checks that the guest on this host has its port and its volume.
    async fn assert_guest(&self, id: &str, host: &str, volume: &str, when: &str) {
        let path = self.cloud.nodes().join(host).join("domains").join(format!("{id}.xml"));
        let guest = std::fs::read_to_string(path).expect("the host has the guest");
        assert!(guest.contains(&self.port()), "{when}: {guest}");
        assert!(guest.contains(volume), "{when}: {guest}");
    }

    /// Waits until the document of a host waits for only one service, and checks that the host does
    /// not receive it.
    async fn assert_waits_for(&self, service: Service, host: &str, when: &str) {
        let wanted = match service {
            Service::Neutron => format!("{host} 1 0"),
            Service::Cinder => format!("{host} 0 1"),
        };
        let sql = "SELECT host || ' ' || CAST(held AS TEXT) || ' ' || CAST(lacks_volumes AS TEXT)
            FROM documents";
        wait_until(&format!("{when}: the document waits"), async || {
            self.cloud.column(sql).await.contains(&wanted)
        })
        .await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(self.cloud.files(host, "domains"), [""; 0], "{when}");
    }

    /// Makes one service answer late.
    fn delay(&self, service: Service) {
        self.delay_connection(service, "PUT attachments");
    }

    /// Makes one service answer late; `call` is the one with which Cinder connects the host.
    fn delay_connection(&self, service: Service, call: &str) {
        match service {
            Service::Neutron => {
                for call in ["PUT /ports", "POST /ports"] {
                    self.neutron.fail(call, Failure::Slow(SLOW), 1);
                }
            }
            Service::Cinder => {
                self.cinder.fail(call, cinder::Failure::Slow(SLOW), 1);
            }
        }
    }

    fn heal(&self) {
        self.neutron.heal();
        self.cinder.heal();
    }

    /// Deletes the server, and checks that nothing is left of it in either service.
    async fn end(&self, volume: &str, when: &str) {
        self.heal();
        self.cloud.teardown(&self.running, when).await;
        self.cloud.finish_volume_work(&self.running).await;
        self.cloud.wait_for_neutron().await;
        assert_eq!(self.neutron.state().ports(), Vec::<Value>::new(), "{when}");
        assert!(self.cinder.state().attachments().is_empty(), "{when}");
        assert_eq!(self.cinder.state().status(volume), "available", "{when}");
    }
}

/// The service that answers last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    Neutron,
    Cinder,
}

const SERVICES: [Service; 2] = [Service::Neutron, Service::Cinder];

#[tokio::test]
async fn a_boot_waits_for_both() {
    for both in Both::all().await {
        for last in SERVICES {
            let when = format!("{} {last:?}", both.cloud.name);
            let disk = both.volume();
            both.delay(last);
            let (id, from, _) = both.boot(&disk).await;
            both.assert_waits_for(last, &from, &when).await;
            both.running.wait_for_status(&id, "ACTIVE").await;
            both.assert_on(&id, &from, &disk, &when).await;
            for (action, status) in [("os-stop", "SHUTOFF"), ("os-start", "ACTIVE")] {
                both.running.act(&id, json!({action: null})).await;
                both.running.wait_for_status(&id, status).await;
            }
            both.assert_on(&id, &from, &disk, &when).await;
            both.cinder.state().take_freed();
            both.end(&disk, &when).await;
        }
    }
}

#[tokio::test]
async fn a_move_waits_for_both_and_takes_both() {
    for both in Both::all().await {
        let disk = both.volume();
        let (id, from, to) = both.boot(&disk).await;
        both.running.wait_for_status(&id, "ACTIVE").await;
        both.assert_on(&id, &from, &disk, "booted").await;
        for last in SERVICES {
            let when = |step: &str| format!("{} {last:?} {step}", both.cloud.name);
            let moved = when("migrated");
            both.delay(last);
            both.operate(&id, json!({"migrate": null})).await;
            both.assert_waits_for(last, &to, &moved).await;
            both.running.wait_for_status(&id, "VERIFY_RESIZE").await;
            both.heal();
            both.assert_on(&id, &to, &disk, &moved).await;
            both.delay(last);
            both.operate(&id, json!({"revertResize": null})).await;
            both.running.wait_for_status(&id, "ACTIVE").await;
            both.heal();
            both.assert_on(&id, &from, &disk, &when("reverted")).await;
        }
        assert_eq!(both.cinder.state().take_freed(), [""; 0], "never free");

        // The port cannot be bound there: the server stays, with its port and its volume.
        both.neutron.state().remove_agent(&to);
        both.operate(&id, json!({"migrate": null})).await;
        both.running.wait_for_status(&id, "ACTIVE").await;
        both.assert_on(&id, &from, &disk, "no binding").await;
        both.neutron.state().add_agent(&to);
        // The same happens if Cinder does not connect the host.
        both.cinder.fail("PUT attachments", cinder::Failure::Status(400), 1);
        both.operate(&id, json!({"migrate": null})).await;
        both.running.wait_for_status(&id, "ACTIVE").await;
        both.assert_on(&id, &from, &disk, "no connection").await;
        assert_eq!(both.cinder.state().take_freed(), [""; 0], "never free");

        both.operate(&id, json!({"migrate": null})).await;
        both.running.wait_for_status(&id, "VERIFY_RESIZE").await;
        both.operate(&id, json!({"confirmResize": null})).await;
        both.running.wait_for_status(&id, "ACTIVE").await;
        both.assert_on(&id, &to, &disk, "confirmed").await;
        both.end(&disk, "confirmed").await;
    }
}

#[tokio::test]
async fn a_live_migration_waits_for_both() {
    for both in Both::all().await {
        let disk = both.volume();
        let (id, from, to) = both.boot(&disk).await;
        both.running.wait_for_status(&id, "ACTIVE").await;
        both.assert_on(&id, &from, &disk, "booted").await;
        for (last, host) in SERVICES.into_iter().zip([&to, &from]) {
            let when = format!("{} {last:?}", both.cloud.name);
            both.delay_connection(last, "POST attachments");
            let live = json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
            both.operate(&id, live).await;
            both.assert_waits_for(last, host, &when).await;
            both.running.wait_for_status(&id, "ACTIVE").await;
            both.heal();
            both.assert_on(&id, host, &disk, &when).await;
        }
        assert_eq!(both.cinder.state().take_freed(), [""; 0], "never free");
        both.end(&disk, "live").await;
    }
}

/// A server that is deleted while its document waits leaves nothing in either service.
#[tokio::test]
async fn a_server_is_deleted_while_it_waits() {
    for both in Both::all().await {
        for last in SERVICES {
            let when = format!("{} {last:?}", both.cloud.name);
            let disk = both.volume();
            both.delay(last);
            let (id, from, _) = both.boot(&disk).await;
            both.assert_waits_for(last, &from, &when).await;
            both.running.delete(&id).await;
            both.running.wait_until_gone(&id).await;
            both.end(&disk, &when).await;
        }
    }
}

/// A client that sees that a server is gone may delete its networks and volumes immediately.
#[tokio::test]
async fn a_deleted_server_stays_until_both_have_released_it() {
    for both in Both::all().await {
        for last in SERVICES {
            let when = format!("{} {last:?}", both.cloud.name);
            let disk = both.volume();
            let (id, ..) = both.boot(&disk).await;
            both.running.wait_for_status(&id, "ACTIVE").await;
            both.settled().await;
            match last {
                Service::Neutron => {
                    both.neutron.fail("DELETE /ports", Failure::Slow(SLOW), 1);
                }
                Service::Cinder => {
                    both.cinder.fail("DELETE attachments", cinder::Failure::Slow(SLOW), 1);
                }
            }
            both.running.delete(&id).await;
            wait_until("the host has removed the guest", async || {
                both.cloud.column("SELECT step FROM operations WHERE outcome = 'open'").await
                    == ["release"]
            })
            .await;
            let shown = both.running.server(&id).await;
            assert_eq!(shown["OS-EXT-STS:task_state"], "deleting", "{when}: {shown}");
            assert!(both.cloud.column("SELECT id FROM consumers").await.is_empty(), "{when}");
            both.cloud.audit(&when).await;
            // Deletion is idempotent.
            both.running.delete(&id).await;
            both.running.wait_until_gone(&id).await;
            assert_eq!(both.neutron.state().ports(), Vec::<Value>::new(), "{when}");
            assert_eq!(both.cinder.state().status(&disk), "available", "{when}");
            both.end(&disk, &when).await;
        }
    }
}

/// The later of the two releases removes the server, even if both end at the same time.
#[tokio::test]
async fn releases_that_end_at_once_leave_no_server() {
    for both in Both::all().await {
        let mut servers = Vec::new();
        for _ in 0..8 {
            let disk = both.volume();
            let (id, ..) = both.boot(&disk).await;
            servers.push((id, disk));
        }
        for (id, _) in &servers {
            both.running.wait_for_status(id, "ACTIVE").await;
        }
        both.settled().await;
        for (id, _) in &servers {
            both.running.delete(id).await;
        }
        for (id, disk) in &servers {
            both.running.wait_until_gone(id).await;
            assert_eq!(both.cinder.state().status(disk), "available", "{}", both.cloud.name);
        }
        both.end(&servers[0].1, both.cloud.name).await;
    }
}

/// A service that is down delays a deletion, but does not prevent it.
#[tokio::test]
async fn a_deletion_ends_without_a_service_that_is_down() {
    for both in Both::all().await {
        let disk = both.volume();
        let (id, ..) = both.boot(&disk).await;
        both.running.wait_for_status(&id, "ACTIVE").await;
        both.settled().await;
        both.neutron.fail("DELETE /ports", Failure::Status(503), usize::MAX);
        both.running.delete(&id).await;
        wait_until("Cinder has released its volume", async || {
            both.cinder.state().status(&disk) == "available"
        })
        .await;
        slow::run(both.running.compute.clone()).await.expect("the periodic task succeeds");
        assert_eq!(both.running.server(&id).await["OS-EXT-STS:task_state"], "deleting");
        let age = "UPDATE operations SET updated_at = updated_at - 31000000 WHERE step = 'release'";
        both.cloud.execute(age).await;
        slow::run(both.running.compute.clone()).await.expect("the periodic task succeeds");
        assert!(both.running.server(&id).await.is_null(), "{}", both.cloud.name);
        assert_eq!(both.neutron.state().ports().len(), 1);
        both.end(&disk, both.cloud.name).await;
    }
}

#[tokio::test]
async fn a_release_that_cannot_be_read_keeps_no_other_from_its_end() {
    for both in Both::all().await {
        let (unreadable, gone) = (ServerId::new_v4(), ServerId::new_v4());
        for (server, data) in [(unreadable, "{}"), (gone, r#"{"host":"a"}"#)] {
            let row = ("delete".to_owned(), "release".to_owned(), data.to_owned());
            insert_for(&both.cloud.store, server, &row).await;
        }
        slow::run(both.running.compute.clone()).await.expect("the periodic task succeeds");
        let left = both.cloud.column("SELECT subject FROM operations WHERE outcome = 'open'").await;
        assert_eq!(left, [unreadable.to_string()], "{}", both.cloud.name);
        both.cloud.execute("DELETE FROM operations").await;
    }
}
