//! Computes the candidates of a query literally: every choice of a provider for every part, under
//! every root, checked as a whole. Slow, and written for readability.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_engine::{Alike, Candidate, Group, Inventory, Provider, Query, Tree};
use kilonova_ids::{ProviderId, ResourceClass};
use uuid::Uuid;

/// A candidate in a form in which order does not matter, without its root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Canonical {
    pub allocations: BTreeMap<(ProviderId, ResourceClass), i64>,
    pub mappings: BTreeMap<String, BTreeSet<ProviderId>>,
}

pub fn canonical(candidate: &Candidate) -> Canonical {
    let amounts = candidate.allocations.iter();
    let served = candidate.mappings.iter();
    Canonical {
        allocations: amounts.map(|(p, class, n)| ((*p, class.clone()), *n)).collect(),
        mappings: served.map(|(s, ids)| (s.clone(), ids.iter().copied().collect())).collect(),
    }
}

struct Part<'a> {
    group: &'a Group,
    resources: Vec<(ResourceClass, i64)>,
}

struct Forest<'a> {
    providers: BTreeMap<ProviderId, &'a Provider>,
    roots: BTreeMap<ProviderId, ProviderId>,
}

/// For each condition of unused providers that applies to a candidate: the traits with which the candidate meets it.
pub type Witnesses = Vec<Vec<String>>;

/// All candidates.
pub fn candidates(trees: &[Tree], query: &Query) -> BTreeSet<Canonical> {
    witnessed(trees, query).into_keys().collect()
}

/// All candidates, each with the root under which it was found last, and its witnesses there.
pub fn witnessed(trees: &[Tree], query: &Query) -> BTreeMap<Canonical, (ProviderId, Witnesses)> {
    let mut forest = Forest { providers: BTreeMap::new(), roots: BTreeMap::new() };
    for tree in trees {
        for provider in &tree.providers {
            forest.providers.insert(provider.id, provider);
            forest.roots.insert(provider.id, tree.providers[0].id);
        }
    }
    let mut parts = Vec::new();
    for group in &query.groups {
        if group.suffix.is_empty() {
            let each = |need: &(ResourceClass, i64)| Part { group, resources: vec![need.clone()] };
            parts.extend(group.resources.iter().map(each));
        } else {
            parts.push(Part { group, resources: group.resources.clone() });
        }
    }
    let mut found = BTreeMap::new();
    for tree in trees {
        let anchor = &tree.providers[0];
        if !query.root_required.iter().all(|t| has_trait(anchor, t))
            || query.root_forbidden.iter().any(|t| has_trait(anchor, t))
        {
            continue;
        }
        let choices: Vec<Vec<&Provider>> =
            parts.iter().map(|part| forest.choices(anchor, part)).collect();
        for picks in product(&choices) {
            if forest.holds(query, anchor, &parts, &picks) {
                let vacant = query.alike.iter().filter(|alike| alike.vacant);
                let common =
                    vacant.filter_map(|alike| forest.common(alike, anchor.id, &parts, &picks));
                let found_here = (anchor.id, common.collect());
                found.insert(merged(&parts, &picks), found_here);
            }
        }
    }
    found
}

