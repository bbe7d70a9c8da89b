//! Server groups: the quotas of groups and members.

use kilonova_compute_db::server_groups::{self as rows, Group, Member};
use kilonova_ids::{ServerGroupId, ServerId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::{Context, Refusal, time};

use crate::{Error, quotas};

/// The refusal of a group that does not exist: 404.
pub fn missing(id: &str) -> Refusal {
    Refusal::not_found(format!("Instance group {} could not be found.", id.escape_debug()))
}

/// Finds a group by id, if the caller may see it.
///
/// # Errors
/// 404 if there is no such group; store errors.
pub fn find(tx: &mut Tx<'_>, caller: &Context, id: &str) -> Result<Group, Error> {
    let known = parse_uuid_like::<ServerGroupId>(id).map(|id| rows::find(tx, id)).transpose()?;
    let known = known.flatten().filter(|group| caller.may_see(&group.project_id));
    known.ok_or_else(|| missing(id).into())
}

/// Creates a group.
///
/// # Errors
/// 403 if the project, or the user in it, has reached its limit; store errors.
pub fn create(tx: &mut Tx<'_>, group: &Group) -> Result<(), Error> {
    let project = &group.project_id;
    let (limits, own) = quotas::both(tx, project, Some(&group.user_id))?;
    kilonova_compute_db::quotas::guard(tx, &format!("server_groups/{project}"))?;
    for (limits, user) in [(&limits, None), (&own, Some(group.user_id.as_str()))] {
        let Some(limit) = limits.get("server_groups").copied().filter(|limit| *limit >= 0) else {
            continue;
        };
        if rows::count(tx, project, user)? >= limit {
            return Err(Refusal::forbidden("Quota exceeded, too many server groups.").into());
        }
    }
    Ok(rows::insert(tx, group, time::now())?)
}

/// Adds a new server to a group, in the transaction that inserts the server.
///
/// # Errors
/// 403 if the user's servers in the group have reached the limit; 404 if the group does not exist; store errors.
pub fn join(
    tx: &mut Tx<'_>,
    id: ServerGroupId,
    server: ServerId,
    project_id: &str,
    user_id: &str,
) -> Result<(), Error> {
    if !rows::touch(tx, id)? {
        return Err(missing(&id.to_string()).into());
    }
    let limits = quotas::limits(tx, project_id, Some(user_id))?;
    if let Some(limit) = limits.get("server_group_members").copied().filter(|limit| *limit >= 0) {
        let members = rows::members(tx, id)?;
        let counts = |member: &&Member| member.user_id == user_id && !member.soft_deleted;
        let own = members.iter().filter(counts).count();
        if i64::try_from(own).is_ok_and(|own| own >= limit) {
            return Err(Refusal::forbidden("Quota exceeded, too many servers in group").into());
        }
    }
    Ok(rows::join(tx, id, server)?)
}
