//! Limits and quotas.

use jiff::Timestamp;
use kilonova_compute_app::Error;
use kilonova_compute_app::usage::{self, ProjectUsage};
use kilonova_compute_db::counted;
use kilonova_compute_db::servers::{self, PowerState, VmState};
use kilonova_ids::ServerId;
use kilonova_store::{Tx, params};
use kilonova_wire::Refusal;
use serde_json::json;

use crate::resources::kit::{ADMIN, ANN, Api, apis, insert};

#[tokio::test]
async fn defaults_match_nova() {
    for api in apis().await {
        let set = api.get(ANN, "2.57", "/os-quota-sets/red").await.expect(200);
        assert_eq!(
            set,
            json!({"quota_set": {
                "id": "red", "cores": 20, "instances": 10, "ram": 51200, "key_pairs": 100,
                "metadata_items": 128, "server_group_members": 10, "server_groups": 10,
            }})
        );
        let old = api.get(ANN, "2.56", "/os-quota-sets/red/defaults").await.expect(200);
        assert_eq!(old["quota_set"]["injected_file_content_bytes"], 10240);
        assert!(old["quota_set"].get("floating_ips").is_none());
        let oldest = api.get(ANN, "2.1", "/os-quota-sets/red").await.expect(200);
        assert_eq!(oldest["quota_set"]["floating_ips"], -1);
        api.get(ANN, "2.57", "/os-quota-sets/blue").await.refused(403, "os-quota-sets:show");
        api.get(ANN, "2.57", "/os-quota-sets/blue/detail")
            .await
            .refused(403, "os-quota-sets:detail");
        api.get(ANN, "2.75", "/os-quota-sets/red?a=b").await.refused(400, "'a' was unexpected");
    }
}

#[tokio::test]
async fn limits_of_projects_and_users_override_each_other() {
    for api in apis().await {
        let put = json!({"quota_set": {"cores": "30", "instances": -1}});
        let set = api.admin("2.57", "PUT /os-quota-sets/red", put).await.expect(200);
        assert_eq!(
            (&set["quota_set"]["cores"], &set["quota_set"]["instances"]),
            (&json!(30), &json!(-1))
        );
        assert!(set["quota_set"].get("id").is_none());
        let put = json!({"quota_set": {"cores": 5}});
        api.admin("2.57", "PUT /os-quota-sets/red?user_id=ann", put).await.expect(200);
        let cores = async |path: &str| {
            api.get(ADMIN, "2.57", path).await.expect(200)["quota_set"]["cores"].clone()
        };
        assert_eq!(cores("/os-quota-sets/red?user_id=ann").await, 5);
        assert_eq!(cores("/os-quota-sets/red").await, 30);
        let put = json!({"quota_set": {"cores": 31}});
        api.admin("2.57", "PUT /os-quota-sets/red?user_id=ann", put)
            .await
            .refused(400, "Quota limit 31 for cores must be less than or equal to 30.");
        let set = async |who: &str, cores: i64, force: bool| {
            let put = json!({"quota_set": {"cores": cores, "force": force}});
            api.admin("2.57", &format!("PUT /os-quota-sets/red{who}"), put).await
        };
        let (ann, eve) = ("?user_id=ann", "?user_id=eve");
        let above = |cores: i64, most: i64| {
            format!("Quota limit {cores} for cores must be less than or equal to {most}.")
        };
        // The users share the project's limit.
        set(eve, 26, false).await.refused(400, &above(26, 25));
        set(eve, 25, false).await.expect(200);
        set(ann, 6, false).await.refused(400, &above(6, 5));
        set(eve, 10, false).await.expect(200);
        set(ann, 20, false).await.expect(200);
        set("", 29, false).await.refused(
            400,
            "Quota limit 29 for cores must be greater than or equal to already used and reserved 30.",
        );
        // As in Nova, nothing bounds the limits of users who have more than the project.
        set("", 29, true).await.expect(200);
        set(ann, 50, false).await.expect(200);
        set("", 30, false).await.expect(200);
        set(ann, 5, true).await.expect(200);
        api.call(ADMIN, "2.57", &format!("DELETE /os-quota-sets/red{eve}"), None).await.expect(202);
        api.call(ADMIN, "2.57", "DELETE /os-quota-sets/red?user_id=ann", None).await.expect(202);
        assert_eq!(cores("/os-quota-sets/red?user_id=ann").await, 30);
        api.call(ADMIN, "2.57", "DELETE /os-quota-sets/red", None).await.expect(202);
        assert_eq!(cores("/os-quota-sets/red").await, 20);
        api.call(ANN, "2.57", "DELETE /os-quota-sets/red", None).await.refused(403, "delete");
        let put = Some(json!({"quota_set": {"cores": 1}}));
        api.call(ANN, "2.57", "PUT /os-quota-sets/red", put).await.refused(403, "update");
    }
}

