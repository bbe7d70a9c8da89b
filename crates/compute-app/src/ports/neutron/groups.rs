//! Security groups by name or id, as upstream finds them.

use kilonova_ids::{SecurityGroupId, parse_uuid_like};
use kilonova_neutron::GroupFilter;
use kilonova_wire::Refusal;

use super::{ForUser, unnamed};

/// The name of the group that Neutron adds by default.
const DEFAULT: &str = "default";

/// The groups that a request names, without the default group.
///
/// # Errors
/// 400 if there is no such group, 409 if a name is ambiguous.
pub(super) async fn find(
    user: ForUser<'_>,
    project: &str,
    names: &[String],
) -> Result<Vec<SecurityGroupId>, Refusal> {
    let mut found = Vec::new();
    for name in names.iter().filter(|name| *name != DEFAULT) {
        let group = one(user, project, name).await?;
        if !found.contains(&group) {
            found.push(group);
        }
    }
    Ok(found)
}

async fn one(user: ForUser<'_>, project: &str, name: &str) -> Result<SecurityGroupId, Refusal> {
    let list = async |filter: GroupFilter<'_>| {
        user.neutron.security_groups(user.call, filter, &["id"]).await.map_err(unnamed)
    };
    if parse_uuid_like::<SecurityGroupId>(name).is_some() {
        let by_id = list(GroupFilter::Ids(&[name.to_owned()])).await?;
        if let Some(group) = by_id.first() {
            return Ok(group.id);
        }
    }
    let by_name = list(GroupFilter::Named(project, name)).await?;
    match by_name.as_slice() {
        [group] => Ok(group.id),
        [] => Err(Refusal::bad_request(format!(
            "Unable to find security_group with name or id '{}'",
            name.escape_debug()
        ))),
        [_, _, ..] => Err(Refusal::conflict(format!(
            "Multiple security_group matches found for name '{}', use an ID to be more specific.",
            name.escape_debug()
        ))),
    }
}
