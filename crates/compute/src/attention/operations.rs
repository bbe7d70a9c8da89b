//! Operations that have not moved for long, with what they wait for.

use kilonova_flow as flow;
use kilonova_node_api::Desired;
use kilonova_store::Tx;
use kilonova_wire::time::offset;

use super::{Bounds, Level, Notice};
use crate::Error;
use crate::app::explain::awaited;
use crate::db::{documents, moves, servers};

/// Operations that are told one by one.
const TOLD: i64 = 50;

pub(super) fn stuck(tx: &mut Tx<'_>, bounds: &Bounds, now: i64) -> Result<Vec<Notice>, Error> {
    let before = now - bounds.stuck;
    let mut notices = Vec::new();
    for operation in flow::open_since(tx, before, TOLD)? {
        let open = moves::open_of(tx, operation.subject)?;
        // A guest that is on its way says how far it is.
        if open.as_ref().is_some_and(|open| open.updated_at > before) {
            continue;
        }
        let host = servers::host_of(tx, operation.subject)?;
        let absent = |(host, one): (String, kilonova_node_api::Document)| {
            (one.desired == Desired::Absent).then_some(host)
        };
        let removing: Vec<String> =
            documents::of_server(tx, operation.subject)?.into_iter().filter_map(absent).collect();
        let awaited = awaited(&operation, host.as_deref(), open.as_ref(), &removing);
        notices.push(Notice {
            area: "operations",
            level: Level::Error,
            what: format!(
                "{} of server {} has stood at step {} since {}: it waits for {}",
                operation.kind,
                operation.subject,
                operation.step,
                offset(operation.updated_at),
                awaited.text()
            ),
            remedy: format!("kilonova server explain {}", operation.subject),
        });
    }
    Ok(notices)
}
