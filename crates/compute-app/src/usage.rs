//! The usage of projects compared with their limits.

use kilonova_compute_db::quotas::Limits;
use kilonova_compute_db::reserved::{ask_reserved, reserved, sum};
use kilonova_compute_db::{counted, usage};
use kilonova_store::{Asked, Tx};
use kilonova_wire::Refusal;

use crate::{Error, quotas};

pub use kilonova_compute_db::counted::scope;
pub use kilonova_compute_db::usage::ProjectUsage;

/// Refuses a request that would exceed a limit of a project, or of the user in it, and otherwise
/// counts it. Call it in the transaction that inserts the servers, before inserting them.
///
/// # Errors
/// 403 naming the limits, or store errors. The caller must then abort the transaction.
pub fn take(
    tx: &mut Tx<'_>,
    project_id: &str,
    user_id: &str,
    wanted: ProjectUsage,
) -> Result<(), Error> {
    ask_take(tx, project_id, user_id, wanted)?.check(tx, project_id, user_id)
}

/// A counted request that has not been compared with the limits yet.
#[must_use = "a request may exceed a limit"]
pub struct AskedUsage {
    wanted: ProjectUsage,
    limits: Asked,
    counted: Asked,
    reserved: Asked,
}

/// Asks for [`take`], so that other statements can share its round trip.
///
/// # Errors
/// Store errors only.
pub fn ask_take(
    tx: &mut Tx<'_>,
    project_id: &str,
    user_id: &str,
    wanted: ProjectUsage,
) -> Result<AskedUsage, Error> {
    let limits = quotas::ask_both(tx, project_id, Some(user_id))?;
    let counted = counted::ask_count(tx, project_id, wanted)?;
    let reserved = ask_reserved(tx, project_id, None)?;
    Ok(AskedUsage { wanted, limits, counted, reserved })
}

impl AskedUsage {
    /// Compares the usage with the limits.
    ///
    /// # Errors
    /// Those of [`take`].
    pub fn check(self, tx: &mut Tx<'_>, project_id: &str, user_id: &str) -> Result<(), Error> {
        let Self { wanted, limits, counted, reserved } = self;
        let (project, own) = quotas::both_of(tx, limits)?;
        let used = counted::counted(tx, counted)?;
        let reserved = sum(tx, reserved)?;
        let before = ProjectUsage {
            instances: used.instances - wanted.instances,
            cores: used.cores - wanted.cores + reserved.cores,
            ram: used.ram - wanted.ram + reserved.ram,
        };
        compare(&project, before, wanted)?;
        check_own(tx, project_id, user_id, &own, wanted)
    }
}

/// Like [`take`], for resources that are counted once they exist.
///
/// # Errors
/// Those of [`take`].
pub fn check(
    tx: &mut Tx<'_>,
    project_id: &str,
    user_id: &str,
    wanted: ProjectUsage,
) -> Result<(), Error> {
    let limits = quotas::ask_both(tx, project_id, Some(user_id))?;
    check_asked(tx, project_id, user_id, wanted, limits)
}

/// [`check`] with the limits that [`quotas::ask_both`] requested for the project and the user.
///
/// # Errors
/// Those of [`take`].
pub fn check_asked(
    tx: &mut Tx<'_>,
    project_id: &str,
    user_id: &str,
    wanted: ProjectUsage,
    limits: Asked,
) -> Result<(), Error> {
    let (project, own) = quotas::both_of(tx, limits)?;
    if any(&project) || any(&own) {
        let counted = counted::ask_count(tx, project_id, ProjectUsage::default())?;
        let reserved = ask_reserved(tx, project_id, None)?;
        let used = counted::counted(tx, counted)?;
        let reserved = sum(tx, reserved)?;
        compare(&project, plus(used, reserved), wanted)?;
    }
    check_own(tx, project_id, user_id, &own, wanted)
}

/// The number of servers, each with the usage `each`, for which the quota of the project and of the user has room.
///
/// # Errors
/// Store errors only.
pub fn room(
    tx: &mut Tx<'_>,
    project_id: &str,
    user_id: &str,
    each: ProjectUsage,
) -> Result<i64, Error> {
    let (project, own) = quotas::both(tx, project_id, Some(user_id))?;
    let mut room = i64::MAX;
    let used_by_user =
        if any(&own) { of_user(tx, project_id, user_id)? } else { ProjectUsage::default() };
    for (limits, used) in [(&project, of_project(tx, project_id)?), (&own, used_by_user)] {
        let parts =
            [(each.instances, used.instances), (each.cores, used.cores), (each.ram, used.ram)];
        for ((each, used), limit) in parts.into_iter().zip(bounds(limits)) {
            if let (Some(limit), true) = (limit, each > 0) {
                room = room.min(limit.saturating_sub(used).max(0) / each);
            }
        }
    }
    Ok(room)
}

/// The resources that a project has claimed: the usage of its servers, plus the reservations of
/// their resizes.
///
/// # Errors
/// Store errors only.
pub fn of_project(tx: &mut Tx<'_>, project_id: &str) -> Result<ProjectUsage, Error> {
    Ok(plus(counted::of_project(tx, project_id)?, reserved(tx, project_id, None)?))
}

/// The resources that one user has claimed in a project.
///
/// # Errors
/// Store errors only.
pub fn of_user(tx: &mut Tx<'_>, project_id: &str, user_id: &str) -> Result<ProjectUsage, Error> {
    let own = usage::of_user(tx, project_id, user_id)?;
    Ok(plus(own, reserved(tx, project_id, Some(user_id))?))
}

fn plus(one: ProjectUsage, other: ProjectUsage) -> ProjectUsage {
    ProjectUsage {
        instances: one.instances + other.instances,
        cores: one.cores + other.cores,
        ram: one.ram + other.ram,
    }
}

fn check_own(
    tx: &mut Tx<'_>,
    project_id: &str,
    user_id: &str,
    own: &Limits,
    wanted: ProjectUsage,
) -> Result<(), Error> {
    if any(own) {
        compare(own, of_user(tx, project_id, user_id)?, wanted)?;
    }
    Ok(())
}

/// The limits on instances, cores and memory, if any.
fn bounds(limits: &Limits) -> [Option<i64>; 3] {
    ["instances", "cores", "ram"]
        .map(|resource| limits.get(resource).copied().filter(|limit| *limit >= 0))
}

fn any(limits: &Limits) -> bool {
    bounds(limits).iter().any(Option::is_some)
}

fn compare(limits: &Limits, used: ProjectUsage, wanted: ProjectUsage) -> Result<(), Error> {
    let bounds = bounds(limits);
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
    Err(Refusal::forbidden(format!(
        "Quota exceeded for {names}: Requested {wanted}, but already used {used} of {limits} {names}"
    ))
    .into())
}
