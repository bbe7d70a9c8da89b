//! Every action of `POST /servers/{id}/action` on suitable servers, at each microversion at which
//! that action changes.

use serde_json::{Value, json};

use crate::compute::api::{ADMIN, ALL, Api, exchange};
use crate::compute::cloud::Cloud;

/// Runs an action and waits for the server's status after it.
async fn act(api: Api<'_>, id: &str, action: Value, code: u16, then: &str) -> Value {
    let answer = api.send(&format!("POST /servers/{id}/action"), action, ALL, code).await;
    api.becomes(id, then).await;
    api.cloud.hosts_have_dropped().await;
    answer.unwrap_or_default()
}

/// Expects a refusal that upstream also returns.
async fn refused(api: Api<'_>, id: &str, action: Value, code: u16) {
    api.refused(&format!("POST /servers/{id}/action"), action, code).await;
}

/// Actions that keep a server on its host.
pub async fn stay(api: Api<'_>) {
    let changing = ["lock", "unlock", "createImage", "createBackup", "rebuild", "rescue", "reboot"];
    if !api.changes(&changing) && !api.changes(&["trigger_crash_dump", "pause", "suspend"]) {
        return;
    }
    let flavor = api.flavor("stay").await;
    let id = api.server("stay", &flavor).await;
    for (action, then) in [
        ("pause", "PAUSED"),
        ("unpause", "ACTIVE"),
        ("suspend", "SUSPENDED"),
        ("resume", "ACTIVE"),
        ("os-stop", "SHUTOFF"),
        ("os-start", "ACTIVE"),
    ] {
        act(api, &id, json!({action: null}), 202, then).await;
    }
    for kind in ["SOFT", "HARD"] {
        act(api, &id, json!({"reboot": {"type": kind}}), 202, "ACTIVE").await;
    }
    let why = if api.minor >= 73 { json!({"locked_reason": "a test"}) } else { Value::Null };
    act(api, &id, json!({"lock": why}), 202, "ACTIVE").await;
    act(api, &id, json!({"unlock": null}), 202, "ACTIVE").await;
    let rescue = json!({"adminPass": "secret", "rescue_image_ref": api.cloud.image});
    let answer = act(api, &id, json!({"rescue": rescue}), 200, "RESCUE").await;
    api.expect(&answer["adminPass"] == "secret", "the password of a rescue");
    act(api, &id, json!({"unrescue": null}), 202, "ACTIVE").await;
    pictures(api, &id).await;
    rebuild(api, &id).await;
    let console = json!({"os-getConsoleOutput": {"length": 5}});
    let answer = act(api, &id, console, 200, "ACTIVE").await;
    api.expect(answer["output"].is_string(), "the console's lines");
    if api.minor >= 17 {
        act(api, &id, json!({"trigger_crash_dump": null}), 202, "ACTIVE").await;
    } else {
        refused(api, &id, json!({"trigger_crash_dump": null}), 404).await;
    }
    act(api, &id, json!({"os-resetState": {"state": "error"}}), 202, "ERROR").await;
    act(api, &id, json!({"os-resetState": {"state": "active"}}), 202, "ACTIVE").await;
    api.gone(&id).await;
}

async fn pictures(api: Api<'_>, id: &str) {
    let image = json!({"createImage": {"name": "picture", "metadata": {"k": "v"}}});
    let backup = json!({"createBackup": {"name": "b", "backup_type": "daily", "rotation": 1}});
    for action in [image, backup] {
        let answer = act(api, id, action, 202, "ACTIVE").await;
        api.expect(answer["image_id"].is_string() == (api.minor >= 45), "image_id since 2.45");
    }
}

async fn rebuild(api: Api<'_>, id: &str) {
    let mut sent = json!({
        "imageRef": api.cloud.image, "name": "rebuilt", "adminPass": "secret",
        "metadata": {"a": "b"}, "OS-DCF:diskConfig": "AUTO", "accessIPv4": "192.0.2.1",
        "accessIPv6": "2001:db8::1", "preserve_ephemeral": false,
    });
    for (first, key, value) in [
        (19, "description", json!("d")),
        (54, "key_name", Value::Null),
        (57, "user_data", json!("Zm9v")),
        (63, "trusted_image_certificates", Value::Null),
        (90, "hostname", json!("rebuilt")),
    ] {
        if api.minor >= first {
            sent[key] = value;
        } else {
            let mut early = json!({"imageRef": api.cloud.image});
            early[key] = value;
            refused(api, id, json!({"rebuild": early}), 400).await;
        }
    }
    if api.minor == 94 {
        sent["hostname"] = json!("rebuilt.example.com");
    }
    act(api, id, json!({"rebuild": sent}), 202, "ACTIVE").await;
}

/// Actions that move a server to another host.
pub async fn moves(api: Api<'_>) {
    let changing = ["resize", "confirmResize", "revertResize", "migrate", "os-migrateLive"];
    if !api.changes(&changing) {
        return;
    }
    let flavor = api.flavor("moves").await;
    let larger = api.flavor("larger").await;
    let id = api.server("moves", &flavor).await;
    let resize = json!({"resize": {"flavorRef": larger, "OS-DCF:diskConfig": "AUTO"}});
    act(api, &id, resize.clone(), 202, "VERIFY_RESIZE").await;
    act(api, &id, json!({"revertResize": null}), 202, "ACTIVE").await;
    act(api, &id, resize, 202, "VERIFY_RESIZE").await;
    act(api, &id, json!({"confirmResize": null}), 204, "ACTIVE").await;
    act(api, &id, json!({"migrate": null}), 202, "VERIFY_RESIZE").await;
    act(api, &id, json!({"confirmResize": null}), 204, "ACTIVE").await;
    if api.minor >= 56 {
        let there = json!({"migrate": {"host": api.other_host(&id).await}});
        act(api, &id, there, 202, "VERIFY_RESIZE").await;
        act(api, &id, json!({"confirmResize": null}), 204, "ACTIVE").await;
    }
    live(api, &id).await;
    api.gone(&id).await;
}

