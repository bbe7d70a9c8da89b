//! Invalid bodies for every request with a body: never a 5xx, and the message names the field. The stores share the
//! bodies.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use kilonova_testkit::{Share, shared};
use kilonova_wire_tests::{Side, invalid_bodies};
use serde_json::Value;

use crate::compute::api::{ADMIN, Api, Notes, Taken, exchange};
use crate::compute::cloud::{Cloud, clouds};
use crate::compute::rows;

/// The microversions at which invalid bodies are sent.
const AT: [u32; 2] = [1, 104];

#[tokio::test]
async fn wrong_bodies_are_refused_by_name() {
    let notes = Notes { keep: true, ..Notes::new() };
    let mut faults = BTreeSet::new();
    let mut sent = 0;
    for (share, cloud) in shared(clouds(true).await) {
        for minor in AT {
            for (_, row) in rows::ROWS {
                row(Api::of(&cloud, &notes, minor)).await;
            }
        }
        let taken =
            std::mem::take(&mut *notes.taken.lock().unwrap_or_else(PoisonError::into_inner));
        let mut seen = BTreeSet::new();
        for one in taken {
            let operation = notes
                .document
                .find(&one.method, &one.path)
                .expect("the document has the operation");
            let action = action_of(&one);
            if seen.insert((operation.name(), one.minor, action.clone())) {
                let target = (&cloud, share);
                sent += attack(target, &notes, &one, action.as_deref(), &mut faults).await;
                if one.path.contains("/os-services") {
                    rows::actions::down(&cloud, "h1", false).await;
                    rows::actions::down(&cloud, "h2", false).await;
                }
            }
        }
    }
    println!("{sent} invalid bodies");
    let faults: Vec<String> = faults.into_iter().collect();
    assert!(sent > 5_000, "{sent} bodies are sent");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// True if a message names the field, or is upstream's own message.
fn names(message: &str, field: &str, action: Option<&str>) -> bool {
    const UPSTREAMS: &[&str] = &[
        "Keypair data is invalid",
        "Malformed request body",
        "Only nova-compute services can be updated",
        "Request body and URI mismatch",
        "Tag '",
        "Missing disabled reason field",
        "Compute host ",
        "The requested availability zone is not available",
        "Block Device Mapping is Invalid",
        "Flavor ",
        "should be non-empty",
        "{} is not valid under any of the given schemas",
    ];
    let named = message.contains(field) || message.contains(invalid_bodies::UNKNOWN);
    named || action.is_some() || UPSTREAMS.iter().any(|text| message.contains(text))
}

fn action_of(taken: &Taken) -> Option<String> {
    let body = taken.body.as_object().filter(|_| taken.path.ends_with("/action"));
    let action = body.and_then(|body| body.keys().next().cloned());
    action.filter(|_| taken.path.contains("/servers/"))
}

/// Sends the store's share of all invalid bodies derived from a valid one, and returns their number.
async fn attack(
    (cloud, share): (&Cloud, Share),
    notes: &Notes,
    one: &Taken,
    action: Option<&str>,
    faults: &mut BTreeSet<String>,
) -> usize {
    let operation =
        notes.document.find(&one.method, &one.path).expect("the document has the operation");
    let none = Value::Null;
    let schema = operation.schema(Side::Request, one.minor, action).unwrap_or(&none);
    let all = invalid_bodies::all(&one.body, schema).into_iter().enumerate();
    let mut count = 0;
    for (_, wrong) in all.filter(|(at, _)| share.has(one.minor as usize + at)) {
        count += 1;
        let body = wrong.body;
        let (status, answer) =
            exchange(cloud, ADMIN, one.minor, &one.method, &one.path, &Some(body.clone())).await;
        let name = format!("{} 2.{} {}", operation.name(), one.minor, wrong.how);
        let objection =
            notes.document.objection(operation, Side::Request, one.minor, action, &body);
        let fault = answer.as_object().and_then(|fault| fault.values().next());
        let message = fault.and_then(|fault| fault["message"].as_str()).unwrap_or_default();
        if status >= 500 {
            faults.insert(format!("{name}: {status}"));
        } else if status < 300 && objection.is_some() {
            faults.insert(format!(
                "{name}: accepted, but upstream refuses: {}",
                objection.unwrap_or_default()
            ));
        } else if status == 400 && !names(message, &wrong.field, action) {
            faults.insert(format!("{name}: the message does not name the field: {message}"));
        }
    }
    count
}
