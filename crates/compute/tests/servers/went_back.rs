//! A database that went back in time: a copy of its file is restored while the hosts keep running.

use std::sync::Arc;

use jiff::SignedDuration;
use kilonova_changes::Subscriber;
use kilonova_compute_app::Options;
use kilonova_node_api::{Outcome, REBUILT_STEP};
use kilonova_store::Store;
use kilonova_store::testing::CrashPlan;
use serde_json::json;

use super::networks::active_server_with_networks;
use super::resize::{admin, confirm_resize, failure, host_of};
use super::shelve;
use crate::kit::{ANN, Cloud, Controller, GPU, INTEL, RunningCloud, fault, hosts, wait_until};

/// A copy of the current database for [`go_back`]; `None` on PostgreSQL.
async fn copy(cloud: &Cloud) -> Option<Store> {
    let copied = cloud.copy().await;
    if copied.is_none() {
        kilonova_testkit::skip_part("PostgreSQL; scripts/failover.py loses its commits");
    }
    copied
}

/// Replaces the database by an earlier copy while the hosts keep running, and waits until those that have lost documents
/// have registered again.
async fn go_back(cloud: &mut Cloud, running: &mut RunningCloud, copied: Store, lost: &[&str]) {
    let epoch = |running: &RunningCloud, host: &str| {
        running.compute.fleet.by_name(host).expect("the host is known").epoch()
    };
    let before: Vec<i64> = lost.iter().map(|host| epoch(running, host)).collect();
    cloud.store = copied;
    let restored = Controller::open(cloud).await;
    running.compute = restored.compute.clone();
    running.renew_client();
    running.connect(Arc::new(restored.link()));
    wait_until("the hosts register again", async || {
        lost.iter().zip(&before).all(|(host, before)| epoch(running, host) > *before)
    })
    .await;
}

/// Deletes the server, and checks that the hosts keep no guest.
async fn delete(cloud: &Cloud, running: &RunningCloud, id: &str, hosts: &[&str]) {
    running.delete(id).await;
    running.wait_until_gone(id).await;
    running.wait_for_host_cleanup(cloud).await;
    for host in hosts {
        assert_eq!(cloud.files(host, "domains"), Vec::<String>::new(), "{host}");
    }
    cloud.audit("after the deletion").await;
}

fn has(cloud: &Cloud, host: &str, folder: &str, id: &str) -> bool {
    cloud.files(host, folder).iter().any(|name| name.starts_with(id))
}

/// Hosts reconcile with the restored documents even if newer generations were issued before their next
/// request. They miss no document, do not destroy a guest that has none, and create none in place of one that they have
/// removed.
#[tokio::test]
async fn hosts_reconcile_with_a_copy_that_is_put_back() {
    for (mut cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let Some(copied) = ({
            running.active_server(&cloud, "stopped", "plain").await;
            running.active_server(&cloud, "deleted", "plain").await;
            running.active_server(&cloud, "unneeded", "plain").await;
            copy(&cloud).await
        }) else {
            continue;
        };
        let ids = async |name: &str| {
            let servers = running.servers().await;
            let found = servers.iter().find(|server| server["name"] == name);
            found.expect("the server exists")["id"].as_str().expect("it has an id").to_owned()
        };
        let (stopped, deleted) = (ids("stopped").await, ids("deleted").await);
        let unneeded = ids("unneeded").await;
        running.act(&stopped, json!({"os-stop": null})).await;
        running.wait_for_status(&stopped, "SHUTOFF").await;
        let lost = running.active_server(&cloud, "lost", "plain").await;
        for gone in [&deleted, &unneeded] {
            running.delete(gone).await;
            running.wait_until_gone(gone).await;
        }
        running.wait_for_host_cleanup(&cloud).await;
        let before = running.compute.fleet.by_name("a").expect("the host is known").epoch();
        cloud.store = copied;
        let restored = Controller::open(&cloud).await;
        for name in ["one", "two", "three", "four", "five"] {
            let request = running.boot_request(&cloud, name, "plain");
            let made = restored.client.call(ANN, "2.90", "POST /servers", Some(request)).await;
            made.expect(202);
        }
        running.compute = restored.compute.clone();
        running.renew_client();
        running.connect(Arc::new(restored.link()));
        wait_until("the host registers again", async || {
            running.compute.fleet.by_name("a").is_some_and(|host| host.epoch() > before)
        })
        .await;
        wait_until(
            "every server whose guest still exists is active, and its guest runs",
            async || {
                let servers = running.wait_all_idle().await;
                let guests = cloud.files("a", "running");
                servers.len() == 8
                    && servers.iter().all(|server| {
                        let id = server["id"].as_str().expect("it has an id").to_owned();
                        let is_gone = id == deleted || id == unneeded;
                        let status = if is_gone { "ERROR" } else { "ACTIVE" };
                        server["status"] == status && guests.contains(&id) != is_gone
                    })
            },
        )
        .await;
        assert!(cloud.files("a", "running").contains(&lost), "an unknown guest is left alone");
        assert!(running.nodes.is_running("a"));
        let shown = running.server(&deleted).await;
        assert_eq!(shown["fault"]["message"], "The host has removed the guest.", "{shown}");
        assert!(fault(&shown).contains("a: removed: this host has removed the guest"), "{shown}");
        for gone in [&deleted, &unneeded] {
            assert!(!has(&cloud, "a", "domains", gone), "no empty guest replaces the removed one");
        }
        cloud.audit("after the copy was restored").await;
        running.delete(&deleted).await;
        running.wait_until_gone(&deleted).await;
        running.act(&unneeded, json!({"reboot": {"type": "HARD"}})).await;
        running.wait_for_status(&unneeded, "ACTIVE").await;
        assert!(has(&cloud, "a", "running", &unneeded), "a later document creates the guest");
        cloud.audit("after the deletion").await;
    }
}

