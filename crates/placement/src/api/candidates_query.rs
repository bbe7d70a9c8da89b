//! The query of `GET /allocation_candidates`: request groups by suffix, and request-wide keys.

use kilonova_engine::{Group, Query};
use kilonova_wire::Refusal;

use super::call::{Call, bad_query};
use super::syntax::{self, Traits};
use crate::codes;

/// A parsed request for candidates.
pub struct CandidatesRequest {
    /// The query for the engine.
    pub query: Query,
    /// The client's limit.
    pub limit: Option<usize>,
}

/// Keys of a request group, and the version that introduced each.
const OF_GROUP: [(u32, &str); 4] =
    [(10, "resources"), (17, "required"), (21, "member_of"), (31, "in_tree")];
/// Keys of the whole request, and the version that introduced each.
const OF_ALL: [(u32, &str); 4] =
    [(16, "limit"), (25, "group_policy"), (35, "root_required"), (36, "same_subtree")];

/// Parses the query.
pub fn read(call: &Call) -> Result<CandidatesRequest, Refusal> {
    known(call)?;
    let limit = limit(call)?;
    let policy = policy(call)?;
    let same_subtree = same_subtree(call)?;
    let roots = root_required(call)?;
    let groups = groups(call)?;
    if call.speaks(36) {
        check_subtrees(&groups, &same_subtree)?;
    } else {
        check_orphans(&groups)?;
    }
    if call.speaks(22) {
        check_contradictions(&groups)?;
    }
    if policy.is_none() && groups.iter().filter(|group| !group.suffix.is_empty()).count() > 1 {
        return Err(Refusal::bad_request(
            "The \"group_policy\" parameter is required when specifying more than one \
             \"resources{N}\" parameter.",
        ));
    }
    Ok(CandidatesRequest {
        query: Query {
            groups,
            isolate: policy == Some("isolate"),
            same_subtree,
            alike: Vec::new(),
            root_required: roots.required.into_iter().flatten().collect(),
            root_forbidden: roots.forbidden,
            limit: None,
            seed: 0,
        },
        limit,
    })
}

/// Splits a key such as `resources_GPU1` into key and suffix, if the microversion of the request
/// supports the key.
fn split<'a>(call: &Call, key: &'a str) -> Option<(&'static str, &'a str)> {
    let (_, prefix) = OF_GROUP
        .iter()
        .filter(|(minor, _)| call.speaks(*minor))
        .find(|(_, prefix)| key.starts_with(prefix))?;
    let suffix = &key[prefix.len()..];
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    let fine = suffix.is_empty()
        || if call.speaks(33) {
            suffix.len() <= 64 && suffix.bytes().all(word)
        } else {
            call.speaks(25)
                && suffix.bytes().all(|b| b.is_ascii_digit())
                && !suffix.starts_with('0')
        };
    fine.then_some((*prefix, suffix))
}

/// The patterns of group keys, for error messages.
fn patterns(call: &Call) -> String {
    let suffix = if call.speaks(33) { "[a-zA-Z0-9_-]{1,64}" } else { "[1-9][0-9]*" };
    let mut patterns: Vec<String> = OF_GROUP
        .iter()
        .filter(|(minor, _)| call.speaks(*minor))
        .map(|(_, prefix)| format!("'^{prefix}({suffix})?$'"))
        .collect();
    patterns.sort();
    patterns.join(", ")
}

fn known(call: &Call) -> Result<(), Refusal> {
    if !call.speaks(25) && call.query.get("resources").is_none() {
        return Err(bad_query("'resources' is a required property"));
    }
    let of_all = |key: &str| OF_ALL.iter().any(|(minor, k)| call.speaks(*minor) && *k == key);
    let unknown = call.query.0.iter().find(|(key, _)| !of_all(key) && split(call, key).is_none());
    if let Some((key, _)) = unknown {
        return Err(bad_query(&if call.speaks(25) {
            format!("'{key}' does not match any of the regexes: {}", patterns(call))
        } else {
            format!("Additional properties are not allowed ('{key}' was unexpected)")
        }));
    }
    Ok(())
}

fn limit(call: &Call) -> Result<Option<usize>, Refusal> {
    let Some(text) = call.query.all("limit").next() else { return Ok(None) };
    let digits = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    if text.is_empty() || !digits {
        return Err(bad_query(&format!(
            "'{text}' does not match '^[1-9][0-9]*$'\n\nFailed validating 'pattern' in schema"
        )));
    }
    Ok(Some(text.parse().unwrap_or(usize::MAX)))
}

fn policy(call: &Call) -> Result<Option<&str>, Refusal> {
    let wrong = call.query.get("group_policy").filter(|text| !matches!(*text, "none" | "isolate"));
    match wrong {
        Some(text) => Err(bad_query(&format!("'{text}' is not one of ['none', 'isolate']"))),
        None => Ok(call.query.all("group_policy").next()),
    }
}

fn same_subtree(call: &Call) -> Result<Vec<Vec<String>>, Refusal> {
    let mut sets = Vec::new();
    for value in call.query.all("same_subtree") {
        let mut set: Vec<String> = value.split(',').map(|s| s.trim().to_owned()).collect();
        if set.iter().any(String::is_empty) {
            return Err(Refusal::bad_request(
                "Empty string (unsuffixed group) can not be specified in `same_subtree` ",
            )
            .with_code(codes::QUERY_BAD_VALUE));
        }
        set.sort();
        set.dedup();
        sets.push(set);
    }
    Ok(sets)
}

