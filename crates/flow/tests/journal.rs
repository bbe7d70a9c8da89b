//! The journal on both stores.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use jiff::Timestamp;
use kilonova_flow::{Error, Event, MIGRATIONS, NewOperation, Operation, Outcome, STATEMENTS};
use kilonova_ids::{HostName, OperationId, ServerId};
use kilonova_store::Store;
use serde_json::json;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("the time is valid")
}

fn new(server: ServerId, kind: &'static str, request: &str) -> NewOperation {
    NewOperation {
        id: OperationId::new_v4(),
        kind,
        subject: server,
        request_id: request.into(),
        project_id: "red".into(),
        user_id: "ann".into(),
        step: "first",
        data: json!({"n": 1}),
    }
}

async fn begin(store: &Store, new: &NewOperation, now: i64) -> Result<(), Error> {
    let (new, now) = (new.clone(), at(now));
    store.write(move |tx| kilonova_flow::begin(tx, &new, now)).await
}

async fn open(store: &Store, server: ServerId) -> Option<Operation> {
    store.read(move |tx| kilonova_flow::open_of(tx, server)).await.expect("the query succeeds")
}

async fn finish(store: &Store, operation: &Operation, outcome: Outcome, now: i64) {
    let (operation, now) = (operation.clone(), at(now));
    store
        .write(move |tx| kilonova_flow::finish(tx, &operation, outcome, Some("why"), now))
        .await
        .expect("the operation ends");
}

fn happened(name: &str) -> Event {
    Event {
        name: name.into(),
        host: Some(HostName::verbatim("a")),
        result: None,
        details: None,
        started_at: at(1),
        finished_at: None,
    }
}

#[tokio::test]
async fn both_databases_prepare_every_statement() {
    for (name, store, _guard) in kilonova_testkit::stores(&[MIGRATIONS]).await {
        assert_eq!(store.refused(STATEMENTS).await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn a_server_has_one_open_operation() {
    for (name, store, _guard) in kilonova_testkit::stores(&[MIGRATIONS]).await {
        let (one, other) = (ServerId::new_v4(), ServerId::new_v4());
        begin(&store, &new(one, "stop", "req-1"), 1).await.expect("the operation begins");
        let second = begin(&store, &new(one, "reboot", "req-2"), 2).await;
        assert!(matches!(second, Err(Error::Busy(server)) if server == one.to_string()), "{name}");
        begin(&store, &new(other, "stop", "req-3"), 2).await.expect("the operation begins");
        let operation = open(&store, one).await.expect("the operation is open");
        assert_eq!((operation.kind.as_str(), operation.step.as_str()), ("stop", "first"));
        finish(&store, &operation, Outcome::Done, 3).await;
        assert!(open(&store, one).await.is_none(), "{name}");
        begin(&store, &new(one, "reboot", "req-2"), 4).await.expect("the operation begins");
        let kinds: Vec<String> = store
            .read(move |tx| kilonova_flow::history(tx, one, 10))
            .await
            .expect("the query succeeds")
            .into_iter()
            .map(|operation| operation.kind)
            .collect();
        assert_eq!(kinds, ["reboot", "stop"], "{name}");
    }
}

#[tokio::test]
async fn one_of_two_concurrent_advances_succeeds() {
    for (name, store, _guard) in kilonova_testkit::stores(&[MIGRATIONS]).await {
        let server = ServerId::new_v4();
        begin(&store, &new(server, "create", "req-1"), 1).await.expect("the operation begins");
        let seen = open(&store, server).await.expect("the operation is open");
        let advance = async |operation: &Operation, step: &'static str| {
            let operation = operation.clone();
            let data = json!({"step": step});
            store.write(move |tx| kilonova_flow::advance(tx, &operation, step, &data, at(2))).await
        };
        advance(&seen, "second").await.expect("the operation advances");
        assert!(matches!(advance(&seen, "third").await, Err(Error::Moved(_))), "{name}");
        let now = open(&store, server).await.expect("the operation is open");
        assert_eq!((now.step.as_str(), &now.data), ("second", &json!({"step": "second"})));
        finish(&store, &now, Outcome::Cancelled, 3).await;
        assert!(matches!(advance(&now, "third").await, Err(Error::Moved(_))), "{name}");
    }
}

#[tokio::test]
async fn an_ended_operation_never_changes() {
    for (name, store, _guard) in kilonova_testkit::stores(&[MIGRATIONS]).await {
        let server = ServerId::new_v4();
        begin(&store, &new(server, "create", "req-1"), 1).await.expect("the operation begins");
        let operation = open(&store, server).await.expect("the operation is open");
        finish(&store, &operation, Outcome::Failed, 2).await;
        finish(&store, &operation, Outcome::Done, 3).await;
        let kept = store.read(move |tx| kilonova_flow::one(tx, server, "req-1")).await;
        let (kept, _) = kept.expect("the query succeeds").expect("the operation exists");
        assert_eq!((kept.outcome, kept.updated_at), (Outcome::Failed, at(2)), "{name}");
        assert_eq!(kept.message.as_deref(), Some("why"), "{name}");
    }
}

#[tokio::test]
async fn events_keep_their_order_and_are_deleted_with_their_operation() {
    for (name, store, _guard) in kilonova_testkit::stores(&[MIGRATIONS]).await {
        let server = ServerId::new_v4();
        begin(&store, &new(server, "create", "req-1"), 1).await.expect("the operation begins");
        let operation = open(&store, server).await.expect("the operation is open");
        let id = operation.id;
        store
            .write(move |tx| {
                for name in ["b", "a", "c"] {
                    kilonova_flow::event(tx, id, &happened(name))?;
                }
                Ok::<_, Error>(())
            })
            .await
            .expect("the event is recorded");
        let names = async || {
            let one = store.read(move |tx| kilonova_flow::one(tx, server, "req-1")).await;
            let (_, events) = one.expect("the query succeeds")?;
            Some(events.into_iter().map(|event| event.name).collect::<Vec<_>>())
        };
        assert_eq!(names().await, Some(vec!["b".into(), "a".into(), "c".into()]), "{name}");
        let purge =
            async |before| store.write(move |tx| kilonova_flow::purge(tx, at(before), 10)).await;
        assert_eq!(
            purge(100).await.expect("the purge succeeds"),
            0,
            "{name}: an open operation is never deleted"
        );
        finish(&store, &operation, Outcome::Done, 50).await;
        assert_eq!(purge(50).await.expect("the purge succeeds"), 0, "{name}");
        assert_eq!(purge(51).await.expect("the purge succeeds"), 1, "{name}");
        assert_eq!(names().await, None, "{name}");
    }
}
