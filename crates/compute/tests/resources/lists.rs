//! Lists of servers: filters, sorting, paging and deleted servers.

use jiff::Timestamp;
use kilonova_compute_db::servers;
use kilonova_ids::ServerId;
use kilonova_store::params;
use serde_json::{Value, json};

use crate::resources::kit::{ADMIN, ANN, Api, BOB, apis};

/// Servers by name: project, host, state, task, flavor, tags, memory, time of creation.
type Row = (
    &'static str,
    &'static str,
    Option<&'static str>,
    &'static str,
    Option<&'static str>,
    &'static str,
    &'static str,
    i64,
);
const SERVERS: &[Row] = &[
    ("web-1", "red", Some("h1"), "active", None, "small", r#"["a"]"#, 1),
    ("web-2", "red", Some("h2"), "stopped", None, "large", r#"["a","b"]"#, 2),
    ("DB_1", "red", Some("h1"), "active", Some("rebooting"), "small", "[]", 3),
    ("db-x", "red", None, "error", None, "large", r#"["b"]"#, 4),
    ("blue", "blue", Some("h1"), "active", None, "small", "[]", 5),
];

async fn fill(api: &Api) {
    for host in ["h1", "h2"] {
        api.host(host, Timestamp::UNIX_EPOCH).await;
    }
    for (name, project, host, state, task, flavor, tags, at) in SERVERS {
        let spec = json!({
            "flavor": {"id": flavor, "name": flavor, "vcpus": 1, "ram": at * 10, "disk": 1,
                "ephemeral": 0, "swap": 0, "extra_specs": {}},
            "image": null, "image_properties": {}, "key_name": null, "hostname": name,
            "config_drive": false, "user_data": null, "availability_zone": null,
            "wanted_host": null, "hints": {}, "reservation_id": "r-1", "launch_index": 0,
            "access": ["", ""], "disk_config": "MANUAL",
        })
        .to_string();
        api.store
            .write(move |tx| {
                tx.execute(
                    "INSERT INTO servers (id, project_id, user_id, name, host, vm_state, task_state,
                        power_state, vcpus, memory_mb, spec, metadata, tags, created_at, updated_at)
                     VALUES (?1, ?2, 'u', ?3, ?4, ?5, ?6, 1, 1, 64, ?7, '{}', ?8, ?9, ?9)",
                    params![
                        ServerId::new_v4(),
                        *project,
                        *name,
                        *host,
                        *state,
                        *task,
                        &spec,
                        *tags,
                        *at * 1_000_000
                    ],
                )
            })
            .await
            .expect("the row is inserted");
    }
}

async fn names(api: &Api, token: &str, query: &str) -> Vec<String> {
    let list = api.get(token, "2.100", &format!("/servers{query}")).await.expect(200);
    let name = |server: &Value| server["name"].as_str().expect("the value has a name").to_owned();
    list["servers"].as_array().expect("the answer has a list").iter().map(name).collect()
}

async fn set(api: &Api, name: &str, change: &str) {
    let sql = format!("UPDATE servers SET {change} WHERE name = ?1");
    let name = name.to_owned();
    let changed = api.store.write(move |tx| tx.execute(&sql, params![name.as_str()])).await;
    assert_eq!(changed.expect("the row is changed"), 1);
}

async fn remove(api: &Api, name: &str) {
    let name = name.to_owned();
    api.store
        .write(move |tx| {
            let row = tx.row("SELECT id FROM servers WHERE name = ?1", params![name.as_str()])?;
            servers::delete(tx, row.expect("the server exists").id(0)?)
        })
        .await
        .expect("the row is deleted");
}

#[tokio::test]
async fn each_filter_selects_its_servers() {
    for api in apis().await {
        fill(&api).await;
        for (query, want) in [
            ("", vec!["db-x", "DB_1", "web-2", "web-1"]),
            ("?name=DB", vec!["db-x", "DB_1"]),
            ("?name=db_", vec!["DB_1"]),
            ("?name=^web-%5B12%5D$", vec!["web-2", "web-1"]),
            ("?status=ACTIVE", vec!["DB_1", "web-1"]),
            ("?status=active&status=SHUTOFF", vec!["DB_1", "web-2", "web-1"]),
            ("?status=REBOOT", vec!["DB_1"]),
            ("?status=REBOOT&status=MIGRATING", vec!["DB_1"]),
            ("?status=REBOOT&status=WELL", vec!["DB_1"]),
            ("?status=REBOOT&status=ERROR", vec!["db-x", "DB_1", "web-1"]),
            ("?status=HARD_REBOOT", vec![]),
            ("?status=ERROR&vm_state=active", vec!["db-x"]),
            ("?status=REBOOT&task_state=none", vec!["DB_1"]),
            ("?status=ACTIVE&task_state=none", vec!["web-1"]),
            ("?flavor=small", vec!["DB_1", "web-1"]),
            ("?tags=a", vec!["web-2", "web-1"]),
            ("?tags=a,b", vec!["web-2"]),
            ("?tags-any=a,b", vec!["db-x", "web-2", "web-1"]),
            ("?not-tags=a,b", vec!["db-x", "DB_1", "web-1"]),
            ("?not-tags-any=a,b", vec!["DB_1"]),
            ("?vm_state=error", vec!["db-x"]),
            ("?task_state=rebooting", vec!["DB_1"]),
            ("?changes-since=1970-01-01T00:00:03Z", vec!["db-x", "DB_1"]),
            ("?changes-before=1970-01-01T00:00:02Z", vec!["web-2", "web-1"]),
            ("?created_at=1970-01-01T00:00:03", vec!["DB_1"]),
            ("?hostname=web-2", vec!["web-2"]),
            ("?ip=10.0.0.1", vec![]),
            ("?locked=true", vec![]),
        ] {
            assert_eq!(names(&api, ANN, query).await, want, "{query}");
        }
        for (token, version, matches) in [(ANN, "2.89", 4), (ANN, "2.90", 1)] {
            let list = api.get(token, version, "/servers?hostname=web-2").await.expect(200);
            assert_eq!(list["servers"].as_array().map(Vec::len), Some(matches), "{version}");
        }
        let list =
            api.get(ADMIN, "2.89", "/servers?all_tenants=1&hostname=web-2").await.expect(200);
        assert_eq!(list["servers"].as_array().map(Vec::len), Some(1), "administrators, always");
        for (query, want) in [
            ("?hostname=db", vec!["db-x", "DB_1"]),
            ("?hostname=^web-%5B1%5D$", vec!["web-1"]),
            ("?display_name=b_", vec!["DB_1"]),
            ("?node=1", vec!["DB_1", "web-1"]),
            ("?node=H%5B2%5D", vec!["web-2"]),
            ("?host=h", vec![]),
            ("?reservation_id=r-", vec!["db-x", "DB_1", "web-2", "web-1"]),
            ("?reservation_id=-$", vec![]),
            ("?key_name=.*", vec![]),
            ("?access_ip_v4=.*", vec![]),
            ("?locked_by=.*", vec![]),
            ("?display_description=.*", vec![]),
            ("?root_device_name=vda$", vec!["db-x", "DB_1", "web-2", "web-1"]),
            ("?root_device_name=sda", vec![]),
        ] {
            let query = format!("{query}&all_tenants=1&project_id=red");
            assert_eq!(names(&api, ADMIN, &query).await, want, "{query}");
        }
        let hosts = "?all_tenants=1&host=h1";
        assert_eq!(names(&api, ADMIN, hosts).await, ["blue", "DB_1", "web-1"]);
        assert_eq!(names(&api, ADMIN, "?all_tenants=1&project_id=blue").await, ["blue"]);
        for named in ["?project_id=blue", "?tenant_id=blue"] {
            assert!(names(&api, ADMIN, named).await.is_empty(), "{named} needs all_tenants");
        }
        assert_eq!(names(&api, ANN, "?host=h2").await.len(), 4, "only admins may filter by host");
        assert_eq!(names(&api, BOB, "?all_tenants=0").await, ["blue"]);
    }
}

#[tokio::test]
async fn servers_have_another_name_until_2_102() {
    for api in apis().await {
        fill(&api).await;
        let list = async |path: &str| api.get(ANN, "2.102", path).await.expect(200);
        let found = list("/os-volumes_boot?name=web&limit=1").await;
        assert_eq!(found, list("/servers?name=web&limit=1").await);
        assert_eq!(found["servers"][0]["name"], "web-2");
        let detail = list("/os-volumes_boot/detail").await;
        assert_eq!(detail["servers"].as_array().map(Vec::len), Some(4));
        let id = found["servers"][0]["id"].as_str().expect("the server has an id");
        let path = format!("/os-volumes_boot/{id}");
        assert_eq!(list(&path).await["server"]["name"], "web-2");
        let change = || Some(json!({"server": {"accessIPv4": "10.0.0.9"}}));
        let put = format!("PUT {path}");
        let changed = api.call(ANN, "2.1", &put, change()).await.expect(200);
        assert_eq!(changed["server"]["accessIPv4"], "10.0.0.9");
        let create = Some(json!({"server": {}}));
        api.call(ANN, "2.1", "POST /os-volumes_boot", create).await.refused(400, "server");
        let fly = Some(json!({"fly": null}));
        let act = format!("POST {path}/action");
        api.call(ANN, "2.1", &act, fly).await.refused(400, "fly");
        api.call(BOB, "2.1", &put, change()).await.refused(404, id);
        api.call(ANN, "2.1", &format!("PATCH {path}"), None).await.expect(405);
        api.get(ANN, "2.1", &format!("{path}/metadata")).await.expect(404);
        for path in ["/os-volumes_boot", "/os-volumes_boot/detail", &path] {
            let gone = "API version 2.103 is not supported on this method.";
            api.get(ANN, "2.103", path).await.refused(404, gone);
        }
    }
}

#[tokio::test]
async fn unknown_query_keys_of_sub_resources_are_refused_from_2_102_on() {
    for api in apis().await {
        fill(&api).await;
        let list = api.get(ANN, "2.100", "/servers?name=web-1").await.expect(200);
        let id = list["servers"][0]["id"].as_str().expect("the server has an id");
        for (part, status) in [("migrations", 200), ("migrations/1", 404), ("os-interface/x", 404)]
        {
            let path = format!("/servers/{id}/{part}?x=1");
            api.get(ADMIN, "2.101", &path).await.expect(status);
            api.get(ADMIN, "2.102", &path).await.refused(400, "'x' was unexpected");
        }
    }
}

#[tokio::test]
async fn paging_in_every_order() {
    for api in apis().await {
        fill(&api).await;
        let repeated = format!("{}sort_dir=asc&", "sort_key=vm_state&".repeat(1000));
        for (sort, want) in [
            (repeated.as_str(), ["web-1", "DB_1", "db-x", "web-2"]),
            (
                "sort_key=vm_state&sort_key=vm_state&sort_key=created_at&sort_dir=desc&sort_dir=desc&sort_dir=asc&",
                ["web-2", "db-x", "web-1", "DB_1"],
            ),
            ("", ["db-x", "DB_1", "web-2", "web-1"]),
            ("sort_key=created_at&sort_dir=asc&", ["web-1", "web-2", "DB_1", "db-x"]),
            ("sort_dir=asc&", ["web-1", "web-2", "DB_1", "db-x"]),
            ("sort_dir=desc&", ["db-x", "DB_1", "web-2", "web-1"]),
            ("sort_key=progress&sort_dir=asc&", ["web-1", "web-2", "DB_1", "db-x"]),
            ("sort_key=reservation_id&sort_dir=asc&", ["web-1", "web-2", "DB_1", "db-x"]),
            ("sort_key=vm_state&sort_dir=asc&", ["web-1", "DB_1", "db-x", "web-2"]),
            (
                "sort_key=vm_state&sort_key=created_at&sort_dir=asc&",
                ["web-1", "DB_1", "db-x", "web-2"],
            ),
            (
                "sort_key=vm_state&sort_key=created_at&sort_dir=desc&sort_dir=asc&",
                ["web-2", "db-x", "web-1", "DB_1"],
            ),
            ("sort_key=task_state&", ["DB_1", "db-x", "web-2", "web-1"]),
            ("sort_key=memory_mb&sort_dir=asc&", ["web-1", "web-2", "DB_1", "db-x"]),
            ("sort_key=progress&", ["db-x", "DB_1", "web-2", "web-1"]),
        ] {
            let mut path = format!("/servers?{sort}limit=1");
            let mut seen = Vec::new();
            loop {
                let page = api.get(ANN, "2.100", &path).await.expect(200);
                let Some(server) = page["servers"][0]["name"].as_str() else { break };
                seen.push(server.to_owned());
                let Some(next) = page["servers_links"][0]["href"].as_str() else { break };
                path = next
                    .split_once("/v2.1")
                    .expect("the answer has a link to the next page")
                    .1
                    .to_owned();
            }
            assert_eq!(seen, want, "{sort}");
        }
    }
}

#[tokio::test]
async fn unknown_values_are_refused() {
    for api in apis().await {
        for (query, part) in [
            ("?sort_key=colour", "sort_key"),
            ("?sort_key=created_at&sort_dir=up", "sort_dir"),
            ("?sort_dir=asc&sort_dir=desc", "Sort direction size exceeds sort key size"),
            ("?limit=-1", "limit"),
            ("?marker=nobody", "marker [nobody] not found"),
            ("?name=(", "name"),
            ("?key_name=(", "key_name"),
            ("?status=WELL", "Invalid status value"),
            ("?status=", "Invalid status value"),
            ("?changes-since=today", "changes-since"),
            ("?changes-since=2020-01-02&changes-before=2020-01-01", "changes-before"),
            ("?all_tenants=perhaps", "all_tenants"),
            ("?colour=red", "colour"),
            ("?locked=perhaps", "locked"),
        ] {
            api.get(ANN, "2.100", &format!("/servers{query}")).await.refused(400, part);
        }
        api.get(ANN, "2.74", "/servers?colour=red").await.expect(200);
        for query in ["?status=WELL", "?status="] {
            let list = api.get(ANN, "2.37", &format!("/servers{query}")).await.expect(200);
            assert_eq!(list, json!({"servers": []}), "{query}");
        }
        api.get(ANN, "2.100", "/servers?all_tenants=1").await.refused(403, "all_tenants");
        api.get(ANN, "2.100", "/servers?sort_key=host").await.refused(403, "host");
        let many = format!("/servers?{}", vec!["name=a"; 2001].join("&"));
        let refused = api.get(ANN, "2.100", &many).await;
        refused.refused(400, "has more than 2000 parameters");
        api.get(ANN, "2.100", "/servers?status=deleted").await.refused(403, "administrators");
    }
}

#[tokio::test]
async fn deleted_servers_are_listed_for_admins_on_request() {
    for api in apis().await {
        fill(&api).await;
        remove(&api, "web-2").await;
        assert_eq!(names(&api, ANN, "").await, ["db-x", "DB_1", "web-1"]);
        let gone = "?all_tenants=1&deleted=True";
        assert_eq!(names(&api, ADMIN, gone).await, ["web-2"]);
        assert_eq!(names(&api, ADMIN, "?all_tenants=1&status=DELETED").await, ["web-2"]);
        assert_eq!(
            names(&api, ANN, "?deleted=True").await.len(),
            3,
            "users do not see deleted servers"
        );
        let since = "?changes-since=2020-01-01T00:00:00Z";
        assert_eq!(names(&api, ANN, since).await, ["web-2"]);
        assert!(
            names(&api, ADMIN, &format!("{since}&deleted=False&project_id=red")).await.is_empty()
        );
        let list = api.get(ANN, "2.100", &format!("/servers/detail{since}")).await.expect(200);
        let server = &list["servers"][0];
        assert_eq!(
            (&server["status"], &server["OS-EXT-STS:vm_state"]),
            (&json!("DELETED"), &json!("deleted"))
        );
        assert!(server["OS-SRV-USG:terminated_at"].is_string(), "{server}");
    }
}

#[tokio::test]
async fn soft_deleted_servers_are_listed_on_request() {
    for api in apis().await {
        fill(&api).await;
        remove(&api, "web-2").await;
        set(&api, "web-1", "vm_state = 'soft-delete'").await;
        for (query, want) in [
            ("", vec!["db-x", "DB_1"]),
            ("&soft_deleted=1", vec!["db-x", "DB_1", "web-1"]),
            ("&soft_deleted=False", vec!["db-x", "DB_1", "web-1"]),
            ("&soft_deleted=", vec!["db-x", "DB_1"]),
            ("&deleted=False", vec!["db-x", "DB_1"]),
            ("&deleted=False&soft_deleted=1", vec!["db-x", "DB_1", "web-1"]),
            ("&deleted=True", vec!["web-2", "web-1"]),
            ("&deleted=True&limit=1", vec!["web-2"]),
            ("&deleted=True&soft_deleted=", vec!["web-2"]),
            ("&status=SOFT_DELETED", vec![]),
            ("&status=SOFT_DELETED&soft_deleted=1", vec!["web-1"]),
            ("&status=SOFT_DELETED&deleted=True", vec!["web-1"]),
            ("&status=DELETED", vec!["web-2"]),
            ("&status=DELETED&deleted=False", vec!["web-2"]),
            ("&status=DELETED&status=ERROR", vec!["db-x"]),
            ("&vm_state=deleted", vec![]),
            ("&vm_state=deleted&deleted=True", vec!["web-2"]),
            ("&changes-since=1970-01-01T00:00:00Z", vec!["db-x", "DB_1", "web-2", "web-1"]),
            ("&changes-since=1970-01-01T00:00:00Z&deleted=False", vec!["db-x", "DB_1"]),
        ] {
            let query = format!("?all_tenants=1&project_id=red{query}");
            assert_eq!(names(&api, ADMIN, &query).await, want, "{query}");
        }
        let since = "changes-since=1970-01-01T00:00:00Z";
        for (query, want) in [
            ("?soft_deleted=1", vec!["db-x", "DB_1"]),
            ("?deleted=True", vec!["db-x", "DB_1"]),
            ("?status=SOFT_DELETED", vec![]),
            ("?status=DELETED&status=ERROR", vec!["db-x"]),
            ("?vm_state=deleted", vec![]),
            (format!("?{since}").as_str(), vec!["db-x", "DB_1", "web-2", "web-1"]),
            (format!("?{since}&status=SOFT_DELETED").as_str(), vec!["web-1"]),
            (format!("?{since}&status=DELETED&status=ERROR").as_str(), vec!["db-x", "web-2"]),
        ] {
            assert_eq!(names(&api, ANN, query).await, want, "{query}");
        }
    }
}

#[tokio::test]
async fn filters_without_effect_are_refused_for_admins() {
    for api in apis().await {
        fill(&api).await;
        for field in [
            "block_device_mapping",
            "info_cache",
            "metadata",
            "pci_devices",
            "security_groups",
            "services",
            "system_metadata",
            "_info",
        ] {
            let path = format!("/servers?{field}=x");
            for version in ["2.1", "2.75"] {
                let wrong = format!("Invalid filter field: {field}.");
                api.get(ADMIN, version, &path).await.refused(400, &wrong);
                let list = api.get(ANN, version, &path).await.expect(200);
                assert_eq!(list["servers"].as_array().map(Vec::len), Some(4), "{field}");
            }
        }
        let image = "6f2a8a30-5c3b-4e3e-9d43-2f1c0d3a7b10";
        let change = format!("spec = REPLACE(spec, '\"image\":null', '\"image\":\"{image}\"')");
        set(&api, "web-1", &change).await;
        let query = format!("image_ref={image}");
        let all = format!("?all_tenants=1&{query}");
        assert_eq!(names(&api, ADMIN, &all).await, ["web-1"]);
        assert_eq!(names(&api, ANN, &format!("?{query}")).await.len(), 4, "a filter of admins");
    }
}