#[tokio::test]
async fn a_limit_below_the_usage_must_be_forced() {
    for api in apis().await {
        api.server("red", "ann", "h", 4, 512).await;
        let put = json!({"quota_set": {"cores": 3}});
        api.admin("2.57", "PUT /os-quota-sets/red", put).await.refused(
            400,
            "Quota limit 3 for cores must be greater than or equal to already used and reserved 4.",
        );
        let put = json!({"quota_set": {"cores": 3, "force": "True"}});
        api.admin("2.57", "PUT /os-quota-sets/red", put).await.expect(200);
        let detail = api.get(ANN, "2.57", "/os-quota-sets/red/detail").await.expect(200);
        assert_eq!(detail["quota_set"]["cores"], json!({"limit": 3, "in_use": 4, "reserved": 0}));
        assert_eq!(detail["quota_set"]["instances"]["in_use"], 1);
        let other = api.get(ANN, "2.57", "/os-quota-sets/red/detail?user_id=eve").await.expect(200);
        assert_eq!(other["quota_set"]["cores"]["in_use"], 0);
    }
}

#[tokio::test]
async fn invalid_limits_are_refused() {
    for api in apis().await {
        for (set, part) in [
            (json!({"cores": -2}), "cores"),
            (json!({"cores": "x"}), "cores"),
            (json!({"cores": "-2"}), "cores"),
            (json!({"cores": 2_147_483_648_i64}), "cores"),
            (json!({"cores": null}), "cores"),
            (json!({"gpus": 1}), "gpus"),
            (json!({"fixed_ips": 1}), "fixed_ips"),
            (json!({"injected_files": 1}), "injected_files"),
            (json!({"force": "maybe"}), "force"),
        ] {
            let body = json!({"quota_set": set});
            api.admin("2.57", "PUT /os-quota-sets/red", body).await.refused(400, part);
        }
        let body = json!({"quota_set": {"injected_files": 1}});
        api.admin("2.56", "PUT /os-quota-sets/red", body).await.expect(200);
        let answer = api.admin("2.57", "PUT /os-quota-sets/red", json!({})).await;
        assert_eq!(answer.status.as_u16(), 400);
    }
}

#[tokio::test]
async fn the_default_class_applies_to_every_project() {
    for api in apis().await {
        let put = json!({"quota_class_set": {"cores": 7}});
        let path = "/os-quota-class-sets/default";
        let set = api.admin("2.57", &format!("PUT {path}"), put.clone()).await.expect(200);
        assert_eq!(set["quota_class_set"]["cores"], 7);
        let set = api.get(ADMIN, "2.49", path).await.expect(200);
        assert_eq!(set["quota_class_set"]["id"], "default");
        assert!(set["quota_class_set"].get("server_groups").is_none());
        assert_eq!(set["quota_class_set"]["fixed_ips"], -1);
        let set = api.get(ANN, "2.57", "/os-quota-sets/red").await.expect(200);
        assert_eq!(set["quota_set"]["cores"], 7);
        api.get(ANN, "2.57", path).await.refused(403, "os-quota-class-sets:show");
        api.call(ANN, "2.57", &format!("PUT {path}"), Some(put)).await.refused(403, "update");
        let put = json!({"quota_class_set": {"cores": -2}});
        api.admin("2.57", &format!("PUT {path}"), put).await.refused(400, "cores");
        let put = json!({"quota_class_set": {"cores": 1}});
        let long = format!("PUT /os-quota-class-sets/{}", "x".repeat(256));
        api.admin("2.57", &long, put).await.refused(400, "quota_class_name");
    }
}

