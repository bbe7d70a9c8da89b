//! The grammars of query values: `VCPU:1,MEMORY_MB:512`, `T1,!T2`, `in:U1,U2`. Shared by the list
//! of providers and the search for candidates.

use kilonova_ids::{ProviderId, ResourceClass, parse_uuid_like};
use kilonova_wire::Refusal;
use uuid::Uuid;

use super::call::{Call, bad_query};

const EXAMPLE: &str = "Expected resources query string parameter in form: \
                       ?resources=VCPU:2,MEMORY_MB:1024.";

/// Parses `CLASS:AMOUNT,…`. If a class is repeated, the last amount counts. A class may be any text
/// here: the lookup refuses classes that do not exist.
pub fn resources(text: &str) -> Result<Vec<(ResourceClass, i64)>, Refusal> {
    if text.trim().is_empty() {
        return Err(Refusal::bad_request(format!(
            "Badly formed resources parameter. {EXAMPLE} Got: empty string."
        )));
    }
    let mut wanted: Vec<(ResourceClass, i64)> = Vec::new();
    for part in text.split(',') {
        let mut pieces = part.split(':');
        let (Some(class), Some(amount), None) = (pieces.next(), pieces.next(), pieces.next())
        else {
            return Err(Refusal::bad_request(format!(
                "Badly formed resources parameter. {EXAMPLE} Got: {part}."
            )));
        };
        let amount: i64 = amount.trim().parse().map_err(|_| {
            Refusal::bad_request(format!(
                "Requested resource {class} expected positive integer amount. Got: {amount}."
            ))
        })?;
        if amount < 1 {
            return Err(Refusal::bad_request(format!(
                "Requested resource {class} requires amount >= 1. Got: {amount}."
            )));
        }
        wanted.retain(|(have, _)| *have != class);
        wanted.push((ResourceClass::verbatim(class), amount));
    }
    Ok(wanted)
}

/// Required traits (an AND of ORs) and forbidden ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traits {
    /// Each inner list is an "any of".
    pub required: Vec<Vec<String>>,
    /// Traits that must be absent.
    pub forbidden: Vec<String>,
}

/// Parses all values of a `required` key. Before 1.39 only the last one counts.
pub fn traits(call: &Call, key: &str) -> Result<Traits, Refusal> {
    let mut values: Vec<&str> = call.query.all(key).collect();
    if !call.speaks(39) {
        values.drain(..values.len().saturating_sub(1));
    }
    let mut found = Traits::default();
    for value in values {
        add_traits(value, call.speaks(22), call.speaks(39), &mut found)?;
    }
    Ok(found)
}

/// Parses one value, `T1,!T2` or `in:T1,T2`, and adds its traits to `found`.
pub fn add_traits(
    value: &str,
    may_forbid: bool,
    may_choose: bool,
    found: &mut Traits,
) -> Result<(), Refusal> {
    const CHOICE: &str = "in:HW_CPU_X86_VMX,CUSTOM_MAGIC";
    if let Some(list) = value.strip_prefix("in:") {
        if !may_choose {
            return Err(bad_query(&format!(
                "The format '{CHOICE}' only supported since microversion 1.39. Got: {value}"
            )));
        }
        let any: Vec<String> = list.split(',').map(|t| t.trim().to_owned()).collect();
        if any.iter().any(String::is_empty) {
            return Err(bad_query(&format!(
                "Expected 'required' parameter value of the form: {CHOICE}. Got an empty trait \
                 in: {value}"
            )));
        }
        if any.iter().any(|name| name.starts_with('!')) {
            return Err(bad_query(&format!(
                "The format '{CHOICE}' does not support forbidden traits. Got: {value}"
            )));
        }
        found.required.push(any);
        return Ok(());
    }
    let form =
        if may_forbid { "HW_CPU_X86_VMX,!CUSTOM_MAGIC" } else { "HW_CPU_X86_VMX,CUSTOM_MAGIC" };
    for name in value.split(',').map(str::trim) {
        let bare = name.trim_start_matches('!');
        if bare.is_empty() {
            return Err(bad_query(&format!(
                "Expected 'required' parameter value of the form: {form}. Got an empty trait in: \
                 {value}"
            )));
        }
        if bare == name {
            found.required.push(vec![name.to_owned()]);
        } else if may_forbid {
            found.forbidden.push(bare.to_owned());
        } else {
            return Err(bad_query(&format!(
                "Expected 'required' parameter value of the form: {form}. Got: {value}"
            )));
        }
    }
    Ok(())
}

