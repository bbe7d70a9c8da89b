//! The machine type that a host chooses for a guest goes with the server.

use serde_json::json;

use crate::kit::{Cloud, FPGA, GPU, RunningCloud, hosts, wait_until};
use crate::servers::resize::admin;

const OF_A: &str = "pc-q35-6.2";
const OF_B: &str = "pc-i440fx-7.2";

/// Sets the machine type that a host gives new guests.
fn choose(cloud: &Cloud, host: &str, machine_type: &str) {
    let folder = cloud.nodes().join(host);
    std::fs::create_dir_all(&folder).expect("the directory is created");
    std::fs::write(folder.join("machine_type"), machine_type).expect("the file is written");
}

/// Writes the machine type of a guest into its domain, whose agent is stopped.
fn write(cloud: &Cloud, host: &str, id: &str, machine_type: &str) {
    let file = cloud.nodes().join(host).join("domains").join(format!("{id}.xml"));
    let xml = std::fs::read_to_string(&file).expect("the guest is on the host");
    let kept =
        xml.lines().filter(|line| !line.contains("<os><type machine") && *line != "</domain>");
    let kept: String = kept.map(|line| format!("{line}\n")).collect();
    let os = format!("  <os><type machine='{machine_type}'/></os>\n</domain>\n");
    std::fs::write(&file, kept + &os).expect("the file is written");
}

/// The machine type of a guest on a host.
fn has(cloud: &Cloud, host: &str, id: &str) -> String {
    let file = cloud.nodes().join(host).join("domains").join(format!("{id}.xml"));
    let xml = std::fs::read_to_string(file).expect("the guest is on the host");
    let (_, rest) = xml.split_once("<os><type machine='").expect("it has a machine type");
    rest.split_once('\'').expect("the value ends").0.to_owned()
}

async fn recorded(cloud: &Cloud) -> Vec<String> {
    cloud.column("SELECT COALESCE(machine_type, '') FROM servers ORDER BY seq").await
}

async fn wait_for_host(running: &RunningCloud, id: &str, host: &str) {
    wait_until("the server is on the host", async || {
        running.server(id).await["OS-EXT-SRV-ATTR:host"] == host
    })
    .await;
}

async fn cold_migrate(cloud: &Cloud, running: &RunningCloud, id: &str, host: &str) {
    admin(running, "2.56", id, json!({"migrate": {"host": host}})).await.expect(202);
    running.wait_for_status(id, "VERIFY_RESIZE").await;
    admin(running, "2.56", id, json!({"confirmResize": null})).await.expect(204);
    running.wait_for_status(id, "ACTIVE").await;
    wait_until("only the new host has a document", async || {
        cloud.column("SELECT host FROM documents").await == [host]
    })
    .await;
}

#[tokio::test]
async fn a_guest_keeps_its_machine_type_on_every_host() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        choose(&cloud, "a", OF_A);
        choose(&cloud, "b", OF_B);
        let id = running.active_server_on(&cloud, "a", "plain").await;
        assert_eq!(has(&cloud, "a", &id), OF_A);
        assert_eq!(recorded(&cloud).await, [OF_A]);

        cold_migrate(&cloud, &running, &id, "b").await;
        assert_eq!(has(&cloud, "b", &id), OF_A, "cold migration");
        admin(&running, "2.56", &id, json!({"reboot": {"type": "HARD"}})).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(has(&cloud, "b", &id), OF_A, "hard reboot");

        choose(&cloud, "a", "pc-q35-9.0");
        let live = json!({"os-migrateLive": {"host": "a", "block_migration": "auto"}});
        admin(&running, "2.30", &id, live).await.expect(202);
        wait_for_host(&running, &id, "a").await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(has(&cloud, "a", &id), OF_A, "live migration");

        admin(&running, "2.56", &id, json!({"shelve": null})).await.expect(202);
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        let unshelve = json!({"unshelve": {"host": "b"}});
        admin(&running, "2.91", &id, unshelve).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(has(&cloud, "b", &id), OF_A, "unshelve");

        running.nodes.kill("b").await;
        running.force_down("b", true).await;
        admin(&running, "2.94", &id, json!({"evacuate": {}})).await.expect(200);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(has(&cloud, "a", &id), OF_A, "evacuation");
        running.start_node(&cloud, "b").await;
        running.force_down("b", false).await;
        wait_until("the old host has removed the guest", async || {
            cloud.column("SELECT host FROM documents").await == ["a"]
        })
        .await;
        assert_eq!(recorded(&cloud).await, [OF_A]);

        // A rebuild chooses the type anew, and the server keeps that one.
        let rebuild = json!({"rebuild": {"imageRef": cloud.image}});
        admin(&running, "2.56", &id, rebuild).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(has(&cloud, "a", &id), "pc-q35-9.0");
        assert_eq!(recorded(&cloud).await, ["pc-q35-9.0"]);
        cold_migrate(&cloud, &running, &id, "b").await;
        assert_eq!(has(&cloud, "b", &id), "pc-q35-9.0");

        let other = running.active_server_on(&cloud, "b", "plain").await;
        assert_eq!(has(&cloud, "b", &other), OF_B, "a new guest has the type of its host");
        cloud.teardown(&running, "moved").await;
    }
}

