//! A request for allocation candidates, and its validation.
//!
//! The caller parses the query string of the Placement API; a [`Query`] contains typed values.

use std::collections::HashSet;
use std::fmt;

use kilonova_ids::{ProviderId, ResourceClass};
use uuid::Uuid;

/// A request group.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    /// The suffix. If it is empty, the classes may come from different providers of a tree and from
    /// sharing providers. Otherwise one provider supplies all of them.
    pub suffix: String,
    /// Amounts by class.
    pub resources: Vec<(ResourceClass, i64)>,
    /// Required traits; each inner list is an "any of". The providers of the unsuffixed group must
    /// have them collectively, the provider of a suffixed group on its own.
    pub required: Vec<Vec<String>>,
    /// Traits that no provider of the group may have.
    pub forbidden: Vec<String>,
    /// Required aggregates; each inner list is an "any of". For the unsuffixed group an aggregate
    /// of the root counts for the whole tree; for a suffixed group only the provider's own
    /// aggregates count.
    pub member_of: Vec<Vec<Uuid>>,
    /// Aggregates that no provider of the group may be in.
    pub forbidden_aggregates: Vec<Uuid>,
    /// Only the tree that contains this provider may serve the group.
    pub in_tree: Option<ProviderId>,
}

/// A condition that the providers of several groups have a trait in common.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Alike {
    /// The suffixes of the groups.
    pub groups: Vec<String>,
    /// The classes of the unsuffixed group whose providers the condition covers. Ignored unless `groups`
    /// contains that group.
    pub classes: Vec<ResourceClass>,
    /// The prefix of the common trait. Any trait with this prefix will do.
    pub prefix: String,
    /// True if the groups must use every provider of the tree that has the common trait and offers a class of the
    /// groups.
    pub whole: bool,
    /// True if all providers of the tree that have the common trait must be unused.
    pub vacant: bool,
    /// The condition in the language of the request, for explanations.
    pub constraint: String,
    /// The condition as the object of `has`, for explanations: `the devices below one switch`.
    pub description: String,
}

/// A request for allocation candidates.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Query {
    /// The groups, at most one of them unsuffixed.
    pub groups: Vec<Group>,
    /// True if suffixed groups must come from pairwise different providers
    /// (`group_policy=isolate`).
    pub isolate: bool,
    /// Sets of suffixes. One of the providers of a set must be an ancestor of all others in the
    /// set.
    pub same_subtree: Vec<Vec<String>>,
    /// Traits in common. Placement's queries have no such condition.
    pub alike: Vec<Alike>,
    /// Traits that the root must have.
    pub root_required: Vec<String>,
    /// Traits that the root must not have.
    pub root_forbidden: Vec<String>,
    /// The maximum number of candidates.
    pub limit: Option<usize>,
    /// Determines the tree at which the search starts, so that parallel searches start at different
    /// trees.
    pub seed: u64,
}

/// The reason why a query is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryError {
    /// It requests no resources at all.
    NoResources,
    /// Two groups have the same suffix.
    DuplicateGroup(String),
    /// A group names a class twice.
    DuplicateClass(ResourceClass),
    /// An amount is below one.
    Amount(ResourceClass),
    /// The unsuffixed group has conditions but no resources.
    NothingToServe,
    /// A `same_subtree` names an unknown group.
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
                write!(f, "same_subtree names '{suffix}', which is not a suffixed group")
            }
        }
    }
}

impl std::error::Error for QueryError {}

impl Group {
    fn is_empty(&self) -> bool {
        *self == Self { suffix: self.suffix.clone(), ..Self::default() }
    }

    /// True if the group takes part. An empty unsuffixed group does not.
    pub(crate) fn is_relevant(&self) -> bool {
        !(self.suffix.is_empty() && self.is_empty())
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
            if group.suffix.is_empty() && group.resources.is_empty() && !group.is_empty() {
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
