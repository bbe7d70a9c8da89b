//! Journal rows as written before operations were typed: each is read and written back unchanged, on
//! both stores. A row that no operation writes is an error.

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_app::attention::{self, Bounds};
use kilonova_compute_app::flows::journal;
use kilonova_compute_app::flows::operation::{Action, Create, Operation, Step, Unreadable};
use kilonova_ids::{OperationId, ServerId};
use kilonova_store::{Error, Store, params};
use regex::Regex;
use serde_json::{Value, json};

use super::resize::admin;
use crate::kit::{ADMIN, ANN, Cloud, GPU, hosts};

/// `[kind, step, data]`, one row per line, recorded from the flows with simulated hosts.
const ROWS: &str = include_str!("golden/rows.jsonl");

pub type Columns = (String, String, String);

fn rows() -> Vec<Columns> {
    let rows: Vec<Columns> = ROWS
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row has three columns"))
        .collect();
    assert!(rows.len() > 100, "{} rows", rows.len());
    rows
}

/// Writes an open operation of a new server with these columns.
async fn insert(store: &Store, columns: &Columns) -> ServerId {
    let server = ServerId::new_v4();
    insert_for(store, server, columns).await;
    server
}

/// Writes an open operation of a server.
pub async fn insert_for(store: &Store, server: ServerId, (kind, step, data): &Columns) {
    let id = OperationId::new_v4();
    let (kind, step, data) = (kind.clone(), step.clone(), data.clone());
    let sql = "INSERT INTO operations (id, kind, subject, open_subject, request_id, project_id,
        user_id, step, version, data, outcome, created_at, updated_at)
        VALUES (?1, ?2, ?3, ?3, 'req-1', 'red', 'ann', ?4, 0, ?5, 'open', 1, 1)";
    store
        .write(move |tx| tx.execute(sql, params![id, &kind, server, &step, &data]))
        .await
        .unwrap_or_else(|error: Error| panic!("{error}"));
}

async fn columns(store: &Store, server: ServerId) -> Columns {
    let sql = "SELECT kind, step, data FROM operations WHERE open_subject = ?1";
    store
        .read(move |tx| {
            let row = tx.row(sql, params![server])?.expect("the operation is open");
            Ok::<_, Error>((row.string(0)?, row.string(1)?, row.string(2)?))
        })
        .await
        .expect("the columns are read")
}

#[tokio::test]
async fn every_stored_row_is_read_and_written_back_unchanged() {
    for (name, store, _guard) in kilonova_testkit::stores(&[kilonova_flow::MIGRATIONS]).await {
        for row in rows() {
            let server = insert(&store, &row).await;
            store
                .write(move |tx| {
                    let open = journal::open_of(tx, server)?.expect("the operation is open");
                    journal::advance(tx, &open, &open.state, Timestamp::UNIX_EPOCH)
                })
                .await
                .unwrap_or_else(|error: kilonova_compute_app::Error| panic!("{row:?}: {error}"));
            assert_eq!(columns(&store, server).await, row, "{name}");
        }
    }
}

/// The first version with waits stored no refusal for the owner.
#[test]
fn a_wait_without_a_refusal_has_the_general_one() {
    let until = json!(1_790_000_000_000_000_i64);
    let read = |data: Value| match Operation::read("create", "wait_for_room", &data) {
        Ok(Operation::Create(Create::Wait { reason, message, .. })) => (reason, message),
        other => panic!("{other:?}"),
    };
    let (reason, message) = read(json!({"until": until, "reason": "No host has room."}));
    assert_eq!(reason, "No host has room.");
    let general = "No valid host was found. There are not enough hosts available. \
                   The moves that should make room failed.";
    assert_eq!(message, general);
    let own = json!({"until": until, "reason": "No host has room.", "message": "None."});
    assert_eq!(read(own).1, "None.");
}

#[tokio::test]
async fn every_step_of_every_kind_is_among_the_rows() {
    let recorded: Vec<(String, String)> =
        rows().into_iter().map(|(kind, step, _)| (kind, step)).collect();
    let (kinds, steps): (Vec<&str>, Vec<&str>) =
        recorded.iter().map(|(kind, step)| (kind.as_str(), step.as_str())).unzip();
    for action in Action::ALL {
        assert!(kinds.contains(&action.as_str()), "no row of kind {action}");
    }
    for step in Step::ALL {
        assert!(steps.contains(&step.as_str()), "no row at step {step}");
    }
}

