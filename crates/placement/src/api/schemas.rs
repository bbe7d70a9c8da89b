//! The JSON schemas of request bodies, by the version that introduced each. One table, so that the
//! forms of a resource can be compared at a glance.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::validate::{Schema, UUID_LIKE};

const MAX_INT: i64 = 2_147_483_647;
const UUID_KEY: &str = "^[0-9a-fA-F-]{36}$";
const NAME: &str = "^[A-Z0-9_]+$";
const CUSTOM: &str = "^CUSTOM_[A-Z0-9_]+$";

macro_rules! schemas {
    ($($(#[$doc:meta])* $name:ident = $value:expr;)*) => {
        $($(#[$doc])* pub static $name: LazyLock<Schema> = LazyLock::new(|| Schema::new($value));)*
        #[cfg(test)]
        fn all() -> Vec<&'static Schema> {
            vec![$(&*$name),*]
        }
    };
}

schemas! {
    /// `POST /resource_providers`.
    POST_PROVIDER = provider(true, false);
    /// The same from 1.14.
    POST_PROVIDER_1_14 = provider(true, true);
    /// `PUT /resource_providers/{uuid}`.
    PUT_PROVIDER = provider(false, false);
    /// The same from 1.14.
    PUT_PROVIDER_1_14 = provider(false, true);
    /// `PUT …/inventories`.
    PUT_INVENTORIES = inventories();
    /// `POST …/inventories`.
    POST_INVENTORY = inventory(&["total", "resource_class"], true);
    /// `PUT …/inventories/{class}`.
    PUT_INVENTORY = inventory(&["total", "resource_provider_generation"], false);
    /// `PUT …/aggregates` before 1.19.
    AGGREGATES = uuids();
    /// From 1.19.
    AGGREGATES_1_19 = object(
        &json!({"aggregates": uuids(), "resource_provider_generation": {"type": "integer"}}),
        &["aggregates", "resource_provider_generation"],
    );
    /// `PUT …/traits`.
    PROVIDER_TRAITS = object(
        &json!({
            "traits": {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": 255},
            },
            "resource_provider_generation": {"type": "integer"},
        }),
        &["traits", "resource_provider_generation"],
    );
    /// `POST /resource_classes`, and the name in `PUT /resource_classes/{name}`.
    RESOURCE_CLASS = object(
        &json!({"name": {"type": "string", "pattern": CUSTOM, "maxLength": 255}}),
        &["name"],
    );
    /// `PUT /allocations/{consumer}` before 1.8.
    PUT_ALLOCATIONS = allocation_list(false);
    /// From 1.8.
    PUT_ALLOCATIONS_1_8 = allocation_list(true);
    /// From 1.12.
    PUT_ALLOCATIONS_1_12 = allocations(12, false);
    /// From 1.28.
    PUT_ALLOCATIONS_1_28 = allocations(28, true);
    /// From 1.34.
    PUT_ALLOCATIONS_1_34 = allocations(34, true);
    /// From 1.38.
    PUT_ALLOCATIONS_1_38 = allocations(38, true);
    /// `POST /allocations`.
    POST_ALLOCATIONS = by_consumer(allocations(12, true), 1);
    /// From 1.28.
    POST_ALLOCATIONS_1_28 = by_consumer(allocations(28, true), 1);
    /// From 1.34.
    POST_ALLOCATIONS_1_34 = by_consumer(allocations(34, true), 1);
    /// From 1.38.
    POST_ALLOCATIONS_1_38 = by_consumer(allocations(38, true), 1);
    /// `POST /reshaper`.
    RESHAPER = reshaper(28);
    /// From 1.34.
    RESHAPER_1_34 = reshaper(34);
    /// From 1.38.
    RESHAPER_1_38 = reshaper(38);
}

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn uuid_like() -> Value {
    json!({"type": "string", "pattern": UUID_LIKE})
}

fn uuids() -> Value {
    json!({"type": "array", "items": uuid_like(), "uniqueItems": true})
}

fn provider(with_uuid: bool, with_parent: bool) -> Value {
    let mut properties = json!({"name": {"type": "string", "maxLength": 200}});
    if with_uuid {
        properties["uuid"] = uuid_like();
    }
    if with_parent {
        properties["parent_provider_uuid"] = json!({"anyOf": [uuid_like(), {"type": "null"}]});
    }
    object(&properties, &["name"])
}

fn inventory(required: &[&str], with_class: bool) -> Value {
    let amount = |minimum: i64| json!({"type": "integer", "minimum": minimum, "maximum": MAX_INT});
    let mut properties = json!({
        "resource_provider_generation": {"type": "integer"},
        "total": amount(1),
        "reserved": amount(0),
        "min_unit": amount(1),
        "max_unit": amount(1),
        "step_size": amount(1),
        "allocation_ratio": {"type": "number", "minimum": -3.402_82e38, "maximum": 3.402_82e38},
    });
    if with_class {
        properties["resource_class"] = json!({"type": "string", "pattern": NAME});
    }
    object(&properties, required)
}

fn inventories() -> Value {
    object(
        &json!({
            "resource_provider_generation": {"type": "integer"},
            "inventories": {
                "type": "object",
                "patternProperties": {NAME: inventory(&["total"], false)},
            },
        }),
        &["resource_provider_generation", "inventories"],
    )
}

fn resources() -> Value {
    json!({
        "type": "object",
        "minProperties": 1,
        "patternProperties": {NAME: {"type": "integer", "minimum": 1}},
        "additionalProperties": false,
    })
}

fn owner() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 255})
}

