//! Quotas for network resources.

use std::collections::BTreeMap;

use kilonova_store::Tx;

use crate::Error;
use crate::db::quotas as rows;
use crate::error::{malformed, refused};
use kilonova_wire::refusal::Kind;

/// An index into [`RESOURCES`] and into the counts of [`rows::used`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resource(usize);

pub(crate) const NETWORK: Resource = Resource(0);
pub(crate) const SUBNET: Resource = Resource(1);
pub(crate) const PORT: Resource = Resource(2);
pub(crate) const GROUP: Resource = Resource(3);
pub(crate) const RULE: Resource = Resource(4);
pub(crate) const FLOATING_IP: Resource = Resource(5);
pub(crate) const ROUTER: Resource = Resource(6);

/// Names and Neutron's defaults; the counted resources come first.
pub(crate) const RESOURCES: [(&str, i64); 9] = [
    ("network", 100),
    ("subnet", 100),
    ("port", 500),
    ("security_group", 10),
    ("security_group_rule", 100),
    ("floatingip", 50),
    ("router", 10),
    ("subnetpool", -1),
    ("rbac_policy", 10),
];

/// A project's limits by resource name.
pub(crate) fn limits(tx: &mut Tx<'_>, project: &str) -> Result<BTreeMap<String, i64>, Error> {
    let mut limits = defaults();
    limits.extend(rows::of_project(tx, project)?);
    Ok(limits)
}

pub(crate) fn defaults() -> BTreeMap<String, i64> {
    RESOURCES.iter().map(|(name, most)| ((*name).to_owned(), *most)).collect()
}

/// A project's usage by resource name.
pub(crate) fn used(tx: &mut Tx<'_>, project: &str) -> Result<BTreeMap<String, i64>, Error> {
    let counted = rows::used(tx, project)?;
    let of = |(at, (name, _)): (usize, &(&str, i64))| {
        ((*name).to_owned(), counted.get(at).copied().unwrap_or(0))
    };
    Ok(RESOURCES.iter().enumerate().map(of).collect())
}

/// Refuses limits below the project's usage, as in `update` of `neutron/extensions/quotasv2.py`. The limit -1, which
/// means unlimited, is never refused.
pub(crate) fn check_limits(
    tx: &mut Tx<'_>,
    project: &str,
    limits: &[(String, i64)],
) -> Result<(), Error> {
    let used = used(tx, project)?;
    for (name, limit) in limits.iter().filter(|(_, limit)| *limit >= 0) {
        let used = used.get(name).copied().unwrap_or(0);
        if used > *limit {
            return Err(malformed(format!(
                "Quota limit {limit} for {name} must be greater than or equal to already used {used}"
            ))
            .into());
        }
    }
    Ok(())
}

/// Refuses an increase beyond the project's quota. Transactions that increase one usage are serialized, so that
/// together they do not exceed a limit that each of them keeps.
pub(crate) fn check(
    tx: &mut Tx<'_>,
    project: &str,
    resource: Resource,
    more: i64,
) -> Result<(), Error> {
    let Some((name, _)) = RESOURCES.get(resource.0) else { return Ok(()) };
    if usage(tx, project, resource, more)?.is_some() {
        rows::guard(tx, project, name)?;
    }
    Ok(())
}

/// Refuses new ports of servers beyond the project's quota, without a write. Returns true if the
/// ports would use at least half of the limit: the transaction that creates them must then call [`check`] too. Below
/// half it need not, because the guard delays concurrent boots and may cost a round trip. The limit is exceeded only if
/// concurrent boots together add more than half of it.
pub(crate) fn is_near_limit_of_ports(
    tx: &mut Tx<'_>,
    project: &str,
    more: i64,
) -> Result<bool, Error> {
    let usage = usage(tx, project, PORT, more)?;
    Ok(usage.is_some_and(|usage| usage.after >= usage.most / 2))
}

/// A limit, and the usage after an increase.
struct Usage {
    most: i64,
    after: i64,
}

/// The usage after an increase; `None` without a limit. Refuses an increase beyond the limit.
fn usage(
    tx: &mut Tx<'_>,
    project: &str,
    resource: Resource,
    more: i64,
) -> Result<Option<Usage>, Error> {
    let Some((name, default)) = RESOURCES.get(resource.0) else { return Ok(None) };
    let most = rows::of_project(tx, project)?.get(*name).copied().unwrap_or(*default);
    let used = rows::used(tx, project)?.get(resource.0).copied().unwrap_or(0);
    let usage = Usage { most, after: used.saturating_add(more) };
    if most < 0 {
        return Ok(None);
    }
    if usage.after > most {
        let message = format!("Quota exceeded for resources: ['{name}'].");
        return Err(refused(Kind::Conflict, "OverQuota", message).into());
    }
    Ok(Some(usage))
}
