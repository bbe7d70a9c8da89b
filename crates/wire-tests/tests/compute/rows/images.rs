//! The proxy of the image service.

use kilonova_ids::ImageId;
use kilonova_image::ImageRecord;
use kilonova_wire::time;
use serde_json::json;

use crate::compute::api::Api;

pub async fn row(api: Api<'_>) {
    let image = ImageRecord::new(ImageId::new_v4(), "admin".into(), time::now());
    let id = image.id;
    let kept = api.cloud.compute.store.write(move |tx| kilonova_image::reserve(tx, &image)).await;
    kept.expect("the image is kept");
    api.ask("GET /images?limit=1", 1..=35, 200).await;
    api.ask("GET /images/detail?limit=1", 1..=35, 200).await;
    let path = format!("/images/{id}");
    api.ask(&format!("GET {path}"), 1..=35, 200).await;
    let (all, within) = (format!("{path}/metadata"), 1..=38);
    let body = json!({"metadata": {"a": "b"}});
    api.send(&format!("POST {all}"), body, within.clone(), 200).await;
    let body = json!({"metadata": {"a": "c", "d": "e"}});
    api.send(&format!("PUT {all}"), body, within.clone(), 200).await;
    api.send(&format!("PUT {all}/a"), json!({"meta": {"a": "f"}}), within.clone(), 200).await;
    api.ask(&format!("GET {all}"), within.clone(), 200).await;
    api.ask(&format!("GET {all}/a"), within.clone(), 200).await;
    api.ask(&format!("DELETE {all}/a"), within, 204).await;
    api.ask(&format!("DELETE {path}"), 1..=35, 204).await;
}