/// A host that was installed anew has neither the guest nor its disk. It creates no empty guest for the document of the
/// boot, also when the server is in `ERROR`, is renamed, or its host begins again. A hard reboot does.
#[tokio::test]
async fn a_host_that_was_installed_anew_creates_no_empty_guest() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let nets = json!([{"uuid": net}]);
        let id = active_server_with_networks(&cloud, &running, "plain", nets, "a").await;
        running.nodes.kill("a").await;
        std::fs::remove_dir_all(cloud.nodes().join("a")).expect("the directory is removed");
        running.start_node(&cloud, "a").await;
        wait_until("the server is in ERROR", async || {
            running.server(&id).await["status"] == "ERROR"
        })
        .await;
        let shown = running.server(&id).await;
        assert!(fault(&shown).contains("neither the guest nor its root disk"), "{shown}");
        assert_eq!(cloud.files("a", "domains"), Vec::<String>::new());
        for name in ["begun again", "renamed"] {
            if name == "renamed" {
                rename(&running, &id, name).await;
                let bodies = cloud.column("SELECT body FROM documents").await;
                assert!(bodies.iter().any(|body| body.contains(name)), "{bodies:?}");
            } else {
                running.nodes.kill("a").await;
                running.start_node(&cloud, "a").await;
            }
            // The host has the document of another server only after that of this one.
            let other = running.active_server(&cloud, "other", "plain").await;
            assert!(!has(&cloud, "a", "domains", &id), "{name}");
            assert_eq!(running.server(&id).await["status"], "ERROR", "{name}");
            delete(&cloud, &running, &other, &["a"]).await;
        }
        running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        delete(&cloud, &running, &id, &["a"]).await;
    }
}

/// A task that does not create the guest does not let a host that was installed anew create an empty one either.
#[tokio::test]
async fn a_host_that_was_installed_anew_during_a_task_creates_no_empty_guest() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[])])).await {
        let id = running.active_server_on(&cloud, "a", "plain").await;
        // The migration waits for its destination, and has not changed the document of the source.
        running.nodes.kill("b").await;
        let live = json!({"os-migrateLive": {"host": "b", "block_migration": "auto"}});
        admin(&running, "2.90", &id, live).await.expect(202);
        assert_eq!(running.server(&id).await["OS-EXT-STS:task_state"], "migrating");
        running.nodes.kill("a").await;
        std::fs::remove_dir_all(cloud.nodes().join("a")).expect("the directory is removed");
        running.start_node(&cloud, "a").await;
        // The host has the document of another server only after that of this one.
        running.active_server_on(&cloud, "a", "plain").await;
        assert_eq!(running.server(&id).await["OS-EXT-STS:task_state"], "migrating");
        assert!(!has(&cloud, "a", "domains", &id), "an empty guest");
        cloud.audit("during the migration").await;
    }
}