/// Required aggregates (an AND of ORs) and forbidden ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Aggregates {
    /// Each inner list is an "any of".
    pub member_of: Vec<Vec<Uuid>>,
    /// Aggregates that must not contain the provider.
    pub forbidden: Vec<Uuid>,
}

/// Parses all values of a `member_of` key.
pub fn aggregates(call: &Call, key: &str) -> Result<Aggregates, Refusal> {
    let values: Vec<&str> = call.query.all(key).collect();
    if values.len() > 1 && !call.speaks(24) {
        return Err(Refusal::bad_request(format!("Multiple {key} parameters are not supported")));
    }
    let mut found = Aggregates::default();
    for value in values {
        let (forbidden, rest) = match value.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, value),
        };
        let list: Vec<&str> = match rest.strip_prefix("in:") {
            Some(list) => list.split(',').collect(),
            None if value.contains(',') => {
                return Err(Refusal::bad_request(format!(
                    "Multiple values for 'member_of' must be prefixed with the 'in:' or '!in:' \
                     keyword using the valid microversion. Got: {value}"
                )));
            }
            None => vec![rest],
        };
        let mut uuids = Vec::with_capacity(list.len());
        for text in list {
            uuids.push(aggregate(text)?);
        }
        if !forbidden {
            found.member_of.push(uuids);
        } else if call.speaks(32) {
            found.forbidden.extend(uuids);
        } else {
            return Err(Refusal::bad_request(format!(
                "Forbidden {key} parameters are not supported in the specified microversion"
            )));
        }
    }
    Ok(found)
}

/// Parses the UUID of an aggregate, in every form that `PUT …/aggregates` accepts (also without some of its
/// dashes), in braces, or as `urn:uuid:`.
fn aggregate(text: &str) -> Result<Uuid, Refusal> {
    parse_uuid_like(text).or_else(|| text.parse().ok()).ok_or_else(|| {
        bad_query(&format!("Expected 'member_of' parameter to contain valid UUID(s). Got: {text}"))
    })
}

/// Parses the value of an `in_tree` key.
pub fn in_tree(text: &str) -> Result<ProviderId, Refusal> {
    parse_uuid_like(text.trim()).ok_or_else(|| {
        bad_query(&format!("Expected 'in_tree' parameter to be a format of uuid. Got: {text}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(value: &str) -> Result<Traits, Refusal> {
        let mut found = Traits::default();
        add_traits(value, true, true, &mut found).map(|()| found)
    }

    #[test]
    fn traits_are_an_and_of_ors_with_exceptions() {
        let found = parsed("A,!B,!!C").expect("the value is well formed");
        assert_eq!(found.required, vec![vec!["A".to_owned()]]);
        assert_eq!(found.forbidden, vec!["B".to_owned(), "C".to_owned()]);
        let found = parsed("in:A,B").expect("the value is well formed");
        assert_eq!(found.required, vec![vec!["A".to_owned(), "B".to_owned()]]);
        for wrong in ["", "A,", "!", "in:", "in:A,!B"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn amounts_are_positive_and_the_last_of_a_class_counts() {
        let found = resources("VCPU:1,DISK_GB:5,VCPU:2").expect("the value is well formed");
        let found: Vec<_> = found.iter().map(|(class, amount)| (class.as_str(), *amount)).collect();
        assert_eq!(found, [("DISK_GB", 5), ("VCPU", 2)]);
        for wrong in ["", "VCPU", "VCPU:", "VCPU:0", "VCPU:-1", "VCPU:1:2", "VCPU:x"] {
            assert!(resources(wrong).is_err(), "{wrong}");
        }
    }
}
