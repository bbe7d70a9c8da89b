//! What projects use, measured against what they may.

use kilonova_store::Tx;
use kilonova_wire::Fault;

use crate::Error;
use crate::app::boot::BootRequest;
use crate::app::quotas;
use crate::db;

pub use db::usage::ProjectUsage;

/// What a project's servers use.
///
/// # Errors
/// The database's.
pub fn of_project(tx: &mut Tx<'_>, project_id: &str) -> Result<ProjectUsage, Error> {
    db::usage::of_project(tx, project_id, None)
}

/// Refuses what would lead a project, or the user in it, over a limit. To be called in the
/// transaction that adds the servers, before it adds them.
///
/// # Errors
/// 403 naming the limits, or the database's.
pub fn check(
    tx: &mut Tx<'_>,
    project_id: &str,
    user_id: &str,
    wanted: ProjectUsage,
) -> Result<(), Error> {
    let project = quotas::limits(tx, project_id, None)?;
    check_against(tx, project_id, None, &project, wanted)?;
    let own = db::quotas::of(tx, project_id, Some(user_id))?;
    check_against(tx, project_id, Some(user_id), &own, wanted)
}

/// Refuses a boot of `count` servers that would lead its project or user over a limit.
///
/// # Errors
/// As [`check`].
pub fn check_quota(tx: &mut Tx<'_>, request: &BootRequest, count: usize) -> Result<(), Error> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let flavor = &request.spec.flavor;
    let wanted = ProjectUsage {
        instances: count,
        cores: flavor.vcpus.saturating_mul(count),
        ram: flavor.ram.saturating_mul(count),
    };
    check(tx, &request.project_id, &request.user_id, wanted)
}

fn check_against(
    tx: &mut Tx<'_>,
    project_id: &str,
    user_id: Option<&str>,
    limits: &db::quotas::Limits,
    wanted: ProjectUsage,
) -> Result<(), Error> {
    let limit = |resource: &str| limits.get(resource).copied().filter(|limit| *limit >= 0);
    let bounds = [limit("instances"), limit("cores"), limit("ram")];
    if bounds.iter().all(Option::is_none) {
        return Ok(());
    }
    db::quotas::guard(tx, &format!("servers/{project_id}"))?;
    let used = db::usage::of_project(tx, project_id, user_id)?;
    let mut over = Vec::new();
    for (name, wanted, used, limit) in [
        ("instances", wanted.instances, used.instances, bounds[0]),
        ("cores", wanted.cores, used.cores, bounds[1]),
        ("ram", wanted.ram, used.ram, bounds[2]),
    ] {
        let Some(limit) = limit else { continue };
        if wanted > 0 && used.saturating_add(wanted) > limit {
            over.push([name.to_owned(), wanted.to_string(), used.to_string(), limit.to_string()]);
        }
    }
    if over.is_empty() {
        return Ok(());
    }
    let list =
        |part: usize| over.iter().map(|row| row[part].as_str()).collect::<Vec<_>>().join(", ");
    let (names, wanted, used, limits) = (list(0), list(1), list(2), list(3));
    Err(Fault::forbidden(format!(
        "Quota exceeded for {names}: Requested {wanted}, but already used {used} of {limits} {names}"
    ))
    .into())
}
