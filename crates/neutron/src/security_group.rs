//! Security groups. Neutron applies their rules.

use kilonova_ids::SecurityGroupId;
use serde::Deserialize;
use serde_json::Value;

use crate::client::MAX_IDS;
use crate::values::{Query, or_default};
use crate::{Call, Error, Neutron};

/// A security group. Attributes that were not requested have their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SecurityGroup {
    /// Its id.
    pub id: SecurityGroupId,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its description.
    #[serde(default, deserialize_with = "or_default")]
    pub description: String,
    /// The owning project.
    #[serde(default, rename = "tenant_id")]
    pub project: String,
    /// Its rules, as Neutron shows them.
    #[serde(default, rename = "security_group_rules")]
    pub rules: Vec<Value>,
}

/// The security groups to list.
#[derive(Debug, Clone, Copy)]
pub enum GroupFilter<'a> {
    /// All groups that the caller can see.
    All,
    /// The groups of a project.
    Project(&'a str),
    /// The groups that other projects share with the caller
    /// ([`SecurityGroupsSharedFiltering`](crate::Extension::SecurityGroupsSharedFiltering)).
    Shared,
    /// The groups of a project with this name.
    Named(&'a str, &'a str),
    /// The groups with these ids.
    Ids(&'a [String]),
}

impl Neutron {
    /// The security groups that the filter selects and the caller can see, with these fields, or with all. `id` must be
    /// among the fields. The list is faster without `security_group_rules`.
    ///
    /// # Errors
    /// Neutron's errors.
    pub async fn security_groups(
        &self,
        call: Call<'_>,
        filter: GroupFilter<'_>,
        fields: &[&str],
    ) -> Result<Vec<SecurityGroup>, Error> {
        let queries = match filter {
            GroupFilter::All => vec![Query::default()],
            GroupFilter::Project(project) => vec![Query::default().with("tenant_id", project)],
            GroupFilter::Named(project, name) => {
                vec![Query::default().with("name", name).with("tenant_id", project)]
            }
            GroupFilter::Shared => vec![Query::default().with("shared", "True")],
            GroupFilter::Ids(ids) => ids
                .chunks(MAX_IDS)
                .map(|some| some.iter().fold(Query::default(), |query, id| query.with("id", id)))
                .collect(),
        };
        let mut found = Vec::new();
        for query in queries {
            let path = "/security-groups";
            found.extend(self.list(call, path, "security_groups", &query.fields(fields)).await?);
        }
        Ok(found)
    }
}