#[tokio::test]
async fn limits_show_maxima_and_usage() {
    for api in apis().await {
        api.server("red", "ann", "h", 4, 512).await;
        let limits = api.get(ANN, "2.57", "/limits?reserved=False").await.expect(200);
        assert_eq!(
            limits,
            json!({"limits": {"rate": [], "absolute": {
                "maxTotalCores": 20, "maxTotalInstances": 10, "maxTotalKeypairs": 100,
                "maxServerMeta": 128, "maxTotalRAMSize": 51200, "maxServerGroups": 10,
                "maxServerGroupMembers": 10, "totalRAMUsed": 512, "totalCoresUsed": 4,
                "totalInstancesUsed": 1, "totalServerGroupsUsed": 0,
            }}})
        );
        let old = api.get(ANN, "2.1", "/limits").await.expect(200);
        assert_eq!(old["limits"]["absolute"]["maxImageMeta"], 128);
        assert_eq!(old["limits"]["absolute"]["maxSecurityGroups"], -1);
        let other = api.get(ADMIN, "2.57", "/limits?tenant_id=red").await.expect(200);
        assert_eq!(other, limits);
        api.get(ANN, "2.57", "/limits?tenant_id=blue").await.refused(403, "other_project");
        api.get(ANN, "2.75", "/limits?reserved=False").await.refused(400, "'reserved'");
    }
}

async fn check(api: &Api, instances: i64, cores: i64) -> Result<(), String> {
    let wanted = ProjectUsage { instances, cores, ram: 0 };
    let answer = api.store.write(move |tx| usage::check(tx, "red", "ann", wanted)).await;
    answer.map_err(|error| Refusal::from(error).message)
}

#[tokio::test]
async fn boots_over_several_limits_name_all_of_them() {
    for api in apis().await {
        api.server("red", "ann", "h", 18, 512).await;
        assert_eq!(check(&api, 1, 2).await, Ok(()));
        assert_eq!(
            check(&api, 1, 3).await.unwrap_err(),
            "Quota exceeded for cores: Requested 3, but already used 18 of 20 cores"
        );
        assert_eq!(
            check(&api, 10, 3).await.unwrap_err(),
            "Quota exceeded for instances, cores: Requested 10, 3, but already used 1, 18 of 10, 20 \
             instances, cores"
        );
        api.store
            .write(|tx| kilonova_compute_db::quotas::put(tx, "red", Some("ann"), "instances", 1))
            .await
            .expect("the quota is set");
        assert!(check(&api, 1, 1).await.is_err_and(|why| why.contains("instances")));
    }
}

/// After any change of servers, committed or rolled back, the usage of a project equals that of its
/// servers.
#[tokio::test]
async fn the_counted_usage_matches_the_servers() {
    for api in apis().await {
        for size in 1..=6 {
            api.server("red", "ann", "h", size, 64 * size).await;
        }
        api.server("blue", "bob", "h", 3, 64).await;
        for step in 0..200_usize {
            let done = api.store.write(move |tx| change(tx, step)).await;
            assert_eq!(done.is_err(), step % 5 == 4, "{step}");
            if step % 40 == 0 {
                api.server("red", "eve", "h", 2, 128).await;
            }
            let (rule, sql) = counted::AUDIT;
            let wrong = api.store.read(move |tx| tx.rows(sql, params![])).await;
            let wrong: Vec<_> = wrong.expect("the query succeeds");
            assert!(wrong.is_empty(), "after step {step}, this rule is broken: {rule}: {wrong:?}");
        }
        let uses = |sql: &'static str| api.store.read(move |tx| tx.row(sql, params![]));
        let rows = uses(
            "SELECT CAST(SUM(vcpus) AS BIGINT) FROM servers WHERE project_id = 'red' AND vm_state
             <> 'soft-delete'",
        );
        let real = rows
            .await
            .expect("the query succeeds")
            .and_then(|row| row.int_opt(0).expect("the value is a number"));
        let limits = api.get(ANN, "2.57", "/limits").await.expect(200);
        assert_eq!(limits["limits"]["absolute"]["totalCoresUsed"], real.unwrap_or(0));
    }
}

