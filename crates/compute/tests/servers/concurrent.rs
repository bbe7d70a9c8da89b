//! Concurrent requests for the same devices and for the same server.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::kit::{ANN, Answer, Client, Cloud, FPGA, GPU, GPUS, RunningCloud, fault, hosts};

const CLIENTS: usize = 8;

async fn post(client: &Client, boot_request: Value) -> String {
    let answer = client.call(ANN, "2.90", "POST /servers", Some(boot_request)).await.expect(202);
    answer["server"]["id"].as_str().expect("the answer has an id").to_owned()
}

fn count_by_status(servers: &[Value]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for server in servers {
        *counts.entry(server["status"].as_str().unwrap_or_default()).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_boots_never_oversubscribe_vgpus() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        running.remove_quota_limits().await;
        let mut clients = JoinSet::new();
        for n in 0..CLIENTS {
            let (client, boot_request) =
                (Client::clone(&running), running.boot_request(&cloud, &format!("n{n}"), "vgpu"));
            clients.spawn(async move {
                for _ in 0..4 {
                    post(&client, boot_request.clone()).await;
                }
            });
        }
        while let Some(done) = clients.join_next().await {
            done.expect("the task does not panic");
        }
        let servers = running.wait_all_idle().await;
        let (room, asked) = (2 * GPUS as usize, 4 * CLIENTS);
        assert_eq!(
            count_by_status(&servers),
            BTreeMap::from([("ACTIVE", room), ("ERROR", asked - room)])
        );
        let refused = servers.iter().filter(|server| server["status"] == "ERROR");
        for server in refused {
            assert!(fault(server).starts_with("No valid host was found."), "{server}");
        }
        cloud.assert_consistent(&running, "concurrent boots").await;
        cloud.teardown(&running, "concurrent boots").await;
    }
}

