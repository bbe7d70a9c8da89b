//! Filters of the list of providers. Each provider must pass on its own: unlike in a search for
//! candidates, the rest of its tree does not count.

use std::collections::{BTreeSet, HashMap};

use kilonova_engine::{Provider, Tree};
use kilonova_ids::{ProviderId, ResourceClass};
use kilonova_store::Tx;
use kilonova_wire::Refusal;
use uuid::Uuid;

use super::{classes, traits};
use crate::db::providers::{self, ProviderRow};
use crate::{Error, db};

/// The filters of `GET /resource_providers`. A provider must pass all of them.
#[derive(Debug, Clone, Default)]
pub struct ProviderFilters {
    /// The exact name.
    pub name: Option<String>,
    /// The UUID.
    pub id: Option<ProviderId>,
    /// A provider of the requested tree.
    pub in_tree: Option<ProviderId>,
    /// Each inner list is an "any of".
    pub member_of: Vec<Vec<Uuid>>,
    /// Aggregates that must not contain the provider.
    pub forbidden_aggregates: Vec<Uuid>,
    /// Each inner list is an "any of".
    pub required: Vec<Vec<String>>,
    /// Traits that must be absent.
    pub forbidden: Vec<String>,
    /// Requested amounts, each of which must fit.
    pub resources: Vec<(ResourceClass, i64)>,
}

impl ProviderFilters {
    /// True if the filters examine inventories, traits or aggregates.
    fn looks_inside(&self) -> bool {
        !(self.member_of.is_empty()
            && self.forbidden_aggregates.is_empty()
            && self.required.is_empty()
            && self.forbidden.is_empty()
            && self.resources.is_empty())
    }

    /// True if the filters leave at most the providers of one tree.
    fn is_narrow(&self) -> bool {
        self.name.is_some() || self.id.is_some() || self.in_tree.is_some()
    }

    fn pass(&self, row: &ProviderRow) -> bool {
        self.name.as_ref().is_none_or(|name| *name == row.name)
            && self.id.is_none_or(|id| id == row.id)
    }

    fn pass_inside(&self, provider: &Provider) -> bool {
        let in_any = |groups: &[Uuid]| groups.iter().any(|g| provider.aggregates.contains(g));
        let has = |name: &String| provider.traits.iter().any(|t| **t == **name);
        self.member_of.iter().all(|any| in_any(any))
            && !in_any(&self.forbidden_aggregates)
            && self.required.iter().all(|any| any.iter().any(has))
            && !self.forbidden.iter().any(has)
            && self.resources.iter().all(|(class, amount)| {
                provider.inventories.iter().any(|(have, inv)| {
                    have == class
                        && inv.used + amount <= inv.capacity()
                        && (inv.min_unit..=inv.max_unit).contains(amount)
                        && amount % inv.step_size == 0
                })
            })
    }
}

/// The providers that pass, in order of creation.
///
/// # Errors
/// 400 for an unknown class or trait.
pub fn list(tx: &mut Tx<'_>, filters: &ProviderFilters) -> Result<Vec<ProviderRow>, Error> {
    check(tx, filters)?;
    let mut rows = match (&filters.name, filters.id, filters.in_tree) {
        (_, _, Some(member)) => match providers::by_id(tx, member)? {
            Some(row) => providers::of_root(tx, row.root)?,
            None => Vec::new(),
        },
        (Some(name), _, None) => providers::by_name(tx, name)?.into_iter().collect(),
        (None, Some(id), None) => providers::by_id(tx, id)?.into_iter().collect(),
        (None, None, None) => providers::all(tx)?,
    };
    rows.retain(|row| filters.pass(row));
    if filters.looks_inside() && !rows.is_empty() {
        // The other filters may leave few providers; then only their trees are read.
        let trees: Vec<Tree> = if filters.is_narrow() {
            let roots: BTreeSet<ProviderId> = rows.iter().map(|row| row.root).collect();
            let roots: Vec<ProviderId> = roots.into_iter().collect();
            db::trees::some(tx, &roots)?.into_iter().flatten().collect()
        } else {
            db::trees::all(tx)?
        };
        let inside: HashMap<ProviderId, Provider> = trees
            .into_iter()
            .flat_map(|tree| tree.providers)
            .map(|provider| (provider.id, provider))
            .collect();
        rows.retain(|row| {
            inside.get(&row.id).is_some_and(|provider| filters.pass_inside(provider))
        });
    }
    Ok(rows)
}

fn check(tx: &mut Tx<'_>, filters: &ProviderFilters) -> Result<(), Error> {
    for (class, _) in &filters.resources {
        if !classes::exists(tx, class)? {
            return Err(Refusal::bad_request(format!(
                "Invalid resource class in resources parameter: {}",
                classes::unknown(class)
            ))
            .into());
        }
    }
    let named = filters.required.iter().flatten().chain(&filters.forbidden);
    let missing = traits::unknown(tx, named.map(String::as_str))?;
    if missing.is_empty() {
        return Ok(());
    }
    Err(Refusal::bad_request(format!(
        "Invalid trait(s) in \"required\" parameter: No such trait(s): {}.",
        missing.join(", ")
    ))
    .into())
}
