//! Writes candidates and provider summaries straight from the snapshot as JSON, because a response
//! can be megabytes long and every scheduler requests one per boot.
//!
//! The only decision here is the form that the client's version requires.

use std::collections::HashSet;

use kilonova_engine::{Candidate, NodeView};
use kilonova_ids::{ProviderId, ResourceClass};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::app::candidates::SearchResult;

/// The form of a response in one version.
pub struct Shape {
    /// From 1.12: allocations keyed by provider instead of a list.
    pub by_provider: bool,
    /// From 1.34.
    pub mappings: bool,
    /// From 1.17.
    pub traits: bool,
    /// Before 1.27, summaries show only the requested classes.
    pub classes: Option<HashSet<ResourceClass>>,
    /// From 1.29: parent and root in summaries.
    pub nested: bool,
}

/// The complete response.
pub struct Answer<'a> {
    pub found: &'a SearchResult,
    pub shape: &'a Shape,
}

impl Answer<'_> {
    /// The body.
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        let summaries = self.found.roots.len() * 1500;
        let mut body = Vec::with_capacity(1024 + 640 * self.found.candidates.len() + summaries);
        serde_json::to_writer(&mut body, self)?;
        Ok(body)
    }
}

impl Serialize for Answer<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { found, shape } = *self;
        let mut map = to.serialize_map(Some(2))?;
        let requests = found.candidates.iter().map(|candidate| Request { candidate, shape });
        map.serialize_entry("allocation_requests", &Listed(requests))?;
        map.serialize_entry("provider_summaries", &Summaries { found, shape })?;
        map.end()
    }
}

/// An iterator that serializes as an array.
struct Listed<I>(I);

impl<I: Iterator<Item = T> + Clone, T: Serialize> Serialize for Listed<I> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.clone())
    }
}

struct Request<'a> {
    candidate: &'a Candidate,
    shape: &'a Shape,
}

impl Serialize for Request<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        if self.shape.by_provider {
            map.serialize_entry("allocations", &ByProvider(self.candidate))?;
        } else {
            map.serialize_entry("allocations", &AsList(self.candidate))?;
        }
        if self.shape.mappings {
            map.serialize_entry("mappings", &Mappings(self.candidate))?;
        }
        map.end()
    }
}

/// Each provider of a candidate once, with the amounts it supplies.
fn by_provider(candidate: &Candidate) -> impl Iterator<Item = ProviderAmounts<'_>> {
    let all = &candidate.allocations;
    all.iter().enumerate().filter_map(move |(at, (provider, _, _))| {
        let first = all[..at].iter().all(|(earlier, _, _)| earlier != provider);
        first.then_some(ProviderAmounts { candidate, provider: *provider })
    })
}

#[derive(Clone, Copy)]
struct ProviderAmounts<'a> {
    candidate: &'a Candidate,
    provider: ProviderId,
}

struct Amounts<'a>(ProviderAmounts<'a>);

impl Serialize for Amounts<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let ProviderAmounts { candidate, provider } = self.0;
        let here = candidate.allocations.iter().filter(|(id, _, _)| *id == provider);
        to.collect_map(here.map(|(_, class, amount)| (class, amount)))
    }
}

impl Serialize for ProviderAmounts<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(1))?;
        map.serialize_entry("resources", &Amounts(*self))?;
        map.end()
    }
}

struct ByProvider<'a>(&'a Candidate);

impl Serialize for ByProvider<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(by_provider(self.0).map(|amounts| (amounts.provider, amounts)))
    }
}

struct AsList<'a>(&'a Candidate);

impl Serialize for AsList<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut list = to.serialize_seq(None)?;
        for amounts in by_provider(self.0) {
            list.serialize_element(&OfList(amounts))?;
        }
        list.end()
    }
}

struct OfList<'a>(ProviderAmounts<'a>);

impl Serialize for OfList<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(2))?;
        map.serialize_entry("resource_provider", &Named { uuid: self.0.provider })?;
        map.serialize_entry("resources", &Amounts(self.0))?;
        map.end()
    }
}

#[derive(serde::Serialize)]
struct Named {
    uuid: ProviderId,
}

struct Mappings<'a>(&'a Candidate);

impl Serialize for Mappings<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.mappings.iter().map(|(suffix, providers)| (suffix, providers)))
    }
}

struct Summaries<'a> {
    found: &'a SearchResult,
    shape: &'a Shape,
}

impl Serialize for Summaries<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { found, shape } = *self;
        let mut map = to.serialize_map(None)?;
        for root in &found.roots {
            let Some(tree) = found.snapshot.tree(*root) else { continue };
            for node in tree.nodes() {
                let id = node.id();
                if found.only.as_ref().is_none_or(|only| only.contains(&id)) {
                    map.serialize_entry(&id, &Summary { root: *root, node, shape })?;
                }
            }
        }
        map.end()
    }
}

struct Summary<'a> {
    root: ProviderId,
    node: NodeView<'a>,
    shape: &'a Shape,
}

impl Serialize for Summary<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("resources", &Stock { node: self.node, shape: self.shape })?;
        if self.shape.traits {
            map.serialize_entry("traits", &names(self.node))?;
        }
        if self.shape.nested {
            map.serialize_entry("parent_provider_uuid", &self.node.parent())?;
            map.serialize_entry("root_provider_uuid", &self.root)?;
        }
        map.end()
    }
}

/// Standard traits before custom ones, each group sorted.
fn names(node: NodeView<'_>) -> Vec<&str> {
    let mut names: Vec<&str> = node.traits().map(|name| &**name).collect();
    names.sort_unstable_by_key(|name| (name.starts_with("CUSTOM_"), *name));
    names
}

struct Stock<'a> {
    node: NodeView<'a>,
    shape: &'a Shape,
}

#[derive(serde::Serialize)]
struct Level {
    capacity: i64,
    used: i64,
}

impl Serialize for Stock<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let shown = |class: &ResourceClass| {
            self.shape.classes.as_ref().is_none_or(|only| only.contains(class))
        };
        let here = self.node.inventories().filter(|(class, _)| shown(class));
        to.collect_map(here.map(|(class, inventory)| {
            (class, Level { capacity: inventory.capacity(), used: inventory.used })
        }))
    }
}
