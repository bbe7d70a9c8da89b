//! Checks, for several servers together, the conditions that require all providers with a common trait to be unused.
//!
//! An area consists of the providers of one tree that have one trait. A server with such a condition has an area to
//! itself: no other server of the set uses any provider of the area, in whatever order the servers are planned.

use std::collections::{BTreeSet, HashMap};

use kilonova_ids::{ProviderId, ResourceClass};

use crate::model::Candidate;
use crate::query::{Alike, Group, Query};
use crate::snapshot::Snapshot;

/// The root of a tree and the name of a trait.
pub(super) type Area<'a> = (ProviderId, &'a str);

/// The facts about a provider that the conditions need.
#[derive(Debug)]
struct Facts<'a> {
    /// Its traits with the prefix of a condition.
    traits: BTreeSet<&'a str>,
    offers: Vec<&'a ResourceClass>,
    is_unused: bool,
}

/// The facts of a tree, by provider.
type Tree<'a> = HashMap<ProviderId, Facts<'a>>;

/// The areas that the candidates of a query use, exclusively or not.
#[derive(Debug)]
pub(super) struct Areas<'a> {
    snapshot: &'a Snapshot,
    query: &'a Query,
    conditions: Vec<&'a Alike>,
    trees: HashMap<ProviderId, Tree<'a>>,
}

impl<'a> Areas<'a> {
    /// The areas of the trees that the candidates use.
    pub(super) fn of(snapshot: &'a Snapshot, query: &'a Query, candidates: &[Candidate]) -> Self {
        let conditions: Vec<&Alike> = query.alike.iter().filter(|alike| alike.vacant).collect();
        let mut areas = Self { snapshot, query, conditions, trees: HashMap::new() };
        if !areas.conditions.is_empty() {
            for candidate in candidates {
                areas.add(candidate.root);
                let served = candidate.mappings.iter().flat_map(|(_, providers)| providers);
                for root in served.filter_map(|provider| snapshot.root_of(*provider)) {
                    areas.add(root);
                }
            }
        }
        areas
    }

    fn add(&mut self, root: ProviderId) {
        let Some(tree) = self.snapshot.tree(root).filter(|_| !self.trees.contains_key(&root))
        else {
            return;
        };
        let is_meant =
            |name: &&str| self.conditions.iter().any(|one| name.starts_with(&*one.prefix));
        let facts = tree.nodes().map(|node| {
            let traits = node.traits().map(AsRef::as_ref).filter(is_meant).collect();
            let offers = node.inventories().map(|(class, _)| class).collect();
            let is_unused = node.inventories().all(|(_, inventory)| inventory.used == 0);
            (node.id(), Facts { traits, offers, is_unused })
        });
        self.trees.insert(root, facts.collect());
    }

    fn facts(&self, provider: ProviderId) -> Option<(ProviderId, &Facts<'a>)> {
        let root = self.snapshot.root_of(provider)?;
        Some((root, self.trees.get(&root)?.get(&provider)?))
    }

