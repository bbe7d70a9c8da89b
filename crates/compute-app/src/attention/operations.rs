//! Operations that have not advanced for a long time, with the event that they wait for, and
//! operations that this version cannot read.

use jiff::Timestamp;
use kilonova_compute_db::{documents, moves, servers};
use kilonova_flow as flow;
use kilonova_ids::HostName;
use kilonova_node_api::Desired;
use kilonova_store::Tx;
use kilonova_wire::time::{self, offset};

use super::{Bounds, Finding, Level};
use crate::Error;
use crate::explain::{awaited, plugging};
use crate::flows::journal;

/// Maximum number of operations listed individually.
const MOST: usize = 50;
/// Maximum number of open operations read, oldest first. It exceeds [`MOST`] because live migrations in progress are
/// read but not listed.
const READ: i64 = 1000;

pub(super) fn stuck(
    tx: &mut Tx<'_>,
    bounds: &Bounds,
    now: Timestamp,
) -> Result<Vec<Finding>, Error> {
    let before = time::before(now, bounds.stuck);
    let mut findings = Vec::new();
    for row in flow::open_since(tx, before, READ)? {
        if findings.len() == MOST {
            break;
        }
        let server = row.subject;
        let migration = moves::open_of(tx, server)?;
        // The progress of a live migration is recorded in its migration, not in the operation.
        if migration.as_ref().is_some_and(|migration| migration.updated_at > before) {
            continue;
        }
        let (kind, step, since) = (row.kind.clone(), row.step.clone(), row.updated_at);
        let open = match journal::read(row) {
            Ok(open) => open,
            Err(error) => {
                findings.push(unreadable(&error));
                continue;
            }
        };
        let host = servers::host_of(tx, server)?;
        let absent = |(host, one): (HostName, kilonova_node_api::Document)| {
            (one.desired == Desired::Absent).then_some(host)
        };
        let documents = documents::of_server(tx, server)?;
        let plugging = plugging(tx, server, &documents)?;
        let removing: Vec<HostName> = documents.into_iter().filter_map(absent).collect();
        let lacking = documents::lacking(tx, server)?;
        let (own, migration) = (host.as_ref(), migration.as_ref());
        let plugging = plugging.as_ref();
        let awaited = awaited(&open.state, own, migration, &removing, &lacking, plugging);
        findings.push(Finding {
            area: "operations",
            level: Level::Error,
            what: format!(
                "{kind} of server {server} has been at step {step} since {}, waiting for {}",
                offset(since),
                awaited.text()
            ),
            remedy: format!("kilonova server explain {server}"),
        });
    }
    Ok(findings)
}

fn unreadable(error: &Error) -> Finding {
    Finding {
        area: "operations",
        level: Level::Error,
        what: error.to_string(),
        remedy:
            "run the version of kilonova that wrote the operation until it has ended, then upgrade"
                .to_owned(),
    }
}
