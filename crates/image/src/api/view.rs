//! The API view of an image, with its properties among its attributes.

use kilonova_wire::time;
use serde_json::{Map, Value, json};

use crate::ImageRecord;
use crate::app::HASH_ALGORITHM;

pub(super) fn view(image: &ImageRecord) -> Value {
    let mut view: Map<String, Value> =
        image.properties.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    let path = format!("/v2/images/{}", image.id);
    view.extend(
        [
            ("name", json!(image.name)),
            ("disk_format", json!(image.disk_format)),
            ("container_format", json!(image.container_format)),
            ("visibility", json!(image.visibility.as_str())),
            ("size", json!(image.size)),
            ("virtual_size", json!(image.virtual_size)),
            ("status", json!(image.status.as_str())),
            ("checksum", json!(image.checksum)),
            ("protected", json!(image.protected)),
            ("min_ram", json!(image.min_ram)),
            ("min_disk", json!(image.min_disk)),
            ("owner", json!(image.owner)),
            ("os_hidden", json!(image.hidden)),
            ("os_hash_algo", json!(image.hash.as_ref().map(|_| HASH_ALGORITHM))),
            ("os_hash_value", json!(image.hash)),
            ("id", json!(image.id)),
            ("created_at", json!(time::zulu(image.created_at))),
            ("updated_at", json!(time::zulu(image.updated_at))),
            ("tags", json!(image.tags)),
            ("file", json!(format!("{path}/file"))),
            ("self", json!(path)),
            ("schema", json!("/v2/schemas/image")),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    );
    Value::Object(view)
}
