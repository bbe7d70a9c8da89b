//! Views of an image.

use kilonova_image::{ImageRecord, Status};
use kilonova_wire::time;
use serde_json::{Value, json};

use crate::api::links::{self, Base};

/// The brief form. `glance` is the URL of the external Glance, if the images are there.
pub(super) fn brief(image: &ImageRecord, base: &Base, glance: Option<&str>) -> Value {
    let id = image.id.to_string();
    let mut all = links::of(base, "images", &id);
    if let Some(all) = all.as_array_mut() {
        all.push(json!({
            "rel": "alternate",
            "type": "application/vnd.openstack.image",
            "href": format!("{}/images/{id}", image_service(base, glance)),
        }));
    }
    json!({"id": id, "name": image.name, "links": all})
}

/// The URL of the image service. Our own image service is below the same root URL as this API.
fn image_service(base: &Base, glance: Option<&str>) -> String {
    glance.map_or_else(|| format!("{}/image", base.cloud()), str::to_owned)
}

/// The full form.
pub(super) fn detail(image: &ImageRecord, base: &Base, glance: Option<&str>) -> Value {
    let mut shown = brief(image, base, glance);
    let (status, progress) = match image.status {
        Status::Queued => ("SAVING", 25),
        Status::Saving => ("SAVING", 50),
        Status::Active => ("ACTIVE", 100),
        Status::Deactivated => ("UNKNOWN", 0),
    };
    shown["status"] = json!(status);
    shown["progress"] = json!(progress);
    shown["minRam"] = json!(image.min_ram);
    shown["minDisk"] = json!(image.min_disk);
    shown["metadata"] = json!(image.properties);
    shown["created"] = json!(time::zulu(image.created_at));
    shown["updated"] = json!(time::zulu(image.updated_at));
    shown["OS-EXT-IMG-SIZE:size"] = json!(image.size.unwrap_or_default());
    if let Some(server) = image.properties.get("instance_uuid") {
        shown["server"] = json!({"id": server, "links": links::of(base, "servers", server)});
    }
    if let Some(word) = image.properties.get("auto_disk_config") {
        let yes = ["1", "t", "true", "on", "y", "yes"];
        let auto = yes.contains(&word.trim().to_lowercase().as_str());
        shown["OS-DCF:diskConfig"] = json!(if auto { "AUTO" } else { "MANUAL" });
    }
    shown
}