impl Forest<'_> {
    /// Providers that may serve a part for an anchor, each examined alone.
    fn choices(&self, anchor: &Provider, part: &Part<'_>) -> Vec<&Provider> {
        let group = part.group;
        let unsuffixed = group.suffix.is_empty();
        let wanted_tree = group.in_tree.map(|provider| self.roots.get(&provider));
        self.providers
            .values()
            .copied()
            .filter(|provider| {
                let root = self.roots[&provider.id];
                let own = root == anchor.id;
                let right_tree = match wanted_tree {
                    None => true,
                    Some(wanted) => wanted == Some(&root) && (own || !unsuffixed),
                };
                let member = in_all(provider, &group.member_of)
                    || (unsuffixed && own && in_all(anchor, &group.member_of));
                let barred = in_any(provider, &group.forbidden_aggregates)
                    || (unsuffixed && in_any(anchor, &group.forbidden_aggregates));
                (own || self.shares_with(provider, anchor))
                    && right_tree
                    && member
                    && !barred
                    && !group.forbidden.iter().any(|t| has_trait(provider, t))
                    && (unsuffixed || has_traits(&[provider], &group.required))
                    && part.resources.iter().all(|(class, n)| fits(provider, class, *n))
            })
            .collect()
    }

    fn shares_with(&self, provider: &Provider, anchor: &Provider) -> bool {
        has_trait(provider, "MISC_SHARES_VIA_AGGREGATE")
            && self.providers.values().any(|other| {
                self.roots[&other.id] == anchor.id
                    && other.aggregates.iter().any(|a| provider.aggregates.contains(a))
            })
    }

    fn holds(
        &self,
        query: &Query,
        anchor: &Provider,
        parts: &[Part<'_>],
        picks: &[&Provider],
    ) -> bool {
        let served = |suffix: &str| -> Vec<&Provider> {
            let of_group = parts.iter().zip(picks).filter(|(part, _)| part.group.suffix == suffix);
            of_group.map(|(_, provider)| *provider).collect()
        };
        let unsuffixed = query.groups.iter().find(|group| group.suffix.is_empty());
        let collective = unsuffixed.is_none_or(|group| has_traits(&served(""), &group.required));
        let alone: Vec<ProviderId> = parts
            .iter()
            .zip(picks)
            .filter(|(part, _)| !part.group.suffix.is_empty())
            .map(|(_, provider)| provider.id)
            .collect();
        let apart = alone.iter().collect::<BTreeSet<_>>().len() == alone.len();
        let subtrees = query.same_subtree.iter().all(|set| {
            let all: Vec<&Provider> = set.iter().flat_map(|suffix| served(suffix)).collect();
            all.iter().any(|top| all.iter().all(|one| self.is_under(one.id, top.id)))
        });
        let room = merged(parts, picks).allocations.into_iter().all(|((provider, class), n)| {
            inventory(self.providers[&provider], &class).is_some_and(|inventory| {
                inventory.used + n <= inventory.capacity() && n <= inventory.max_unit
            })
        });
        let alike = query.alike.iter().all(|alike| {
            self.common(alike, anchor.id, parts, picks).is_none_or(|common| !common.is_empty())
        });
        collective && (apart || !query.isolate) && subtrees && room && alike
    }

    /// The traits with which the picks meet a condition; `None` if it applies to none of them.
    fn common(
        &self,
        alike: &Alike,
        anchor: ProviderId,
        parts: &[Part<'_>],
        picks: &[&Provider],
    ) -> Option<Vec<String>> {
        let is_meant = |part: &Part<'_>| {
            let suffix = &part.group.suffix;
            let of_class = |(class, _): &(ResourceClass, i64)| alike.classes.contains(class);
            alike.groups.contains(suffix)
                && (!suffix.is_empty() || part.resources.iter().any(of_class))
        };
        let meant: Vec<(&Part<'_>, &Provider)> = parts
            .iter()
            .zip(picks)
            .filter(|(part, _)| is_meant(part))
            .map(|(part, provider)| (part, *provider))
            .collect();
        let (_, first) = meant.first()?;
        let all_taken = |name: &str| {
            self.providers.values().all(|provider| {
                self.roots[&provider.id] != anchor
                    || !has_trait(provider, name)
                    || meant.iter().any(|(_, taken)| taken.id == provider.id)
                    || !meant
                        .iter()
                        .flat_map(|(part, _)| &part.resources)
                        .any(|(class, _)| inventory(provider, class).is_some())
            })
        };
        let is_vacant = |name: &str| {
            self.providers.values().all(|provider| {
                self.roots[&provider.id] != anchor
                    || !has_trait(provider, name)
                    || provider.inventories.iter().all(|(_, inventory)| inventory.used == 0)
            })
        };
        let is_met = |name: &&std::sync::Arc<str>| {
            name.starts_with(&*alike.prefix)
                && meant.iter().all(|(_, provider)| has_trait(provider, name))
                && (!alike.whole || all_taken(name))
                && (!alike.vacant || is_vacant(name))
        };
        Some(first.traits.iter().filter(is_met).map(ToString::to_string).collect())
    }

    fn is_under(&self, provider: ProviderId, top: ProviderId) -> bool {
        provider == top
            || self.providers[&provider].parent.is_some_and(|parent| self.is_under(parent, top))
    }
}

fn merged(parts: &[Part<'_>], picks: &[&Provider]) -> Canonical {
    let mut merged = Canonical { allocations: BTreeMap::new(), mappings: BTreeMap::new() };
    for (part, provider) in parts.iter().zip(picks) {
        merged.mappings.entry(part.group.suffix.clone()).or_default().insert(provider.id);
        for (class, n) in &part.resources {
            *merged.allocations.entry((provider.id, class.clone())).or_default() += n;
        }
    }
    merged
}

fn product<'a>(choices: &[Vec<&'a Provider>]) -> Vec<Vec<&'a Provider>> {
    let mut all = vec![Vec::new()];
    for list in choices {
        all = all
            .iter()
            .flat_map(|start: &Vec<&Provider>| {
                list.iter().map(move |next| [start.as_slice(), &[*next]].concat())
            })
            .collect();
    }
    all
}

fn inventory<'a>(provider: &'a Provider, class: &str) -> Option<&'a Inventory> {
    provider.inventories.iter().find(|(c, _)| **c == *class).map(|(_, inventory)| inventory)
}

fn fits(provider: &Provider, class: &str, n: i64) -> bool {
    inventory(provider, class).is_some_and(|i| {
        (i.used + n) as f64 <= (i.total - i.reserved) as f64 * i.allocation_ratio
            && i.min_unit <= n
            && n <= i.max_unit
            && n % i.step_size == 0
    })
}

fn has_trait(provider: &Provider, name: &str) -> bool {
    provider.traits.iter().any(|t| &**t == name)
}

fn has_traits(providers: &[&Provider], required: &[Vec<String>]) -> bool {
    required.iter().all(|any| any.iter().any(|t| providers.iter().any(|p| has_trait(p, t))))
}

fn in_all(provider: &Provider, member_of: &[Vec<Uuid>]) -> bool {
    member_of.iter().all(|any| in_any(provider, any))
}

fn in_any(provider: &Provider, aggregates: &[Uuid]) -> bool {
    aggregates.iter().any(|a| provider.aggregates.contains(a))
}