/// Concurrent boots choose different devices, so the ledger refuses no candidate, and each boot is planned once. On one
/// thread, nothing runs between the choice of a place and the record of the intention.
#[tokio::test]
async fn concurrent_boots_do_not_choose_the_same_room() {
    let topology = [("a", &[GPU][..]), ("b", &[GPU]), ("c", &[GPU]), ("d", &[GPU])];
    for (cloud, running) in Cloud::all_running(hosts(&topology)).await {
        running.remove_quota_limits().await;
        let boots = (4 * GPUS) as usize;
        let mut clients = JoinSet::new();
        for n in 0..boots {
            let (client, boot_request) =
                (Client::clone(&running), running.boot_request(&cloud, &format!("n{n}"), "vgpu"));
            clients.spawn(async move { post(&client, boot_request).await });
        }
        clients.join_all().await;
        let servers = running.wait_all_idle().await;
        assert_eq!(count_by_status(&servers), BTreeMap::from([("ACTIVE", boots)]));
        let tally = &running.compute.tally;
        assert_eq!((tally.plans(), tally.refused()), (boots as u64, 0));
        cloud.assert_consistent(&running, "concurrent boots on one thread").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creates_and_deletes() {
    // Room for every server, in case no delete ends before the last create.
    let topology = [("a", &[GPU, FPGA][..]), ("b", &[GPU]), ("c", &[GPU]), ("d", &[GPU])];
    for (cloud, running) in Cloud::all_running(hosts(&topology)).await {
        running.remove_quota_limits().await;
        let mut clients = JoinSet::new();
        for (n, flavor) in (0..CLIENTS).zip(["vgpu", "fpga", "plain", "vgpu-pair"].iter().cycle()) {
            let (client, boot_request) =
                (Client::clone(&running), running.boot_request(&cloud, &format!("n{n}"), flavor));
            clients.spawn(async move {
                for round in 0..4 {
                    let id = post(&client, boot_request.clone()).await;
                    tokio::time::sleep(std::time::Duration::from_millis(round * 3)).await;
                    let path = format!("DELETE /servers/{id}");
                    client.call(ANN, "2.90", &path, None).await.expect(204);
                }
                post(&client, boot_request).await
            });
        }
        while let Some(done) = clients.join_next().await {
            done.expect("the task does not panic");
        }
        crate::kit::wait_until("the deleted servers are gone", async || {
            running.servers().await.len() == CLIENTS
                && running.wait_all_idle().await.len() == CLIENTS
        })
        .await;
        let servers = running.wait_all_idle().await;
        assert_eq!(
            count_by_status(&servers),
            BTreeMap::from([("ACTIVE", CLIENTS)]),
            "{servers:#?}"
        );
        cloud.assert_consistent(&running, "concurrent creates and deletes").await;
        cloud.teardown(&running, "concurrent creates and deletes").await;
    }
}

/// Makes all calls concurrently and returns the answers.
async fn call_concurrently(
    running: &RunningCloud,
    calls: &[(String, Option<Value>)],
) -> Vec<Answer> {
    let mut all = JoinSet::new();
    for (what, body) in calls.iter().cloned() {
        let client = Client::clone(running);
        all.spawn(async move { client.call(ANN, "2.90", &what, body).await });
    }
    all.join_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_actions_on_one_server() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let path = format!("POST /servers/{id}/action");
        for round in 0..5 {
            let call = |action: Value| (path.clone(), Some(action));
            let calls = [
                call(json!({"os-stop": null})),
                call(json!({"os-stop": null})),
                call(json!({"reboot": {"type": "SOFT"}})),
            ];
            let answers = call_concurrently(&running, &calls).await;
            let accepted = answers.iter().filter(|answer| answer.status == 202).count();
            assert!(accepted >= 1, "{round}: all were refused");
            for answer in answers.iter().filter(|answer| answer.status != 202) {
                assert_eq!(answer.status, 409, "{}", answer.body);
                assert!(answer.message().starts_with("Cannot '"), "{}", answer.body);
            }
            if running.wait_until_idle(&id).await["status"] == "SHUTOFF" {
                running.act(&id, json!({"os-start": null})).await;
            }
            running.wait_for_status(&id, "ACTIVE").await;
            cloud.assert_consistent(&running, "one action accepted").await;
        }
        cloud.teardown(&running, "two actions").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_deletes_and_actions_on_one_server() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        for _ in 0..5 {
            let id = running.active_server(&cloud, "one", "vgpu").await;
            let act = format!("POST /servers/{id}/action");
            let delete = format!("DELETE /servers/{id}");
            let calls = [
                (delete.clone(), None),
                (act.clone(), Some(json!({"os-stop": null}))),
                (delete, None),
                (act, Some(json!({"reboot": {"type": "HARD"}}))),
            ];
            for answer in call_concurrently(&running, &calls).await {
                let status = answer.status.as_u16();
                assert!([202, 204, 404, 409].contains(&status), "{status} {}", answer.body);
            }
            running.wait_until_gone(&id).await;
            cloud.assert_empty(&running, "deleted concurrently").await;
        }
    }
}

/// Five servers of one core are resized to four cores concurrently, within a quota of eleven cores:
/// two are accepted, and a later boot is refused.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_resizes_respect_the_quota() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[])])).await {
        let flavor =
            json!({"flavor": {"id": "four", "name": "four", "ram": 64, "vcpus": 4, "disk": 1}});
        running.admin("2.90", "POST /flavors", flavor).await.expect(200);
        let quota = json!({"quota_set": {"instances": -1, "cores": 11, "ram": -1}});
        running.admin("2.90", "PUT /os-quota-sets/red", quota).await.expect(200);
        let mut calls = Vec::new();
        for n in 0..5 {
            let id = running.active_server(&cloud, &format!("n{n}"), "plain").await;
            let resize = json!({"resize": {"flavorRef": "four"}});
            calls.push((format!("POST /servers/{id}/action"), Some(resize)));
        }
        let answers = call_concurrently(&running, &calls).await;
        let (accepted, refused): (Vec<_>, Vec<_>) =
            answers.iter().partition(|answer| answer.status == 202);
        assert_eq!((accepted.len(), refused.len()), (2, 3), "5 cores, and 3 more twice");
        for answer in refused {
            assert!(answer.message().starts_with("Quota exceeded for cores: "), "{}", answer.body);
        }
        let used = async || {
            let limits = running.get(ANN, "2.90", "/limits").await.expect(200);
            limits["limits"]["absolute"]["totalCoresUsed"].clone()
        };
        assert_eq!(used().await, 11, "reserved cores count as used");
        let boot_request = running.boot_request(&cloud, "more", "plain");
        let refused_boot = running.call(ANN, "2.90", "POST /servers", Some(boot_request)).await;
        refused_boot
            .refused(403, "Quota exceeded for cores: Requested 1, but already used 11 of 11 cores");

        let resized = running.wait_all_idle().await;
        let resized = resized.iter().filter(|server| server["status"] == "VERIFY_RESIZE");
        let big: Vec<&str> = resized.filter_map(|server| server["id"].as_str()).collect();
        assert_eq!(big.len(), 2);
        assert_eq!(used().await, 11);
        running.try_act(big[0], json!({"confirmResize": null})).await.expect(204);
        running.try_act(big[1], json!({"revertResize": null})).await.expect(202);
        running.wait_for_status(big[1], "ACTIVE").await;
        assert_eq!(used().await, 8, "one server has its old flavor again");

        running.wait_for_host_cleanup(&cloud).await;
        running.act(big[0], json!({"resize": {"flavorRef": "plain"}})).await;
        running.wait_for_status(big[0], "VERIFY_RESIZE").await;
        assert_eq!(used().await, 8, "a smaller size can still be reverted");
        running.try_act(big[0], json!({"confirmResize": null})).await.expect(204);
        assert_eq!(used().await, 5);
        cloud.assert_consistent(&running, "resized").await;
    }
}
