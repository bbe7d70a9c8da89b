//! Routers that no host realizes.

use kilonova_network::ledger;
use kilonova_store::Tx;

use super::{Level, Notice};
use crate::Error;

/// Routers that are listed one by one.
const MOST: usize = 50;

/// Routers that wait for a gateway host.
pub(super) fn waiting(tx: &mut Tx<'_>) -> Result<Vec<Notice>, Error> {
    let mut notices = Vec::new();
    for router in ledger::routers_on(tx, None)?.into_iter().take(MOST) {
        let facts = ledger::router_facts(tx, router)?;
        // The loop forgets a router without ports at its next run.
        if facts.physical_networks.is_empty() {
            continue;
        }
        let physical: Vec<String> = facts.physical_networks.into_iter().collect();
        let physical = physical.join(", ");
        notices.push(Notice {
            area: "routers",
            level: Level::Warning,
            what: format!("router {router} waits for a gateway host"),
            remedy: format!(
                "start or enable a host whose agent.conf maps {physical} in [linux_bridge], without \
                 [network] routers = false"
            ),
        });
    }
    Ok(notices)
}
