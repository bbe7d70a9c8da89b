//! The security groups of a project with their rules, as Nova's proxy of Neutron shows them below microversion 2.36.

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
        let group = |group: SecurityGroup| ProjectGroup {
            id: group.id.to_string(),
            name: group.name,
            description: group.description,
            project: group.project,
            rules: group.rules,
        };
        return Ok(found.into_iter().map(group).collect());
    }
    let mut found = own_groups(compute, project.clone()).await?;
    if let Some(project) = project.filter(|_| found.is_empty()) {
        // A project gets its default group with the first request that shows it.
        let create = {
            let project = project.clone();
            move |tx: &mut Tx<'_>| ledger::groups_by_name(tx, &project, &[], time::now()).map(drop)
        };
        compute.store.write(create).await?;
        found = own_groups(compute, Some(project)).await?;
    }
    let group = |(facts, rules): (GroupFacts, Vec<Value>)| ProjectGroup {
        id: facts.id.to_string(),
        name: facts.name,
        description: facts.description,
        project: facts.project,
        rules,
    };
    Ok(found.into_iter().map(group).collect())
}

async fn own_groups(
    compute: &Compute,
    project: Option<String>,
) -> Result<Vec<(GroupFacts, Vec<Value>)>, kilonova_network::Error> {
    let read = move |tx: &mut Tx<'_>| ledger::project_groups(tx, project.as_deref());
    compute.store.read(read).await
}
