//! Many at once: requests that want the same devices, and two that want the same server.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::kit::{ANN, Answer, Client, Cloud, FPGA, GPU, GPUS, Up, fault, hosts};

const CLIENTS: usize = 8;

async fn post(client: &Client, wish: Value) -> String {
    let answer = client.call(ANN, "2.90", "POST /servers", Some(wish)).await.expect(202);
    answer["server"]["id"].as_str().expect("an id").to_owned()
}

fn count(servers: &[Value]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for server in servers {
        *counts.entry(server["status"].as_str().unwrap_or_default()).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn more_want_a_vgpu_than_there_are() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        up.lift_quota().await;
        let mut clients = JoinSet::new();
        for n in 0..CLIENTS {
            let (client, wish) = (Client::clone(&up), up.wish(&cloud, &format!("n{n}"), "vgpu"));
            clients.spawn(async move {
                for _ in 0..4 {
                    post(&client, wish.clone()).await;
                }
            });
        }
        while let Some(done) = clients.join_next().await {
            done.expect("no panic");
        }
        let servers = up.settle().await;
        let (room, asked) = (2 * GPUS as usize, 4 * CLIENTS);
        assert_eq!(count(&servers), BTreeMap::from([("ACTIVE", room), ("ERROR", asked - room)]));
        let refused = servers.iter().filter(|server| server["status"] == "ERROR");
        for server in refused {
            assert!(fault(server).starts_with("No valid host was found."), "{server}");
        }
        cloud.sound(&up, "the rush").await;
        cloud.sweep(&up, "the rush").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn creates_and_deletes_of_many() {
    // Room for all that are there at once, should no delete be through before the last create.
    let topology = [("a", &[GPU, FPGA][..]), ("b", &[GPU]), ("c", &[GPU]), ("d", &[GPU])];
    for (cloud, up) in Cloud::all_up(hosts(&topology)).await {
        up.lift_quota().await;
        let mut clients = JoinSet::new();
        for (n, flavor) in (0..CLIENTS).zip(["vgpu", "fpga", "plain", "vgpu-pair"].iter().cycle()) {
            let (client, wish) = (Client::clone(&up), up.wish(&cloud, &format!("n{n}"), flavor));
            clients.spawn(async move {
                for round in 0..4 {
                    let id = post(&client, wish.clone()).await;
                    tokio::time::sleep(std::time::Duration::from_millis(round * 3)).await;
                    let path = format!("DELETE /servers/{id}");
                    client.call(ANN, "2.90", &path, None).await.expect(204);
                }
                post(&client, wish).await
            });
        }
        while let Some(done) = clients.join_next().await {
            done.expect("no panic");
        }
        crate::kit::patiently("the deleted gone", async || {
            up.servers().await.len() == CLIENTS && up.settle().await.len() == CLIENTS
        })
        .await;
        let servers = up.settle().await;
        assert_eq!(count(&servers), BTreeMap::from([("ACTIVE", CLIENTS)]), "{servers:#?}");
        cloud.sound(&up, "the bustle").await;
        cloud.sweep(&up, "the bustle").await;
    }
}

/// All calls at once; returns how each was answered.
async fn at_once(up: &Up, calls: &[(String, Option<Value>)]) -> Vec<Answer> {
    let mut all = JoinSet::new();
    for (what, body) in calls.iter().cloned() {
        let client = Client::clone(up);
        all.spawn(async move { client.call(ANN, "2.90", &what, body).await });
    }
    all.join_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_actions_on_one_server() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let id = up.active(&cloud, "one", "vgpu").await;
        let path = format!("POST /servers/{id}/action");
        for round in 0..5 {
            let call = |action: Value| (path.clone(), Some(action));
            let calls = [
                call(json!({"os-stop": null})),
                call(json!({"os-stop": null})),
                call(json!({"reboot": {"type": "SOFT"}})),
            ];
            let answers = at_once(&up, &calls).await;
            let taken = answers.iter().filter(|answer| answer.status == 202).count();
            assert!(taken >= 1, "{round}: all were refused");
            for answer in answers.iter().filter(|answer| answer.status != 202) {
                assert_eq!(answer.status, 409, "{}", answer.body);
                assert!(answer.message().starts_with("Cannot '"), "{}", answer.body);
            }
            if up.rest(&id).await["status"] == "SHUTOFF" {
                up.act(&id, json!({"os-start": null})).await;
            }
            up.becomes(&id, "ACTIVE").await;
            cloud.sound(&up, "one won").await;
        }
        cloud.sweep(&up, "two actions").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deletes_and_actions_on_one_server() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        for _ in 0..5 {
            let id = up.active(&cloud, "one", "vgpu").await;
            let act = format!("POST /servers/{id}/action");
            let delete = format!("DELETE /servers/{id}");
            let calls = [
                (delete.clone(), None),
                (act.clone(), Some(json!({"os-stop": null}))),
                (delete, None),
                (act, Some(json!({"reboot": {"type": "HARD"}}))),
            ];
            for answer in at_once(&up, &calls).await {
                let status = answer.status.as_u16();
                assert!([202, 204, 404, 409].contains(&status), "{status} {}", answer.body);
            }
            up.goes(&id).await;
            cloud.empty(&up, "deleted among others").await;
        }
    }
}

/// Twenty cores, four servers of one: of five that grow to four cores at once, and of boots beside
/// them, only as many may as the quota has room for.
#[tokio::test(flavor = "multi_thread")]
async fn resizes_at_once_do_not_outrun_the_quota() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[]), ("b", &[])])).await {
        let flavor =
            json!({"flavor": {"id": "four", "name": "four", "ram": 64, "vcpus": 4, "disk": 1}});
        up.admin("2.90", "POST /flavors", flavor).await.expect(200);
        let quota = json!({"quota_set": {"instances": -1, "cores": 11, "ram": -1}});
        up.admin("2.90", "PUT /os-quota-sets/red", quota).await.expect(200);
        let mut calls = Vec::new();
        for n in 0..5 {
            let id = up.active(&cloud, &format!("n{n}"), "plain").await;
            let resize = json!({"resize": {"flavorRef": "four"}});
            calls.push((format!("POST /servers/{id}/action"), Some(resize)));
        }
        let answers = at_once(&up, &calls).await;
        let (taken, refused): (Vec<_>, Vec<_>) =
            answers.iter().partition(|answer| answer.status == 202);
        assert_eq!((taken.len(), refused.len()), (2, 3), "5 cores, and 3 more twice");
        for answer in refused {
            assert!(answer.message().starts_with("Quota exceeded for cores: "), "{}", answer.body);
        }
        let used = async || {
            let limits = up.get(ANN, "2.90", "/limits").await.expect(200);
            limits["limits"]["absolute"]["totalCoresUsed"].clone()
        };
        assert_eq!(used().await, 11, "what is reserved is used");
        let wish = up.wish(&cloud, "more", "plain");
        let late = up.call(ANN, "2.90", "POST /servers", Some(wish)).await;
        late.refused(403, "Quota exceeded for cores: Requested 1, but already used 11 of 11 cores");

        let resized = up.settle().await;
        let resized = resized.iter().filter(|server| server["status"] == "VERIFY_RESIZE");
        let big: Vec<&str> = resized.filter_map(|server| server["id"].as_str()).collect();
        assert_eq!(big.len(), 2);
        assert_eq!(used().await, 11);
        up.try_act(big[0], json!({"confirmResize": null})).await.expect(204);
        up.try_act(big[1], json!({"revertResize": null})).await.expect(202);
        up.becomes(big[1], "ACTIVE").await;
        assert_eq!(used().await, 8, "one is back to its old size");

        up.hosts_have_dropped(&cloud).await;
        up.act(big[0], json!({"resize": {"flavorRef": "plain"}})).await;
        up.becomes(big[0], "VERIFY_RESIZE").await;
        assert_eq!(used().await, 8, "a smaller size can still be reverted");
        up.try_act(big[0], json!({"confirmResize": null})).await.expect(204);
        assert_eq!(used().await, 5);
        cloud.sound(&up, "resized").await;
    }
}
