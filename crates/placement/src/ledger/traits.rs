//! Changes to traits between two reports from a host.

use kilonova_ids::ProviderId;
use kilonova_store::Tx;
use kilonova_wire::time;

use crate::db::{providers, traits};
use crate::{Error, World};

/// Makes `wanted` the provider's only reported trait with this prefix; `None` removes all reported
/// traits with the prefix. Traits that an operator added stay. A provider that does not exist is
/// not an error.
///
/// # Errors
/// Store errors only.
pub fn set_only_trait(
    tx: &mut Tx<'_>,
    world: &World,
    provider: ProviderId,
    prefix: &str,
    wanted: Option<&str>,
) -> Result<(), Error> {
    let now = time::now();
    let has = traits::of_provider(tx, provider)?;
    let stale: Vec<&String> = has
        .iter()
        .filter(|(name, reported)| *reported && name.starts_with(prefix))
        .filter(|(name, _)| wanted != Some(name.as_str()))
        .map(|(name, _)| name)
        .collect();
    let new = wanted.filter(|wanted| !has.iter().any(|(name, _)| name == wanted));
    if stale.is_empty() && new.is_none() {
        return Ok(());
    }
    let Some(counters) = providers::bump(tx, provider, now)? else { return Ok(()) };
    for name in stale {
        traits::remove(tx, provider, name)?;
    }
    if let Some(name) = new {
        traits::report(tx, &[(provider, name)], now)?;
    }
    world.tree_changed(tx, counters.root)
}
