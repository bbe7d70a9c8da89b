//! The body of `POST /os-server-groups`: a list with one policy before 2.64, a policy and its rules
//! from 2.64 on.

use kilonova_compute_app::microversions;
use kilonova_compute_app::schemas;
use kilonova_compute_db::server_groups::Policy;
use kilonova_wire::{Microversion, Refusal};
use serde_json::{Value, json};

use crate::api::input::{self, body_schemas};

const HARD_POLICIES: [&str; 2] = ["affinity", "anti-affinity"];

body_schemas!(CREATE, schema, the_schemas_of_a_new_server_group_compile);

fn schema(version: Microversion) -> Value {
    if version < microversions::GROUP_POLICY {
        let allowed = match version < microversions::SOFT_AFFINITY {
            true => HARD_POLICIES.to_vec(),
            false => names().to_vec(),
        };
        let policies = json!({
            "type": "array", "items": {"enum": allowed}, "minItems": 1, "maxItems": 1,
        });
        return group("policies", json!({"policies": policies}));
    }
    let most = json!({
        "type": ["string", "integer"], "pattern": "^[0-9]+$", "minimum": 1,
        "minLength": 1, "maxLength": 10,
    });
    group(
        "policy",
        json!({
            "policy": {"type": "string", "enum": names()},
            "rules": {
                "type": "object",
                "properties": {"max_server_per_host": most},
                "additionalProperties": false,
            },
        }),
    )
}

fn names() -> [&'static str; 4] {
    Policy::ALL.map(|(name, _)| name)
}

fn group(required: &str, mut properties: Value) -> Value {
    properties["name"] = schemas::text(255);
    json!({
        "type": "object",
        "properties": {"server_group": {
            "type": "object", "properties": properties, "required": ["name", required],
            "additionalProperties": false,
        }},
        "required": ["server_group"],
        "additionalProperties": false,
    })
}

/// A request for a server group.
pub(super) struct CreateServerGroup {
    pub name: String,
    pub policy: Policy,
    pub max_per_host: Option<i64>,
}

/// Reads the body.
///
/// # Errors
/// 400 naming the field.
pub(super) fn read(body: &Value, version: Microversion) -> Result<CreateServerGroup, Refusal> {
    let by_list = version < microversions::GROUP_POLICY;
    CREATE.check(version, body)?;
    let group = &body["server_group"];
    let name = input::text_of(group, "name").unwrap_or_default();
    input::check_name("name", &name)?;
    let named = if by_list { &group["policies"][0] } else { &group["policy"] };
    let policy = named.as_str().and_then(Policy::parse).ok_or_else(|| {
        Refusal::bad_request(format!("Invalid input for field/attribute policy. Value: {named}."))
    })?;
    let most = group["rules"].get("max_server_per_host");
    let max_per_host =
        most.map(|most| input::integer("max_server_per_host", most, 1)).transpose()?;
    if max_per_host.is_some() && policy != Policy::AntiAffinity {
        return Err(Refusal::bad_request("Only anti-affinity policy supports rules."));
    }
    Ok(CreateServerGroup { name, policy, max_per_host })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_at(minor: u32, group: Value) -> Result<CreateServerGroup, Refusal> {
        read(&json!({"server_group": group}), Microversion(2, minor))
    }

    #[test]
    fn each_microversion_accepts_only_its_own_fields() {
        let list = json!({"name": "g", "policies": ["affinity"]});
        let soft = json!({"name": "g", "policies": ["soft-affinity"]});
        let one =
            json!({"name": "g", "policy": "anti-affinity", "rules": {"max_server_per_host": "3"}});
        assert!(read_at(1, list.clone()).is_ok() && read_at(64, list).is_err());
        assert!(read_at(14, soft.clone()).is_err() && read_at(15, soft).is_ok());
        assert!(read_at(63, one.clone()).is_err());
        assert_eq!(read_at(64, one).ok().and_then(|group| group.max_per_host), Some(3));
    }

    #[test]
    fn rules_need_anti_affinity_and_a_positive_limit() {
        for (policy, most) in
            [("affinity", json!(1)), ("anti-affinity", json!(0)), ("anti-affinity", json!(true))]
        {
            let rules = json!({"max_server_per_host": most});
            let group = json!({"name": "g", "policy": policy, "rules": rules});
            assert!(read_at(64, group).is_err(), "{policy} {most}");
        }
        let empty = json!({"name": "g", "policy": "affinity", "rules": {}});
        assert!(read_at(64, empty).is_ok());
    }
}