/// Renames a server, and updates its document.
async fn rename(running: &RunningCloud, id: &str, name: &str) {
    let body = json!({"server": {"name": name}});
    running.call(ANN, "2.90", &format!("PUT /servers/{id}"), Some(body)).await.expect(200);
    let done = kilonova_compute_app::reconcile::networks::run(running.compute.clone()).await;
    done.expect("the loop succeeds");
}

/// The document of a guest names the host that it came from only until the next change, which may have to create the
/// guest anew after that host has removed it.
#[tokio::test]
async fn a_moved_guest_is_fetched_once() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let nets = json!([{"uuid": net}]);
        let id = active_server_with_networks(&cloud, &running, "plain", nets, "a").await;
        let names_source = async || {
            let bodies = cloud.column("SELECT body FROM documents").await;
            assert_eq!(bodies.len(), 1, "{bodies:?}");
            bodies[0].contains("\"from\":{")
        };
        for reboots in [true, false] {
            admin(&running, "2.90", &id, json!({"migrate": null})).await.expect(202);
            running.wait_for_status(&id, "VERIFY_RESIZE").await;
            confirm_resize(&running, &cloud, &id).await;
            running.wait_for_status(&id, "ACTIVE").await;
            assert!(names_source().await);
            if reboots {
                running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
                running.wait_for_status(&id, "ACTIVE").await;
                assert!(!names_source().await);
            } else {
                rename(&running, &id, "two").await;
                assert!(!names_source().await);
            }
        }
        delete(&cloud, &running, &id, &["a", "b"]).await;
    }
}

/// The rebuild that the disks of a guest belong to.
fn rebuilt(cloud: &Cloud, host: &str, id: &str) -> Option<String> {
    let xml = cloud.nodes().join(format!("{host}/domains/{id}.xml"));
    let xml = std::fs::read_to_string(xml).expect("the guest exists");
    let (_, rest) = xml.split_once("rebuilt='")?;
    rest.split_once('\'').map(|(operation, _)| operation.to_owned())
}

/// The host keeps the disks of a rebuild that the database has lost, also after a hard reboot. Another rebuild replaces
/// them.
#[tokio::test]
async fn a_server_whose_rebuild_was_lost_keeps_its_disks() {
    for (mut cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let rebuild = json!({"rebuild": {"imageRef": cloud.image}});
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.act(&id, rebuild.clone()).await;
        running.wait_for_status(&id, "ACTIVE").await;
        let Some(copied) = copy(&cloud).await else { continue };
        running.act(&id, rebuild.clone()).await;
        running.wait_for_status(&id, "ACTIVE").await;
        let kept = rebuilt(&cloud, "a", &id);
        go_back(&mut cloud, &mut running, copied, &["a"]).await;
        wait_until("the server is in ERROR", async || {
            running.server(&id).await["status"] == "ERROR"
        })
        .await;
        let shown = running.server(&id).await;
        assert_eq!(shown["fault"]["message"], "The host has rebuilt the guest.", "{shown}");
        assert!(fault(&shown).contains("a: rebuilt: this host has rebuilt the guest"), "{shown}");
        for reboots in [false, true] {
            if reboots {
                running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
                let shown = running.wait_until_idle(&id).await;
                assert_eq!(shown["status"], "ERROR", "{shown}");
                assert!(fault(&shown).contains("a: rebuilt: "), "{shown}");
            }
            assert_eq!(rebuilt(&cloud, "a", &id), kept);
            assert!(has(&cloud, "a", "running", &id), "the guest keeps running");
            cloud.audit("after the copy was restored").await;
        }
        running.act(&id, rebuild).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_ne!(rebuilt(&cloud, "a", &id), kept);
        cloud.assert_consistent(&running, "rebuilt again").await;
        delete(&cloud, &running, &id, &["a"]).await;
    }
}

