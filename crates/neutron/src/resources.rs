//! The resources that a port requests from resource providers: guaranteed bandwidth and packet rates.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Port;

/// The request of a port.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ResourceRequest {
    /// The groups, each from one provider.
    pub groups: Vec<RequestGroup>,
    /// Groups whose providers are in one subtree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub same_subtree: Vec<String>,
}

/// Resources of one provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestGroup {
    /// Its id, or the port's id if Neutron gives groups no ids.
    pub id: String,
    /// The traits that the provider needs.
    #[serde(default)]
    pub required: Vec<String>,
    /// Amounts by class.
    pub resources: BTreeMap<String, i64>,
}

impl ResourceRequest {
    /// True if it requests nothing.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// True if these are the ids of its groups.
    pub fn has_groups<'a>(&self, ids: impl IntoIterator<Item = &'a String>) -> bool {
        let mut left: Vec<&String> = self.groups.iter().map(|group| &group.id).collect();
        for id in ids {
            let Some(at) = left.iter().position(|one| *one == id) else { return false };
            left.swap_remove(at);
        }
        left.is_empty()
    }
}

impl Port {
    /// The resources that it requests from resource providers, which only administrators see; `None` if the request has
    /// an unknown form.
    pub fn requested(&self) -> Option<ResourceRequest> {
        let request = &self.resource_request;
        if request.is_empty() {
            return Some(ResourceRequest::default());
        }
        if !request.contains_key("request_groups") {
            let group = with_id(request, &self.id.to_string());
            return Some(ResourceRequest {
                groups: vec![serde_json::from_value(group).ok()?],
                same_subtree: Vec::new(),
            });
        }
        let groups = request.get("request_groups").cloned()?;
        let groups: Vec<RequestGroup> = serde_json::from_value(groups).ok()?;
        let same_subtree = match request.get("same_subtree") {
            None | Some(Value::Null) => Vec::new(),
            Some(ids) => serde_json::from_value(ids.clone()).ok()?,
        };
        Some(ResourceRequest { groups, same_subtree })
    }
}

fn with_id(group: &Map<String, Value>, id: &str) -> Value {
    let mut group = group.clone();
    group.insert("id".to_owned(), Value::from(id));
    Value::Object(group)
}

/// The value of `allocation` in `binding:profile`: the provider of each group, or the only provider if Neutron gives
/// groups no ids.
pub fn allocation(port: &str, providers: &BTreeMap<String, String>) -> Value {
    match providers.get(port) {
        Some(only) => Value::from(only.as_str()),
        None => providers.iter().map(|(id, provider)| (id.clone(), provider.clone())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ID: &str = "0f5cbf0a-8f0e-4c57-9d55-3c6f5a1f3c10";

    fn requested(request: Value) -> Option<ResourceRequest> {
        let port = json!({"id": ID, "resource_request": request});
        serde_json::from_value::<Port>(port).expect("a port").requested()
    }

    #[test]
    fn both_forms_of_a_request_are_read() {
        let bandwidth = json!({"NET_BW_EGR_KILOBIT_PER_SEC": 1000});
        let group = json!({"required": ["CUSTOM_VNIC_TYPE_NORMAL"], "resources": bandwidth});
        let old = requested(group.clone()).expect("the old form");
        assert_eq!(old.groups[0].id, ID);
        assert_eq!(old.groups[0].resources["NET_BW_EGR_KILOBIT_PER_SEC"], 1000);
        let mut one = group;
        one["id"] = json!("one");
        let two = json!({"id": "two", "resources": {"NET_PACKET_RATE_KILOPACKET_PER_SEC": 5}});
        let new = json!({"request_groups": [one, two], "same_subtree": ["one", "two"]});
        let new = requested(new).expect("the new form");
        assert_eq!(new.groups[0].required, ["CUSTOM_VNIC_TYPE_NORMAL"]);
        assert_eq!(new.same_subtree, ["one", "two"]);
        let ids = ["two".to_owned(), "one".to_owned()];
        assert!(new.has_groups(&ids) && !new.has_groups(&ids[..1]) && !old.has_groups(&ids));
        for nothing in [json!(null), json!({}), json!({"request_groups": []})] {
            assert!(requested(nothing).expect("no request").is_empty());
        }
        assert_eq!(requested(json!({"request_groups": [{"id": 7}]})), None);
        assert_eq!(requested(json!({"groups": 7})), None);
    }

    #[test]
    fn the_allocation_has_the_form_of_the_request() {
        let one = |id: &str| BTreeMap::from([(id.to_owned(), "provider".to_owned())]);
        assert_eq!(allocation(ID, &one(ID)), json!("provider"));
        assert_eq!(allocation(ID, &one("group")), json!({"group": "provider"}));
    }
}
