//! Routers without a gateway host.

use kilonova_network::ledger;
use kilonova_store::Tx;

use super::{Finding, Level};
use crate::Error;

/// Maximum number of routers listed individually.
const MOST: usize = 50;

/// Routers that wait for a gateway host.
pub(super) fn waiting(tx: &mut Tx<'_>) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    let mut waiting = ledger::next_routers(tx, &[], None)?;
    waiting.truncate(MOST);
    // Routers without ports are skipped: the reconcile loop removes their rows on its next run.
    for (router, physical) in ledger::router_needs(tx, &waiting)? {
        let physical: Vec<String> = physical.into_iter().collect();
        let physical = physical.join(", ");
        findings.push(Finding {
            area: "routers",
            level: Level::Warning,
            what: format!("router {router} waits for a gateway host"),
            remedy: format!(
                "start or enable a host whose agent.conf maps {physical} in [linux_bridge] and \
                 does not set [network] routers = false"
            ),
        });
    }
    Ok(findings)
}