#[tokio::test]
async fn a_row_that_no_operation_writes_is_an_error() {
    let data = |kind: &str, step: &str| {
        let row = rows().into_iter().find(|row| row.0 == kind && row.1 == step);
        let (_, _, data) = row.expect("the step is recorded");
        serde_json::from_str::<Value>(&data).expect("the text is JSON")
    };
    let with = |mut data: Value, field: &str, value: Value| {
        data[field] = value;
        data
    };
    let read = |kind: &str, step: &str, data: &Value| Operation::read(kind, step, data);
    assert_eq!(read("creat", "spawn", &json!({})), Err(Unreadable::Kind("creat".into())));
    assert_eq!(read("create", "spwan", &json!({})), Err(Unreadable::Step("spwan".into())));
    for (kind, step) in [
        ("create", "settle"),
        ("stop", "undo"),
        ("rebuild", "undo"),
        ("delete", "settle"),
        ("pause", "soft"),
        ("evacuate", "restore"),
        ("resize", "transfer"),
        ("live-migration", "make_dest"),
        ("lock", "settle"),
    ] {
        let is = read(kind, step, &data("pause", "settle"));
        assert!(matches!(is, Err(Unreadable::NotAStep(..))), "{kind} {step}: {is:?}");
    }
    let settled = data("pause", "settle");
    let moved = data("migrate", "make_dest");
    for (kind, step, data) in [
        ("create", "spawn", json!(null)),
        ("create", "spawn", json!({"tired": []})),
        ("create", "clear", json!({"tried": ["a"]})),
        ("stop", "settle", json!({"reason": "x"})),
        ("lock", "done", json!({"reason": "x"})),
        ("pause", "settle", with(settled.clone(), "vm_state", json!("happy"))),
        ("pause", "settle", with(settled.clone(), "image", json!(ServerId::new_v4()))),
        ("pause", "settle", with(settled.clone(), "reason", json!("x"))),
        ("pause", "undo", settled.clone()),
        ("createImage", "settle", settled),
        ("migrate", "make_dest", with(moved.clone(), "power", json!(null))),
        ("migrate", "make_dest", with(moved.clone(), "sent", json!(true))),
        ("migrate", "make_dest", with(moved.clone(), "hsot", json!("a"))),
        ("live-migration", "receive", moved.clone()),
        ("revertResize", "drop_dest", moved),
    ] {
        let is = read(kind, step, &data);
        assert!(matches!(is, Err(Unreadable::Data(..))), "{kind} {step} {data}: {is:?}");
    }
}

#[tokio::test]
async fn the_error_names_the_operation_and_its_server() {
    for (name, store, _guard) in kilonova_testkit::stores(&[kilonova_flow::MIGRATIONS]).await {
        let row = ("pause".to_owned(), "sleep".to_owned(), "{}".to_owned());
        let server = insert(&store, &row).await;
        let read = store.read(move |tx| journal::open_of(tx, server)).await;
        let error = read.expect_err("the step is unknown").to_string();
        assert!(error.contains(&server.to_string()), "{name}: {error}");
        assert!(error.contains("unknown step \"sleep\""), "{name}: {error}");
    }
}

/// A misspelt kind or step in a statement would match no row.
#[test]
fn statements_name_only_kinds_and_steps_that_exist() {
    let step =
        Regex::new(r"\bstep (?:= |IN \()('[^)]*?')(?:\)| |$)").expect("the pattern is valid");
    let kind = Regex::new(r"\bo?\.?kind = '([^']*)'").expect("the pattern is valid");
    let (mut steps, mut kinds) = (0, 0);
    for (name, sql) in kilonova_compute_db::statements().into_iter().flatten() {
        if !sql.contains("operations") {
            continue;
        }
        for found in step.captures_iter(sql) {
            for word in found[1].split(", ") {
                let word = word.trim_matches('\'');
                assert!(Step::parse(word).is_some(), "{name}: unknown step {word}");
                steps += 1;
            }
        }
        for found in kind.captures_iter(sql) {
            assert!(Action::parse(&found[1]).is_some(), "{name}: unknown kind {}", &found[1]);
            kinds += 1;
        }
    }
    assert!(steps >= 15 && kinds >= 4, "{steps} steps, {kinds} kinds: the patterns still match");
}

#[tokio::test]
async fn an_unreadable_operation_leaves_other_servers_alone() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let other = running.active_server(&cloud, "other", "plain").await;
        running.nodes.kill("a").await;
        admin(&running, "2.90", &id, json!({"pause": null})).await.expect(202);
        admin(&running, "2.90", &other, json!({"os-stop": null})).await.expect(202);
        cloud.execute("UPDATE operations SET step = 'sleep' WHERE kind = 'pause'").await;
        running.start_node(&cloud, "a").await;
        running.wait_for_status(&other, "SHUTOFF").await;
        assert_eq!(running.server(&id).await["status"], "ACTIVE", "its operation cannot be read");
        let bounds = Bounds { stuck: SignedDuration::ZERO, ..Bounds::default() };
        let findings =
            attention::collect(&cloud.store, &bounds).await.expect("the findings are read");
        let unreadable =
            |finding: &&attention::Finding| finding.what.contains("unknown step \"sleep\"");
        let finding = findings.iter().find(unreadable);
        assert!(finding.is_some_and(|finding| finding.what.contains(&id)), "{findings:?}");
        // Its explanation shows the known facts.
        let path = format!("/kilonova/servers/{id}");
        let shown = running.get(ADMIN, "2.90", &path).await.expect(200)["server"].take();
        let operation = &shown["operation"];
        assert_eq!((&operation["action"], &operation["step"]), (&json!("pause"), &json!("sleep")));
        assert_eq!(operation["unreadable"], "unknown step \"sleep\"", "{shown}");
        assert_eq!(operation["waits_for"], json!(null), "{shown}");
        let summary = shown["summary"].as_str().expect("a text");
        assert!(summary.ends_with("which this version of Kilonova cannot read."), "{summary}");
        let next = shown["next"][0].as_str().expect("a text");
        assert!(next.starts_with("A newer version of Kilonova has begun its pause"), "{next}");
        let mine = running.get(ANN, "2.90", &path).await.expect(200)["server"].take();
        assert_eq!(mine["next"], json!(["Wait for its pause to end."]), "{mine}");

        cloud.execute("UPDATE operations SET step = 'settle' WHERE kind = 'pause'").await;
        running.nodes.kill("a").await;
        running.start_node(&cloud, "a").await;
        running.wait_for_status(&id, "PAUSED").await;
        cloud.teardown(&running, "readable again").await;
    }
}
