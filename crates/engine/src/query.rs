//! What may be asked for, and which questions make no sense.
//!
//! The grammar of the Placement API's query string is the caller's; here a query is already values.

use std::collections::HashSet;
use std::fmt;

use kilonova_ids::ProviderId;
use uuid::Uuid;

/// Resources that are asked for together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    /// Its name. Empty: the classes may come from different providers of a tree and from providers
    /// that share with it. Otherwise all of it comes from one provider.
    pub suffix: String,
    /// Amounts by class.
    pub resources: Vec<(String, i64)>,
    /// Traits, each inner list an "any of". The unsuffixed group's providers must have them
    /// collectively, a suffixed group's one provider by itself.
    pub required: Vec<Vec<String>>,
    /// Traits that no provider of the group may have.
    pub forbidden: Vec<String>,
    /// Aggregates, each inner list an "any of". For the unsuffixed group an aggregate of the root
    /// counts for the whole tree, for a suffixed one only the provider's own do.
    pub member_of: Vec<Vec<Uuid>>,
    /// Aggregates that providers of the group must not be in.
    pub forbidden_aggregates: Vec<Uuid>,
    /// Any provider of the only tree that the group may come from.
    pub in_tree: Option<ProviderId>,
}

/// A request for allocation candidates.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Query {
    /// The groups, at most one of them unsuffixed.
    pub groups: Vec<Group>,
    /// Whether suffixed groups must come from pairwise different providers.
    pub isolate: bool,
    /// Sets of suffixes whose providers must all lie at or below one of themselves.
    pub same_subtree: Vec<Vec<String>>,
    /// Traits that the root must have.
    pub root_required: Vec<String>,
    /// Traits that the root must not have.
    pub root_forbidden: Vec<String>,
    /// The most candidates to give.
    pub limit: Option<usize>,
    /// Where the walk over the trees starts: parallel searchers with different seeds spread.
    pub seed: u64,
}

/// Why a query cannot be searched for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryError {
    /// It asks for no resources at all.
    NoResources,
    /// Two groups have the same suffix.
    DuplicateGroup(String),
    /// A group names a class twice.
    DuplicateClass(String),
    /// An amount is below one.
    Amount(String),
    /// The unsuffixed group has conditions but nothing to serve.
    NothingToServe,
    /// A `same_subtree` names a group that is not there.
    UnknownSuffix(String),
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoResources => write!(f, "the query asks for no resources"),
            Self::DuplicateGroup(suffix) => write!(f, "there are two groups '{suffix}'"),
            Self::DuplicateClass(class) => write!(f, "a group asks for {class} twice"),
            Self::Amount(class) => write!(f, "the amount of {class} is not positive"),
            Self::NothingToServe => {
                write!(f, "the unsuffixed group has conditions but asks for no resources")
            }
            Self::UnknownSuffix(suffix) => {
                write!(f, "same_subtree names '{suffix}', which is no suffixed group")
            }
        }
    }
}

impl std::error::Error for QueryError {}

impl Group {
    fn is_blank(&self) -> bool {
        *self == Self { suffix: self.suffix.clone(), ..Self::default() }
    }

    /// Whether it takes part: an unsuffixed group without anything in it does not.
    pub(crate) fn counts(&self) -> bool {
        !(self.suffix.is_empty() && self.is_blank())
    }
}

impl Query {
    pub(crate) fn validate(&self) -> Result<(), QueryError> {
        if self.groups.iter().all(|group| group.resources.is_empty()) {
            return Err(QueryError::NoResources);
        }
        let mut suffixes = HashSet::new();
        for group in &self.groups {
            if !suffixes.insert(group.suffix.as_str()) {
                return Err(QueryError::DuplicateGroup(group.suffix.clone()));
            }
            if group.suffix.is_empty() && group.resources.is_empty() && !group.is_blank() {
                return Err(QueryError::NothingToServe);
            }
            let mut classes = HashSet::new();
            for (class, amount) in &group.resources {
                if *amount < 1 {
                    return Err(QueryError::Amount(class.clone()));
                }
                if !classes.insert(class) {
                    return Err(QueryError::DuplicateClass(class.clone()));
                }
            }
        }
        match self
            .same_subtree
            .iter()
            .flatten()
            .find(|s| s.is_empty() || !suffixes.contains(s.as_str()))
        {
            Some(suffix) => Err(QueryError::UnknownSuffix(suffix.clone())),
            None => Ok(()),
        }
    }
}