    /// The ways in which a candidate meets all conditions, each with the areas that it then has to itself. A candidate
    /// to which no condition applies has one way without areas.
    pub(super) fn ways(&self, candidate: &Candidate) -> Vec<BTreeSet<Area<'a>>> {
        let mut ways = vec![BTreeSet::new()];
        for condition in &self.conditions {
            let served = self.served(candidate, condition);
            if served.is_empty() {
                continue;
            }
            let areas = self.common(candidate.root, condition, &served);
            let with = |way: &BTreeSet<Area<'a>>| {
                let way = way.clone();
                areas
                    .clone()
                    .into_iter()
                    .map(move |area| way.iter().copied().chain([area]).collect())
            };
            ways = ways.iter().flat_map(with).collect();
        }
        ways
    }

    /// The areas in which a candidate uses a provider.
    pub(super) fn used(&self, candidate: &Candidate) -> BTreeSet<Area<'a>> {
        let providers = candidate.allocations.iter().map(|(provider, ..)| *provider);
        let areas =
            providers.filter_map(|provider| self.facts(provider)).flat_map(|(root, facts)| {
                let areas: Vec<Area<'a>> = facts.traits.iter().map(|name| (root, *name)).collect();
                areas
            });
        areas.collect()
    }

    /// The providers of a candidate to which a condition applies, with the requested classes.
    fn served(
        &self,
        candidate: &Candidate,
        condition: &Alike,
    ) -> Vec<(ProviderId, Vec<&'a ResourceClass>)> {
        let mut served = Vec::new();
        let is_meant =
            |group: &&Group| group.is_relevant() && condition.groups.contains(&group.suffix);
        for group in self.query.groups.iter().filter(is_meant) {
            let classes = group.resources.iter().map(|(class, _)| class);
            if group.suffix.is_empty() {
                for class in classes.filter(|class| condition.classes.contains(class)) {
                    let provider = self.unsuffixed(candidate, class);
                    served.extend(provider.map(|provider| (provider, vec![class])));
                }
            } else {
                let provider = mapped(candidate, &group.suffix).first().copied();
                served.extend(provider.map(|provider| (provider, classes.collect())));
            }
        }
        served
    }

    /// The provider from which the unsuffixed group takes a class: there, the candidate's amount exceeds the sum of the
    /// suffixed groups' amounts.
    fn unsuffixed(&self, candidate: &Candidate, class: &ResourceClass) -> Option<ProviderId> {
        let of_suffixed = |provider: ProviderId| -> i64 {
            let there = |group: &&Group| {
                !group.suffix.is_empty() && mapped(candidate, &group.suffix).contains(&provider)
            };
            let resources = self.query.groups.iter().filter(there).flat_map(|one| &one.resources);
            resources.filter(|(of, _)| of == class).map(|(_, amount)| amount).sum()
        };
        let mut taken = candidate.allocations.iter().filter(|(_, of, _)| of == class);
        taken
            .find(|(provider, _, amount)| *amount > of_suffixed(*provider))
            .map(|(provider, ..)| *provider)
    }

    /// The areas that contain all `served` providers and meet a condition.
    fn common(
        &self,
        root: ProviderId,
        condition: &Alike,
        served: &[(ProviderId, Vec<&ResourceClass>)],
    ) -> Vec<Area<'a>> {
        let Some(tree) = self.trees.get(&root) else { return Vec::new() };
        let has = |provider: ProviderId, name: &str| {
            self.facts(provider).is_some_and(|(_, facts)| facts.traits.contains(name))
        };
        let is_met = |name: &&str| {
            let of_tree = || tree.iter().filter(|(_, facts)| facts.traits.contains(*name));
            let is_asked =
                |class: &&ResourceClass| served.iter().any(|(_, classes)| classes.contains(class));
            let is_taken = |provider: &ProviderId| served.iter().any(|(one, _)| one == provider);
            name.starts_with(&*condition.prefix)
                && served.iter().all(|(provider, _)| has(*provider, name))
                && of_tree().all(|(_, facts)| facts.is_unused)
                && (!condition.whole
                    || of_tree().all(|(provider, facts)| {
                        is_taken(provider) || !facts.offers.iter().any(is_asked)
                    }))
        };
        let first = served.first().and_then(|(provider, _)| self.facts(*provider));
        let names: Vec<&'a str> =
            first.map(|(_, facts)| facts.traits.iter().copied().collect()).unwrap_or_default();
        names.into_iter().filter(is_met).map(|name| (root, name)).collect()
    }
}

/// The providers that serve a group.
fn mapped<'c>(candidate: &'c Candidate, suffix: &str) -> &'c [ProviderId] {
    let found = candidate.mappings.iter().find(|(name, _)| name == suffix);
    found.map_or(&[], |(_, providers)| providers)
}