fn allocation_list(with_owner: bool) -> Value {
    let entry = object(
        &json!({
            "resource_provider": object(&json!({"uuid": uuid_like()}), &["uuid"]),
            "resources": resources(),
        }),
        &["resource_provider", "resources"],
    );
    let mut properties = json!({"allocations": {"type": "array", "minItems": 1, "items": entry}});
    if !with_owner {
        return object(&properties, &["allocations"]);
    }
    properties["project_id"] = owner();
    properties["user_id"] = owner();
    object(&properties, &["allocations", "project_id", "user_id"])
}

fn allocations(minor: u32, may_be_empty: bool) -> Value {
    let entry = object(
        &json!({"generation": {"type": "integer"}, "resources": resources()}),
        &["resources"],
    );
    let mut properties = json!({
        "allocations": {
            "type": "object",
            "minProperties": i32::from(!may_be_empty),
            "patternProperties": {UUID_KEY: entry},
            "additionalProperties": false,
        },
        "project_id": owner(),
        "user_id": owner(),
    });
    let mut required = vec!["allocations", "project_id", "user_id"];
    if minor >= 28 {
        properties["consumer_generation"] = json!({"type": ["integer", "null"]});
        required.push("consumer_generation");
    }
    if minor >= 34 {
        let providers = json!({"type": "array", "minItems": 1, "items": uuid_like()});
        properties["mappings"] = json!({
            "type": "object",
            "minProperties": 1,
            "patternProperties": {"[a-zA-Z0-9_-]{1,64}": providers},
        });
    }
    if minor >= 38 {
        properties["consumer_type"] =
            json!({"type": "string", "pattern": NAME, "minLength": 1, "maxLength": 255});
        required.push("consumer_type");
    }
    object(&properties, &required)
}

fn by_consumer(each: Value, least: i32) -> Value {
    json!({
        "type": "object",
        "minProperties": least,
        "patternProperties": {UUID_KEY: each},
        "additionalProperties": false,
    })
}

fn reshaper(minor: u32) -> Value {
    object(
        &json!({
            "inventories": by_consumer(inventories(), 1),
            "allocations": by_consumer(allocations(minor, true), 0),
        }),
        &["inventories", "allocations"],
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_schema_compiles() {
        assert_eq!(super::all().len(), 24);
    }
}