/// The host keeps the disks of an unshelved guest, which are those of no rebuild, although the document that the database
/// went back to has an earlier rebuild.
#[tokio::test]
async fn a_server_whose_unshelve_was_lost_keeps_its_disks() {
    for (mut cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.act(&id, json!({"rebuild": {"imageRef": cloud.image}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        let Some(copied) = copy(&cloud).await else { continue };
        running.act(&id, json!({"shelve": null})).await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        running.act(&id, json!({"unshelve": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(rebuilt(&cloud, "a", &id), None);
        go_back(&mut cloud, &mut running, copied, &["a"]).await;
        wait_until("the server is in ERROR", async || {
            running.server(&id).await["status"] == "ERROR"
        })
        .await;
        running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
        let shown = running.wait_until_idle(&id).await;
        assert_eq!(shown["status"], "ERROR", "{shown}");
        assert!(fault(&shown).contains("a: rebuilt: "), "{shown}");
        assert_eq!(rebuilt(&cloud, "a", &id), None);
        assert!(has(&cloud, "a", "running", &id), "the guest keeps running");
        delete(&cloud, &running, &id, &["a"]).await;
    }
}

/// With `reclaim_instance_interval`, a server whose rebuild was lost is deleted permanently, because its host does not shut
/// the guest off.
#[tokio::test]
async fn a_server_whose_rebuild_was_lost_is_deleted_permanently() {
    let options = Options {
        reclaim_instance_interval: SignedDuration::from_secs(3600),
        ..Options::default()
    };
    for (mut cloud, mut running) in shelve::clouds(options).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let host = host_of(&running, &id).await;
        let Some(copied) = copy(&cloud).await else { continue };
        running.act(&id, json!({"rebuild": {"imageRef": cloud.image}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        go_back(&mut cloud, &mut running, copied, &[&host]).await;
        wait_until("the server is in ERROR", async || {
            running.server(&id).await["status"] == "ERROR"
        })
        .await;
        delete(&cloud, &running, &id, &[&host]).await;
    }
}

/// The host refuses the document of a server whose rebuild was lost, whether or not its guest should run.
#[tokio::test]
async fn a_server_whose_rebuild_was_lost_is_in_error() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        for action in [None, Some(("os-stop", "SHUTOFF")), Some(("suspend", "SUSPENDED"))] {
            let id = running.active_server(&cloud, "one", "plain").await;
            if let Some((action, status)) = action {
                running.act(&id, json!({action: null})).await;
                running.wait_for_status(&id, status).await;
            }
            let (step, message) = (REBUILT_STEP.to_owned(), "it is newer".to_owned());
            running.report(&cloud, "a", &id, Outcome::Failed { step, message }).await;
            let shown = running.wait_for_status(&id, "ERROR").await;
            assert_eq!(shown["fault"]["message"], "The host has rebuilt the guest.", "{shown}");
            assert!(fault(&shown).contains("a: rebuilt: it is newer"), "{shown}");
            running.act(&id, json!({"rebuild": {"imageRef": cloud.image}})).await;
            let shown = running.wait_until_idle(&id).await;
            assert_ne!(shown["status"], "ERROR", "a rebuild is the way out: {shown}");
            running.delete(&id).await;
            running.wait_until_gone(&id).await;
        }
        cloud.teardown(&running, "rebuilt").await;
    }
}

/// A database may lose the report of a host but keep the document that it answered. The host then has the newest
/// generation and nothing to report.
#[tokio::test]
async fn reports_that_the_database_lost_are_requested_again() {
    for restarts in [false, true] {
        for (cloud, mut running) in
            Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU]), ("c", &[INTEL])])).await
        {
            cloud.add_bitstreams().await;
            let resume = async |running: &mut RunningCloud| match restarts {
                true => running.replace_services(&cloud, CrashPlan::default()).await,
                false => {
                    running.compute.reload().await.expect("the rows are read");
                    running.compute.reloaded();
                }
            };
            let mut servers = Vec::new();
            // The first report of the second server is that of the order for its device.
            for flavor in ["plain", "loaded"] {
                let boot = async |running: &RunningCloud| {
                    servers.push(running.boot(&cloud, flavor, flavor).await);
                };
                running.lose_reports(1, boot).await;
                let id = servers.last().expect("it was requested").clone();
                assert_eq!(running.server(&id).await["status"], "BUILD", "{}", cloud.name);
                resume(&mut running).await;
                running.wait_for_status(&id, "ACTIVE").await;
            }
            running.act(&servers[0], json!({"resize": {"flavorRef": "vgpu"}})).await;
            running.wait_for_status(&servers[0], "VERIFY_RESIZE").await;
            let confirm = async |running: &RunningCloud| {
                let answer = running.try_act(&servers[0], json!({"confirmResize": null})).await;
                answer.expect(204);
            };
            running.lose_reports(1, confirm).await;
            resume(&mut running).await;
            running.wait_for_status(&servers[0], "ACTIVE").await;
            running.wait_for_host_cleanup(&cloud).await;
            let stop = async |running: &RunningCloud| {
                running.act(&servers[0], json!({"os-stop": null})).await
            };
            running.lose_reports(1, stop).await;
            assert_eq!(running.server(&servers[0]).await["status"], "ACTIVE");
            resume(&mut running).await;
            running.wait_for_status(&servers[0], "SHUTOFF").await;
            let delete = async |running: &RunningCloud| running.delete(&servers[0]).await;
            running.lose_reports(1, delete).await;
            resume(&mut running).await;
            running.wait_until_gone(&servers[0]).await;
            cloud.teardown(&running, "after lost reports").await;
            running.kill().await;
        }
    }
}

/// The destination has the only copy of the guest. The source does not get an empty one, even if the revert is requested
/// before the source has registered again, and even if its agent was restarted.
#[tokio::test]
async fn a_resize_whose_confirmation_was_lost_is_not_reverted() {
    for early in [false, true] {
        for (mut cloud, mut running) in
            Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await
        {
            let id = running.active_server(&cloud, "one", "vgpu").await;
            let source = host_of(&running, &id).await;
            admin(&running, "2.56", &id, json!({"migrate": null})).await.expect(202);
            running.wait_for_status(&id, "VERIFY_RESIZE").await;
            let dest = host_of(&running, &id).await;
            let Some(copied) = copy(&cloud).await else { continue };
            confirm_resize(&running, &cloud, &id).await;
            running.nodes.kill(&source).await;
            go_back(&mut cloud, &mut running, copied, &[]).await;
            assert_eq!(running.server(&id).await["status"], "VERIFY_RESIZE");
            if !early {
                running.start_node(&cloud, &source).await;
            }
            running.act(&id, json!({"revertResize": null})).await;
            if early {
                assert_eq!(running.server(&id).await["status"], "REVERT_RESIZE");
                running.start_node(&cloud, &source).await;
            }
            running.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(host_of(&running, &id).await, dest);
            assert!(has(&cloud, &dest, "running", &id), "the guest survives");
            assert_eq!(cloud.files(&source, "domains"), Vec::<String>::new());
            let why = failure(&running, &id).await;
            assert!(why.contains(&format!("{source} no longer has the guest")), "{why}");
            let again = running.try_act(&id, json!({"revertResize": null})).await;
            again.refused(409, "vm_state active");
            running.wait_for_host_cleanup(&cloud).await;
            cloud.audit("after the refusal").await;
            delete(&cloud, &running, &id, &[&source, &dest]).await;
        }
    }
}

/// The source has the only copy of the guest. A confirmation would remove it, so only a revert is possible.
#[tokio::test]
async fn a_resize_whose_revert_was_lost_is_only_reverted() {
    for (mut cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await
    {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let source = host_of(&running, &id).await;
        admin(&running, "2.56", &id, json!({"migrate": null})).await.expect(202);
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        let dest = host_of(&running, &id).await;
        let Some(copied) = copy(&cloud).await else { continue };
        running.act(&id, json!({"revertResize": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        go_back(&mut cloud, &mut running, copied, &[&source, &dest]).await;
        wait_until("the destination reports that it has no guest", async || {
            running.server(&id).await["OS-EXT-STS:power_state"] == 0
        })
        .await;
        assert_eq!(cloud.files(&dest, "domains"), Vec::<String>::new());
        let confirm = running.try_act(&id, json!({"confirmResize": null})).await;
        confirm.refused(409, "Revert the resize");
        running.act(&id, json!({"revertResize": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(host_of(&running, &id).await, source);
        assert!(has(&cloud, &source, "running", &id));
        running.wait_for_host_cleanup(&cloud).await;
        cloud.audit("after the second revert").await;
        delete(&cloud, &running, &id, &[&source, &dest]).await;
    }
}

/// Neither host has the guest of a resized server whose deletion was lost.
#[tokio::test]
async fn a_resized_server_whose_deletion_was_lost_is_in_error_after_a_revert() {
    for (mut cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await
    {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        admin(&running, "2.56", &id, json!({"migrate": null})).await.expect(202);
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        let Some(copied) = copy(&cloud).await else { continue };
        delete(&cloud, &running, &id, &["a", "b"]).await;
        go_back(&mut cloud, &mut running, copied, &["a", "b"]).await;
        wait_until("the destination reports that it has no guest", async || {
            running.server(&id).await["OS-EXT-STS:power_state"] == 0
        })
        .await;
        running.act(&id, json!({"revertResize": null})).await;
        let shown = running.wait_for_status(&id, "ERROR").await;
        assert_eq!(shown["fault"]["message"], "No host has the guest.", "{shown}");
        running.wait_for_host_cleanup(&cloud).await;
        cloud.audit("after the revert").await;
        delete(&cloud, &running, &id, &["a", "b"]).await;
    }
}

/// The image of the shelved server has its data; its host has nothing.
#[tokio::test]
async fn a_server_whose_offload_was_lost_is_offloaded_again() {
    let options =
        Options { shelved_offload_time: SignedDuration::from_secs(3600), ..Options::default() };
    for (mut cloud, mut running) in shelve::clouds(options).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        running.act(&id, json!({"shelve": null})).await;
        running.wait_for_status(&id, "SHELVED").await;
        let host = host_of(&running, &id).await;
        let Some(copied) = copy(&cloud).await else { continue };
        let offload = json!({"shelveOffload": null});
        admin(&running, "2.90", &id, offload.clone()).await.expect(202);
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        running.wait_for_host_cleanup(&cloud).await;
        go_back(&mut cloud, &mut running, copied, &[&host]).await;
        running.act(&id, json!({"unshelve": null})).await;
        running.wait_for_status(&id, "SHELVED").await;
        let why = failure(&running, &id).await;
        assert!(why.contains("neither the guest nor its root disk"), "{why}");
        assert_eq!(cloud.files(&host, "domains"), Vec::<String>::new());
        admin(&running, "2.90", &id, offload).await.expect(202);
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        running.act(&id, json!({"unshelve": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        running.wait_for_host_cleanup(&cloud).await;
        delete(&cloud, &running, &id, &["a", "b"]).await;
    }
}

/// The source of a lost live migration creates no second guest; the one at the destination keeps running.
#[tokio::test]
async fn a_server_whose_live_migration_was_lost_has_one_guest() {
    for (mut cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await
    {
        let id = running.active_server(&cloud, "one", "plain").await;
        let source = host_of(&running, &id).await;
        let Some(copied) = copy(&cloud).await else { continue };
        let live = json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
        admin(&running, "2.90", &id, live).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        running.wait_for_host_cleanup(&cloud).await;
        let dest = host_of(&running, &id).await;
        go_back(&mut cloud, &mut running, copied, &[&source, &dest]).await;
        wait_until("the server is in ERROR", async || {
            running.server(&id).await["status"] == "ERROR"
        })
        .await;
        assert_eq!(host_of(&running, &id).await, source);
        assert_eq!(cloud.files(&source, "domains"), Vec::<String>::new());
        assert!(has(&cloud, &dest, "running", &id), "the guest keeps running");
        cloud.audit("after the copy was restored").await;
    }
}

/// With `reclaim_instance_interval`, a server whose deletion was lost can be deleted again, although no guest is left that
/// could be shut off. A soft deletion that was open at the time becomes a permanent one.
#[tokio::test]
async fn a_server_whose_deletion_was_lost_is_deleted_again() {
    let options = Options {
        reclaim_instance_interval: SignedDuration::from_secs(3600),
        ..Options::default()
    };
    for pending in [false, true] {
        for (mut cloud, mut running) in shelve::clouds(options.clone()).await {
            let id = running.active_server(&cloud, "one", "vgpu").await;
            let host = host_of(&running, &id).await;
            if pending {
                let delete = async |running: &RunningCloud| running.delete(&id).await;
                running.lose_reports(1, delete).await;
            }
            let Some(copied) = copy(&cloud).await else { continue };
            running.act(&id, json!({"forceDelete": null})).await;
            running.wait_until_gone(&id).await;
            running.wait_for_host_cleanup(&cloud).await;
            go_back(&mut cloud, &mut running, copied, &[&host]).await;
            if !pending {
                wait_until("the server is in ERROR", async || {
                    running.server(&id).await["status"] == "ERROR"
                })
                .await;
                running.delete(&id).await;
            }
            running.wait_until_gone(&id).await;
            running.wait_for_host_cleanup(&cloud).await;
            assert_eq!(cloud.files(&host, "domains"), Vec::<String>::new());
            cloud.audit("after the second deletion").await;
        }
    }
}