async fn live(api: Api<'_>, id: &str) {
    let mut sent = json!({"host": null, "block_migration": false, "disk_over_commit": false});
    if api.minor >= 25 {
        sent = json!({"host": null, "block_migration": "auto"});
    }
    act(api, id, json!({"os-migrateLive": sent}), 202, "ACTIVE").await;
    sent["host"] = json!(api.other_host(id).await);
    if (30..=67).contains(&api.minor) {
        sent["force"] = json!(true);
    } else {
        let mut forced = sent.clone();
        forced["force"] = json!(true);
        refused(api, id, json!({"os-migrateLive": forced}), 400).await;
    }
    act(api, id, json!({"os-migrateLive": sent}), 202, "ACTIVE").await;
}

/// Actions that release a server's host for a while.
pub async fn shelve(api: Api<'_>) {
    if !api.changes(&["shelve", "shelveOffload", "unshelve"]) {
        return;
    }
    let flavor = api.flavor("shelve").await;
    let id = api.server("shelve", &flavor).await;
    let mut bodies = vec![Value::Null];
    if api.minor >= 77 {
        bodies.push(json!({"availability_zone": "nova"}));
    }
    if api.minor >= 91 {
        bodies.push(json!({"host": "h2"}));
        bodies.push(json!({"availability_zone": null}));
    }
    for sent in bodies {
        act(api, &id, json!({"shelve": null}), 202, "SHELVED").await;
        act(api, &id, json!({"shelveOffload": null}), 202, "SHELVED_OFFLOADED").await;
        act(api, &id, json!({"unshelve": sent}), 202, "ACTIVE").await;
    }
    api.gone(&id).await;
}

/// Actions for a server whose host is down.
pub async fn evacuate(api: Api<'_>) {
    if !api.changes(&["evacuate"]) {
        return;
    }
    let flavor = api.flavor("evacuate").await;
    for with_host in [false, true] {
        let id = api.server("evacuate", &flavor).await;
        let from = api.host_of(&id).await;
        let mut sent = json!({"adminPass": "secret"});
        if api.minor < 14 {
            sent["onSharedStorage"] = json!("False");
        }
        if with_host {
            sent["host"] = json!(api.other_host(&id).await);
            if (29..=67).contains(&api.minor) {
                sent["force"] = json!(true);
            }
        }
        refused(api, &id, json!({"evacuate": sent}), 400).await;
        down(api.cloud, &from, true).await;
        let then = if api.minor >= 95 { "SHUTOFF" } else { "ACTIVE" };
        let answer = act(api, &id, json!({"evacuate": sent}), 200, then).await;
        api.expect((answer["adminPass"] == "secret") == (api.minor < 14), "adminPass until 2.13");
        down(api.cloud, &from, false).await;
        api.gone(&id).await;
    }
}

/// Forces a host down, or up again, once it has removed the guests of evacuated servers.
pub async fn down(cloud: &Cloud, host: &str, is_down: bool) {
    let body = json!({"host": host, "binary": "nova-compute", "forced_down": is_down});
    let path = "/v2.1/os-services/force-down";
    for _ in 0..4000 {
        let (code, answer) = exchange(cloud, ADMIN, 11, "PUT", path, &Some(body.clone())).await;
        if code == 200 {
            return;
        }
        let guests_remain = answer.to_string().contains("evacuation migration records remain");
        assert!(guests_remain, "{answer}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("{host} did not remove the guests of evacuated servers in time");
}

/// Soft deletion, restore and forced deletion.
pub async fn delete(api: Api<'_>) {
    if !api.changes(&["restore", "forceDelete"]) {
        return;
    }
    let flavor = api.flavor("delete").await;
    let id = api.server("delete", &flavor).await;
    let keeps = api.with(|cloud| &cloud.keeping);
    keeps.ask(&format!("DELETE /servers/{id}"), ALL, 204).await;
    api.becomes(&id, "SOFT_DELETED").await;
    act(api, &id, json!({"restore": null}), 202, "ACTIVE").await;
    let action = format!("POST /servers/{id}/action");
    api.send(&action, json!({"forceDelete": null}), ALL, 202).await;
}

/// Actions that upstream has removed, or refuses without an agent or a console.
pub async fn refusals(api: Api<'_>) {
    let known = ["resetNetwork", "changePassword", "os-getVNCConsole", "injectNetworkInfo"];
    if !api.changes(&known) {
        return;
    }
    let flavor = api.flavor("refusals").await;
    let id = api.server("refusals", &flavor).await;
    refused(api, &id, json!({"resetNetwork": null}), 410).await;
    refused(api, &id, json!({"injectNetworkInfo": null}), 410).await;
    refused(api, &id, json!({"changePassword": {"adminPass": "secret"}}), 409).await;
    for (action, kind, code) in [
        ("os-getVNCConsole", "novnc", 200),
        ("os-getSPICEConsole", "spice-html5", 400),
        ("os-getRDPConsole", "rdp-html5", 410),
        ("os-getSerialConsole", "serial", 400),
    ] {
        let code = if api.minor <= 5 { code } else { 404 };
        refused(api, &id, json!({action: {"type": kind}}), code).await;
    }
    api.gone(&id).await;
}