fn root_required(call: &Call) -> Result<Traits, Refusal> {
    let mut found = Traits::default();
    let values: Vec<&str> = call.query.all("root_required").collect();
    let value = match values.as_slice() {
        [] => return Ok(found),
        [value] => value,
        _ => {
            return Err(Refusal::bad_request(
                "Query parameter 'root_required' may be specified only once.",
            )
            .with_code(codes::QUERY_DUPLICATE_KEY));
        }
    };
    syntax::add_traits(value, true, false, &mut found)?;
    let both: Vec<&str> = found
        .forbidden
        .iter()
        .filter(|name| found.required.iter().flatten().any(|have| have == *name))
        .map(String::as_str)
        .collect();
    if both.is_empty() {
        return Ok(found);
    }
    Err(Refusal::bad_request(format!(
        "Conflicting required and forbidden traits found in root_required: {}",
        both.join(", ")
    ))
    .with_code(codes::QUERY_BAD_VALUE))
}

fn groups(call: &Call) -> Result<Vec<Group>, Refusal> {
    let mut groups: Vec<Group> = Vec::new();
    for (key, value) in &call.query.0 {
        let Some((prefix, suffix)) = split(call, key) else { continue };
        let at = match groups.iter().position(|group| group.suffix == suffix) {
            Some(at) => at,
            None => {
                groups.push(Group { suffix: suffix.to_owned(), ..Group::default() });
                groups.len() - 1
            }
        };
        let Some(group) = groups.get_mut(at) else { continue };
        match prefix {
            "resources" => group.resources = syntax::resources(value)?,
            "required" => {
                let traits = syntax::traits(call, key)?;
                group.required = traits.required;
                group.forbidden = traits.forbidden;
            }
            "member_of" => {
                let aggregates = syntax::aggregates(call, key)?;
                group.member_of = aggregates.member_of;
                group.forbidden_aggregates = aggregates.forbidden;
            }
            _ => group.in_tree = Some(syntax::in_tree(value)?),
        }
    }
    Ok(groups)
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.map(|name| format!("'{name}'")).collect();
    format!("[{}]", quoted.join(", "))
}

fn check_subtrees(groups: &[Group], same_subtree: &[Vec<String>]) -> Result<(), Refusal> {
    let named: Vec<&str> = same_subtree.iter().flatten().map(String::as_str).collect();
    if groups.iter().all(|group| group.resources.is_empty()) {
        return Err(Refusal::bad_request(
            "There must be at least one resources or resources[$S] parameter.",
        )
        .with_code(codes::QUERY_MISSING_VALUE));
    }
    let loose: Vec<&str> = groups
        .iter()
        .filter(|group| group.resources.is_empty() && !named.contains(&group.suffix.as_str()))
        .map(|group| group.suffix.as_str())
        .collect();
    if !loose.is_empty() {
        return Err(Refusal::bad_request(format!(
            "Resourceless suffixed group request should be specified in `same_subtree` query \
             param: bad group(s) - {}.",
            listed(loose.into_iter())
        ))
        .with_code(codes::QUERY_BAD_VALUE));
    }
    let have = || groups.iter().map(|group| group.suffix.as_str());
    let absent: Vec<&str> =
        named.into_iter().filter(|name| !have().any(|suffix| suffix == *name)).collect();
    if absent.is_empty() {
        return Ok(());
    }
    Err(Refusal::bad_request(format!(
        "Real suffixes should be specified in `same_subtree`: {} not found in {}.",
        listed(absent.into_iter()),
        listed(have())
    ))
    .with_code(codes::QUERY_BAD_VALUE))
}

/// Before 1.36 every group must request resources.
fn check_orphans(groups: &[Group]) -> Result<(), Refusal> {
    let orphans = |prefix: &str, has: &dyn Fn(&Group) -> bool| -> Vec<String> {
        groups
            .iter()
            .filter(|group| group.resources.is_empty() && has(group))
            .map(|group| format!("{prefix}{}", group.suffix))
            .collect()
    };
    let traits = orphans("required", &|group| !group.required.is_empty());
    if !traits.is_empty() {
        return Err(Refusal::bad_request(format!(
            "All traits parameters must be associated with resources.  Found the following \
             orphaned traits keys: {}",
            traits.join(", ")
        )));
    }
    let members = orphans("member_of", &|group| {
        !(group.member_of.is_empty() && group.forbidden_aggregates.is_empty())
    });
    if !members.is_empty() {
        return Err(Refusal::bad_request(format!(
            "All member_of parameters must be associated with resources. Found the following \
             orphaned member_of keys: {}",
            members.join(", ")
        )));
    }
    if groups.iter().any(|group| group.resources.is_empty()) {
        return Err(Refusal::bad_request("All request groups must specify resources."));
    }
    if groups.is_empty() {
        return Err(Refusal::bad_request(
            "At least one request group (`resources` or `resources{$S}`) is required.",
        ));
    }
    Ok(())
}

fn check_contradictions(groups: &[Group]) -> Result<(), Refusal> {
    let mut found: Vec<String> = Vec::new();
    for group in groups {
        for any in &group.required {
            if any.iter().all(|name| group.forbidden.contains(name)) {
                let mut names = any.clone();
                names.sort();
                found.push(format!("required{}: ({})", group.suffix, names.join(", ")));
            }
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    found.sort();
    Err(Refusal::bad_request(format!(
        "Conflicting required and forbidden traits found in the following traits keys: {}",
        found.join(", ")
    )))
}
