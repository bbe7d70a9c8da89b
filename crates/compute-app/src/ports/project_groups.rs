//! The security groups of a project with their rules, as Nova's proxy of Neutron shows them below microversion 2.36.

use std::collections::{BTreeSet, HashMap};

use kilonova_ids::SecurityGroupId;
use kilonova_network::ledger::{self, GroupFacts};
use kilonova_neutron::{GroupFilter, SecurityGroup};
use kilonova_store::Tx;
use kilonova_wire::{Context, Refusal, time};
use serde_json::Value;

use crate::Compute;

/// A security group with its rules, in Neutron's form.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectGroup {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// The owning project.
    pub project: String,
    /// Its rules.
    pub rules: Vec<Value>,
}

impl From<(GroupFacts, Vec<Value>)> for ProjectGroup {
    fn from((group, rules): (GroupFacts, Vec<Value>)) -> Self {
        let GroupFacts { id, name, description, project } = group;
        Self { id: id.to_string(), name, description, project, rules }
    }
}

impl From<SecurityGroup> for ProjectGroup {
    fn from(group: SecurityGroup) -> Self {
        let SecurityGroup { id, name, description, project, rules } = group;
        Self { id: id.to_string(), name, description, project, rules }
    }
}

/// The security groups of the caller's project, or of all projects. The caller of this function has checked that the
/// user may see them.
///
/// # Errors
/// 503 if the external Neutron does not answer; store errors.
pub async fn project_groups(
    compute: &Compute,
    context: &Context,
    everywhere: bool,
) -> Result<Vec<ProjectGroup>, Refusal> {
    let project = (!everywhere).then(|| context.project_id.clone());
    if let Some(cloud) = &compute.neutron {
        let filter = project.as_deref().map_or(GroupFilter::All, GroupFilter::Project);
        let found = cloud.user_groups(context, filter).await?;
        return Ok(found.into_iter().map(ProjectGroup::from).collect());
    }
    let list = async |project: Option<String>| {
        let read = move |tx: &mut Tx<'_>| ledger::project_groups(tx, project.as_deref());
        compute.store.read(read).await
    };
    let mut found = list(project.clone()).await?;
    let has_default = found.iter().any(|(group, _)| group.name == "default");
    if let Some(project) = project.filter(|project| !project.is_empty() && !has_default) {
        // A project gets its default group with the first request that shows it.
        let own = project.clone();
        let create =
            move |tx: &mut Tx<'_>| ledger::groups_by_name(tx, &own, &[], time::now()).map(drop);
        compute.store.write(create).await?;
        found = list(Some(project)).await?;
    }
    Ok(found.into_iter().map(ProjectGroup::from).collect())
}

/// A security group, if it is the caller's project's or `everywhere` is true. With an external Neutron, the caller's
/// token decides.
///
/// # Errors
/// As [`project_groups`].
pub async fn visible_group(
    compute: &Compute,
    context: &Context,
    id: SecurityGroupId,
    everywhere: bool,
) -> Result<Option<ProjectGroup>, Refusal> {
    if let Some(cloud) = &compute.neutron {
        let found = cloud.user_groups(context, GroupFilter::Ids(&[id.to_string()])).await?;
        return Ok(found.into_iter().next().map(ProjectGroup::from));
    }
    let found = compute.store.read(move |tx| ledger::group_with_rules(tx, id)).await?;
    let is_visible = |group: &GroupFacts| everywhere || group.project == context.project_id;
    Ok(found.filter(|(group, _)| is_visible(group)).map(ProjectGroup::from))
}

/// The names and projects of the groups that the rules of `groups` allow traffic from, by id.
///
/// # Errors
/// As [`project_groups`].
pub async fn source_groups(
    compute: &Compute,
    context: &Context,
    groups: &[ProjectGroup],
) -> Result<HashMap<String, (String, String)>, Refusal> {
    let facts =
        |group: &ProjectGroup| (group.id.clone(), (group.name.clone(), group.project.clone()));
    let mut known: HashMap<String, (String, String)> = groups.iter().map(facts).collect();
    let rules = groups.iter().flat_map(|group| &group.rules);
    let sources = rules.filter_map(|rule| rule["remote_group_id"].as_str());
    let missing: BTreeSet<&str> = sources.filter(|id| !known.contains_key(*id)).collect();
    let missing: Vec<String> = missing.into_iter().map(str::to_owned).collect();
    if missing.is_empty() {
        return Ok(known);
    }
    let found: Vec<ProjectGroup> = match &compute.neutron {
        Some(cloud) => {
            let found = cloud.user_groups(context, GroupFilter::Ids(&missing)).await?;
            found.into_iter().map(ProjectGroup::from).collect()
        }
        None => {
            let found = compute.store.read(move |tx| ledger::group_views(tx, &missing)).await?;
            found.into_iter().map(|group| ProjectGroup::from((group, Vec::new()))).collect()
        }
    };
    known.extend(found.iter().map(facts));
    Ok(known)
}
