//! The table: every operation has a row, and every row passes. The stores share the microversions of a row.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use kilonova_testkit::shared;
use kilonova_wire_tests::{Coverage, Operation};

use crate::compute::api::{ACTION, ADMIN, Api, Notes, exchange};
use crate::compute::cloud::{Cloud, clouds};
use crate::compute::rows;
use crate::compute::unsupported::{ACTIONS, UNSUPPORTED, Unsupported};

#[tokio::test]
async fn every_operation_at_every_version_where_it_changes() {
    let notes = Notes::new();
    for (share, cloud) in shared(clouds(true).await) {
        for (number, (prefixes, row)) in rows::ROWS.iter().enumerate() {
            let versions = versions(&notes, prefixes).into_iter().enumerate();
            for (_, minor) in versions.filter(|(at, _)| share.has(number + at)) {
                row(Api::of(&cloud, &notes, minor)).await;
            }
        }
        outside(&cloud, &notes).await;
    }
    let failures = report(&notes);
    assert!(failures.is_empty(), "{} faults:\n{}", failures.len(), failures.join("\n"));
}

/// The boundaries of all operations with these prefixes.
fn versions(notes: &Notes, prefixes: &[&str]) -> BTreeSet<u32> {
    let below = |operation: &&Operation| {
        prefixes.iter().any(|prefix| {
            operation
                .path
                .strip_prefix("/v2.1")
                .and_then(|path| path.strip_prefix(prefix))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    let all = notes.document.operations.iter().filter(below);
    all.flat_map(|operation| operation.boundaries.iter().copied()).collect()
}

fn row_of(operation: &Operation) -> Option<&'static Unsupported> {
    let path = operation.path.strip_prefix("/v2.1").unwrap_or(&operation.path);
    UNSUPPORTED.iter().find(|row| {
        row.methods.contains(&operation.method.as_str())
            && (row.path == path
                || row.path.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix)))
    })
}

/// Checks the refusal of unsupported operations at both ends of the range.
async fn outside(cloud: &Cloud, notes: &Notes) {
    for operation in &notes.document.operations {
        let Some(row) = row_of(operation) else { continue };
        let path: Vec<&str> =
            operation
                .path
                .split('/')
                .map(|part| {
                    if part.starts_with('{') {
                        "c0ffee00-0000-4000-8000-000000000000"
                    } else {
                        part
                    }
                })
                .collect();
        let path = path.join("/");
        let body =
            matches!(operation.method.as_str(), "POST" | "PUT").then(|| serde_json::json!({}));
        for (minor, want) in [(1, row.first), (104, row.last)] {
            let (got, answer) =
                exchange(cloud, ADMIN, minor, &operation.method, &path, &body).await;
            if got != want {
                let name = operation.name();
                notes.object(format!("{name} at 2.{minor}: {got}, not {want}: {answer}"));
            }
        }
    }
}

/// Prints the table and returns the failures.
fn report(notes: &Notes) -> Vec<String> {
    let coverage = notes.coverage.lock().unwrap_or_else(PoisonError::into_inner);
    let mut failures = notes.objections.lock().unwrap_or_else(PoisonError::into_inner).clone();
    failures.dedup();
    let (mut covered, mut left_out) = (0, 0);
    for operation in &notes.document.operations {
        let name = operation.name();
        if let Some(row) = row_of(operation) {
            left_out += 1;
            println!("  not served  {name:<74} {}", row.why);
            continue;
        }
        match coverage.gaps(operation) {
            None => failures.push(format!("{name}: no row ({})", coverage.shown(operation))),
            Some(gaps) if !gaps.is_empty() => {
                failures.push(format!("{name}: not called at 2.x for x in {gaps:?}"));
            }
            Some(_) => {
                covered += 1;
                println!("  covered     {name:<74} {}", coverage.shown(operation));
            }
        }
        if name == format!("POST {ACTION}") {
            for action in operation.actions() {
                match actions(&coverage, operation, &action) {
                    Ok(line) => println!("  {line}"),
                    Err(fault) => failures.push(fault),
                }
            }
        }
    }
    println!("{covered} operations covered, {left_out} not served, {} faults", failures.len());
    failures
}

/// A line of the table, or the missing coverage of an action.
fn actions(coverage: &Coverage, operation: &Operation, action: &str) -> Result<String, String> {
    if let Some((_, why)) = ACTIONS.iter().find(|(known, _)| *known == action) {
        return Ok(format!("not served  {:<74} {why}", format!("    {action}")));
    }
    let called = coverage.action_versions(action);
    let wanted = operation.boundaries_of(action);
    let missing: Vec<u32> = wanted.into_iter().filter(|minor| !called.contains(minor)).collect();
    if !missing.is_empty() {
        return Err(format!("action {action}: not called at 2.x for x in {missing:?}"));
    }
    let how = coverage.action_shown(action);
    Ok(format!("covered     {:<74} {how}", format!("    {action}")))
}