/// The agent of an earlier version reports no type. Once it is updated, it reports those of the guests that it has.
#[tokio::test]
async fn a_starting_agent_reports_the_types_of_its_guests() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[FPGA])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        assert_eq!(recorded(&cloud).await, [""], "the host has chosen none");
        running.nodes.kill("a").await;
        write(&cloud, "a", &id, OF_A);
        running.start_node(&cloud, "a").await;
        wait_until("the type is recorded", async || recorded(&cloud).await == [OF_A]).await;
        cloud.teardown(&running, "reported").await;
    }
}

/// Only the host of a server reports its type: not the source of a resize, unless the resize is reverted.
#[tokio::test]
async fn the_type_is_that_of_the_guest_on_the_host_of_the_server() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        choose(&cloud, "a", OF_A);
        let id = running.active_server_on(&cloud, "a", "plain").await;
        admin(&running, "2.56", &id, json!({"migrate": {"host": "b"}})).await.expect(202);
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        assert_eq!(recorded(&cloud).await, [OF_A]);
        running.nodes.kill("b").await;
        write(&cloud, "b", &id, OF_B);
        running.start_node(&cloud, "b").await;
        wait_until("the destination's type is recorded", async || recorded(&cloud).await == [OF_B])
            .await;
        running.nodes.kill("a").await;
        running.start_node(&cloud, "a").await;
        running.active_server_on(&cloud, "a", "plain").await;
        assert_eq!(recorded(&cloud).await, [OF_B, OF_A], "the source has reported");
        admin(&running, "2.56", &id, json!({"revertResize": null})).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(recorded(&cloud).await, [OF_A, OF_A]);
        assert_eq!(has(&cloud, "a", &id), OF_A);
        cloud.teardown(&running, "reverted").await;
    }
}

/// A guest that its host has lost is created anew with the type that it had.
#[tokio::test]
async fn a_guest_that_is_created_anew_keeps_its_type() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        choose(&cloud, "a", OF_A);
        let id = running.active_server_on(&cloud, "a", "plain").await;
        choose(&cloud, "a", OF_B);
        running.nodes.kill("a").await;
        let folder = cloud.nodes().join("a");
        for file in
            [folder.join("domains").join(format!("{id}.xml")), folder.join("running").join(&id)]
        {
            std::fs::remove_file(file).expect("the file is removed");
        }
        running.start_node(&cloud, "a").await;
        wait_until("the lost guest is reported", async || {
            running.server(&id).await["status"] == "ERROR"
        })
        .await;
        admin(&running, "2.56", &id, json!({"reboot": {"type": "HARD"}})).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(has(&cloud, "a", &id), OF_A);
        cloud.teardown(&running, "created anew").await;
    }
}

/// An evacuation that ends a rebuild has the type of the new image's host.
#[tokio::test]
async fn a_rebuild_that_an_evacuation_ends_forgets_the_type() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        choose(&cloud, "a", OF_A);
        choose(&cloud, "b", OF_B);
        let id = running.active_server_on(&cloud, "a", "plain").await;
        running.nodes.kill("a").await;
        let rebuild = json!({"rebuild": {"imageRef": cloud.image}});
        admin(&running, "2.56", &id, rebuild).await.expect(202);
        assert_eq!(recorded(&cloud).await, [""]);
        running.force_down("a", true).await;
        admin(&running, "2.94", &id, json!({"evacuate": {}})).await.expect(200);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(has(&cloud, "b", &id), OF_B);
        running.start_node(&cloud, "a").await;
        running.force_down("a", false).await;
        wait_until("the old host has removed the guest", async || {
            cloud.column("SELECT host FROM documents").await == ["b"]
        })
        .await;
        assert_eq!(recorded(&cloud).await, [OF_B]);
        cloud.teardown(&running, "evacuated").await;
    }
}
