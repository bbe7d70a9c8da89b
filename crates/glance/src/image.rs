//! An image as Glance describes it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kilonova_ids::ImageId;
use serde_json::Value;

use crate::Expected;

/// The attributes of Glance's schema. Everything else is a property.
const ATTRIBUTES: [&str; 27] = [
    "checksum",
    "container_format",
    "created_at",
    "deleted",
    "deleted_at",
    "direct_url",
    "disk_format",
    "file",
    "id",
    "is_public",
    "locations",
    "min_disk",
    "min_ram",
    "name",
    "os_hash_algo",
    "os_hash_value",
    "os_hidden",
    "owner",
    "protected",
    "schema",
    "self",
    "size",
    "status",
    "stores",
    "tags",
    "updated_at",
    "visibility",
];

/// True if the key is an attribute of Glance's schema, which no property can have.
pub fn is_attribute(key: &str) -> bool {
    key == "virtual_size" || ATTRIBUTES.contains(&key)
}

/// An image.
#[derive(Debug, Clone)]
pub struct Image {
    /// Its id.
    pub id: ImageId,
    /// Its name.
    pub name: Option<String>,
    /// The owning project, if any.
    pub owner: Option<String>,
    /// `queued`, `saving`, `active`, …
    pub status: String,
    /// `public`, `private`, …
    pub visibility: String,
    /// `raw`, `qcow2`, …
    pub disk_format: Option<String>,
    /// `bare`, …
    pub container_format: Option<String>,
    /// Minimum memory of a server, in MiB.
    pub min_ram: i64,
    /// Minimum disk of a server, in GiB.
    pub min_disk: i64,
    /// Bytes of data.
    pub size: Option<i64>,
    /// Bytes of the disk that a guest sees.
    pub virtual_size: Option<i64>,
    /// True if deletion is refused.
    pub protected: bool,
    /// MD5 of the data.
    pub checksum: Option<String>,
    /// `os_hash_algo` and `os_hash_value`.
    pub hash: Option<Expected>,
    /// Its tags.
    pub tags: Vec<String>,
    /// The properties that are not in the schema.
    pub properties: BTreeMap<String, String>,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
}

impl Image {
    /// Parses Glance's JSON; `None` if it does not describe an image.
    pub fn parse(value: &Value) -> Option<Self> {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let time = |key: &str| value[key].as_str()?.parse().ok();
        let all = value.as_object()?;
        let properties =
            all.iter().filter(|(key, _)| !is_attribute(key)).filter_map(|(key, value)| {
                let value = match value {
                    Value::String(text) => text.clone(),
                    Value::Null => return None,
                    other => other.to_string(),
                };
                Some((key.clone(), value))
            });
        let hash = text("os_hash_algo").zip(text("os_hash_value"));
        Some(Self {
            id: value["id"].as_str()?.parse().ok()?,
            name: text("name"),
            owner: text("owner"),
            status: text("status")?,
            visibility: text("visibility").unwrap_or_default(),
            disk_format: text("disk_format"),
            container_format: text("container_format"),
            min_ram: value["min_ram"].as_i64().unwrap_or_default(),
            min_disk: value["min_disk"].as_i64().unwrap_or_default(),
            size: value["size"].as_i64(),
            virtual_size: value["virtual_size"].as_i64(),
            protected: value["protected"].as_bool().unwrap_or_default(),
            checksum: text("checksum"),
            hash: hash.map(|(algorithm, value)| Expected { algorithm, value }),
            tags: value["tags"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|tag| tag.as_str().map(str::to_owned))
                .collect(),
            properties: properties.collect(),
            created_at: time("created_at"),
            updated_at: time("updated_at"),
        })
    }

    /// True if its bytes may be used.
    pub fn is_active(&self) -> bool {
        self.status == "active"
    }

    /// The hash that its bytes must have: `os_hash_value`, else `checksum`.
    pub fn expected(&self) -> Option<Expected> {
        let checksum = || {
            let value = self.checksum.clone()?;
            Some(Expected { algorithm: "md5".into(), value })
        };
        self.hash.clone().or_else(checksum)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_schema_does_not_know_is_a_property() {
        let image = Image::parse(&json!({
            "id": "0c8cbd44-6f1a-4a5c-a5b3-7f1f5c3f7c36", "name": null, "status": "active",
            "visibility": "shared", "size": 3, "virtual_size": null, "os_hash_algo": "sha512",
            "os_hash_value": "ab", "checksum": "cd", "stores": "store1", "os_hidden": false,
            "direct_url": "file:///x", "locations": [], "hw_disk_bus": "scsi", "min_ram": 64,
            "created_at": "2026-11-24T02:34:48Z", "tags": ["a"], "odd": 7, "none": null,
        }))
        .expect("the description is valid");
        let keys: Vec<&str> = image.properties.keys().map(String::as_str).collect();
        assert_eq!(keys, ["hw_disk_bus", "odd"]);
        assert_eq!(image.properties["odd"], "7");
        assert_eq!((image.size, image.virtual_size, image.min_ram), (Some(3), None, 64));
        let expected = image.expected().expect("there is a hash");
        assert_eq!((expected.algorithm.as_str(), expected.value.as_str()), ("sha512", "ab"));
        let old = Image { hash: None, ..image };
        assert_eq!(old.expected().expect("there is a checksum").algorithm, "md5");
        assert!(Image::parse(&json!({"id": "x", "status": "active"})).is_none());
        assert!(Image::parse(&json!([])).is_none());
    }
}
