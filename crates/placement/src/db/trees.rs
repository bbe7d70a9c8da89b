//! Whole provider trees in the engine's form: one tree after a change, all trees at startup.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use kilonova_engine::{Inventory, Provider, Tree};
use kilonova_ids::{ProviderId, ResourceClass};
use kilonova_store::{Error, Row, Tx, params, statements};

use super::providers::ProviderRow;
use super::{aggregates, inventories, providers};

/// The columns of an inventory. No joined table has a column with any of these names.
macro_rules! inventory {
    () => {
        "provider_id, class, total, reserved, min_unit, max_unit, step_size, allocation_ratio, used"
    };
}

/// The maximum number of trees that are read in one round trip.
const MAX_TREES_PER_TRIP: usize = 32;

statements! {
    /// All inventories.
    ALL_INVENTORIES = concat!("SELECT ", inventory!(), " FROM inventories ORDER BY class");
    /// The traits of all providers.
    ALL_TRAITS = "SELECT provider_id, trait FROM provider_traits ORDER BY trait";
    /// The aggregates of all providers.
    ALL_AGGREGATES = "SELECT provider_id, aggregate FROM provider_aggregates ORDER BY aggregate";
    /// Inventories of a tree.
    INVENTORIES = concat!("SELECT ", inventory!(), " FROM inventories i
        JOIN resource_providers p ON p.id = i.provider_id WHERE p.root_id = ?1 ORDER BY i.class");
    /// Traits of a tree.
    TRAITS = "SELECT t.provider_id, t.trait FROM provider_traits t
        JOIN resource_providers p ON p.id = t.provider_id WHERE p.root_id = ?1 ORDER BY t.trait";
    /// Aggregates of a tree.
    AGGREGATES = "SELECT a.provider_id, a.aggregate FROM provider_aggregates a
        JOIN resource_providers p ON p.id = a.provider_id WHERE p.root_id = ?1
        ORDER BY a.aggregate";
}

/// All trees.
pub fn all(tx: &mut Tx<'_>) -> Result<Vec<Tree>, Error> {
    let rows = providers::all(tx)?;
    let inventories = tx.rows(ALL_INVENTORIES, params![])?;
    let traits = tx.rows(ALL_TRAITS, params![])?;
    let groups = tx.rows(ALL_AGGREGATES, params![])?;
    let mut trees: BTreeMap<ProviderId, Vec<ProviderRow>> = BTreeMap::new();
    for row in rows {
        trees.entry(row.root).or_default().push(row);
    }
    let mut details = ProviderDetails::read(&inventories, &traits, &groups)?;
    Ok(trees.into_values().map(|rows| details.tree(rows)).collect())
}

/// One tree; `None` if its root does not exist.
pub fn one(tx: &mut Tx<'_>, root: ProviderId) -> Result<Option<Tree>, Error> {
    for sql in [INVENTORIES, TRAITS, AGGREGATES] {
        tx.expect(sql, params![root])?;
    }
    let rows = providers::of_root(tx, root)?;
    if rows.is_empty() {
        return Ok(None);
    }
    let inventories = tx.rows(INVENTORIES, params![root])?;
    let traits = tx.rows(TRAITS, params![root])?;
    let groups = tx.rows(AGGREGATES, params![root])?;
    Ok(Some(ProviderDetails::read(&inventories, &traits, &groups)?.tree(rows)))
}

/// The trees of some roots; `None` for a root that does not exist. The statements are sent to the
/// database together.
pub fn some(tx: &mut Tx<'_>, roots: &[ProviderId]) -> Result<Vec<Option<Tree>>, Error> {
    let mut trees = Vec::with_capacity(roots.len());
    for roots in roots.chunks(MAX_TREES_PER_TRIP) {
        let mut asked = Vec::with_capacity(roots.len());
        for root in roots {
            asked.push([
                tx.ask(providers::OF_ROOT, params![*root])?,
                tx.ask(INVENTORIES, params![*root])?,
                tx.ask(TRAITS, params![*root])?,
                tx.ask(AGGREGATES, params![*root])?,
            ]);
        }
        for [rows, inventories, traits, groups] in asked {
            let rows = providers::rows(&tx.answer(rows)?)?;
            let (inventories, traits) = (tx.answer(inventories)?, tx.answer(traits)?);
            let mut details = ProviderDetails::read(&inventories, &traits, &tx.answer(groups)?)?;
            trees.push((!rows.is_empty()).then(|| details.tree(rows)));
        }
    }
    Ok(trees)
}

/// Inventories, traits and aggregates by provider.
#[derive(Default)]
struct ProviderDetails {
    inventories: HashMap<ProviderId, Vec<(ResourceClass, Inventory)>>,
    traits: HashMap<ProviderId, Vec<Arc<str>>>,
    aggregates: HashMap<ProviderId, Vec<uuid::Uuid>>,
}

impl ProviderDetails {
    fn read(amounts: &[Row], traits: &[Row], groups: &[Row]) -> Result<Self, Error> {
        let mut details = Self::default();
        let mut classes: HashSet<ResourceClass> = HashSet::new();
        let mut names: HashSet<Arc<str>> = HashSet::new();
        for row in amounts {
            let inventory = inventories::numbers(row)?;
            let class = match classes.get(row.text("class")?) {
                Some(known) => known.clone(),
                None => {
                    let new = row.class("class")?;
                    classes.insert(new.clone());
                    new
                }
            };
            details.inventories.entry(row.id("provider_id")?).or_default().push((class, inventory));
        }
        for row in traits {
            let text = row.text("trait")?;
            let have = match names.get(text) {
                Some(known) => Arc::clone(known),
                None => {
                    let new: Arc<str> = Arc::from(text);
                    names.insert(Arc::clone(&new));
                    new
                }
            };
            details.traits.entry(row.id("provider_id")?).or_default().push(have);
        }
        for row in groups {
            let group = aggregates::parse(row.text("aggregate")?)?;
            details.aggregates.entry(row.id("provider_id")?).or_default().push(group);
        }
        Ok(details)
    }

    fn tree(&mut self, rows: Vec<ProviderRow>) -> Tree {
        Tree {
            providers: parents_first(rows)
                .into_iter()
                .map(|row| Provider {
                    inventories: self.inventories.remove(&row.id).unwrap_or_default(),
                    traits: self.traits.remove(&row.id).unwrap_or_default(),
                    aggregates: self.aggregates.remove(&row.id).unwrap_or_default(),
                    id: row.id,
                    name: row.name.into(),
                    parent: row.parent,
                    version: row.version,
                })
                .collect(),
        }
    }
}

/// Sorts parents before children. The order of creation does not suffice, because a child may be
/// older than a new parent.
fn parents_first(rows: Vec<ProviderRow>) -> Vec<ProviderRow> {
    let mut below: HashMap<Option<ProviderId>, Vec<ProviderRow>> = HashMap::new();
    for row in rows {
        below.entry(row.parent).or_default().push(row);
    }
    let mut ordered: Vec<ProviderRow> = below.remove(&None).unwrap_or_default();
    let mut at = 0;
    while let Some(row) = ordered.get(at) {
        let children = below.remove(&Some(row.id)).unwrap_or_default();
        ordered.extend(children);
        at += 1;
    }
    ordered
}