/// Changes one of the servers; every fifth change is rolled back.
fn change(tx: &mut Tx<'_>, step: usize) -> Result<(), Error> {
    let ids = tx.rows("SELECT id FROM servers ORDER BY seq", params![])?;
    let Some(row) = ids.get((step * 7) % ids.len().max(1)) else { return Err(Error::Outdated) };
    let server = servers::find(tx, row.id(0)?)?.expect("the server exists");
    let (id, now) = (server.id, Timestamp::UNIX_EPOCH);
    match (step * 13) % 8 {
        0 | 1 => servers::set_state(tx, id, VmState::SoftDeleted, None, PowerState::Shutdown, now)?,
        2 => servers::set_state(tx, id, VmState::Active, None, PowerState::Running, now)?,
        3 => {
            let fault = kilonova_compute_db::servers::Fault {
                code: 500,
                message: "no".into(),
                created: now,
                details: None,
            };
            servers::set_error(tx, id, &fault, now)?;
        }
        4 | 5 => {
            let more = (step % 9) as i64;
            let flavor = kilonova_compute_db::servers::FlavorOf {
                vcpus: more,
                ram: 10 * more,
                ..server.spec.flavor.clone()
            };
            servers::set_flavor(tx, &server, &flavor, now)?;
        }
        6 => usage::check(tx, "red", "ann", ProjectUsage::default())?,
        _ if ids.len() > 4 => {
            servers::delete(tx, id)?;
        }
        _ => servers::set_built(tx, id, PowerState::Running, now)?,
    }
    if step % 5 == 4 { Err(Error::Outdated) } else { Ok(()) }
}

/// Concurrent boots and deletes never exceed the limit, and boots can use the quota that deletes release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_never_exceed_the_limit() {
    for api in apis().await {
        for _ in 0..6 {
            api.server("red", "ann", "h", 1, 1).await;
        }
        let ids = api.store.read(|tx| tx.rows("SELECT id FROM servers ORDER BY seq", params![]));
        let ids = ids.await.expect("the query succeeds");
        let mut tasks = Vec::new();
        for task in 0..12 {
            let store = api.store.clone();
            let id: ServerId = ids[task / 3].id(0).expect("the answer has an id");
            tasks.push(tokio::spawn(async move {
                if task % 3 == 0 {
                    let gone = store.write(move |tx| servers::delete(tx, id));
                    gone.await.expect("the server is deleted");
                    return 0;
                }
                let wanted = ProjectUsage { instances: 1, cores: 1, ram: 1 };
                let taken = store.write(move |tx| {
                    usage::take(tx, "red", "ann", wanted)?;
                    insert(tx, "red", "ann", 1, 1)
                });
                i64::from(taken.await.is_ok())
            }));
        }
        let mut taken = 0;
        for task in tasks {
            taken += task.await.expect("the task does not panic");
        }
        let used = api
            .store
            .read(|tx| counted::of_project(tx, "red"))
            .await
            .expect("the usage is counted");
        assert!((4..=8).contains(&taken), "{taken} boots were accepted");
        assert_eq!(used.instances, 6 - 4 + taken);
        let (_, sql) = counted::AUDIT;
        let wrong =
            api.store.read(move |tx| tx.rows(sql, params![])).await.expect("the query succeeds");
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
