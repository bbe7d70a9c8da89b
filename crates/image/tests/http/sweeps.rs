//! Sweeps of the stores: many objects, and objects that cannot be deleted.

use kilonova_image::Swept;
use serde_json::json;
use uuid::Uuid;

use crate::controllers::{beside, file_of};
use crate::shelf::{ANNA, Shelf, shelves};

/// The path of an object that no row names. A sweep visits the objects in the order of `image`.
fn orphan(shelf: &Shelf, image: u128) -> std::path::PathBuf {
    let name = format!("{}.{}", Uuid::from_u128(image), Uuid::new_v4().simple());
    shelf.directory.join(name)
}

#[tokio::test]
async fn an_object_that_cannot_be_deleted_does_not_end_a_sweep() {
    for shelf in shelves().await {
        for image in 0..5 {
            // A directory cannot be deleted as a file.
            match image {
                2 => std::fs::create_dir(orphan(&shelf, image)).unwrap(),
                _ => std::fs::write(orphan(&shelf, image), "orphan").unwrap(),
            }
        }
        let swept = beside(&shelf).await.images.sweep().await.unwrap();
        assert_eq!(swept, Swept { deleted: 4, young: 0, failed: 1 });
        assert_eq!(shelf.files(), 1);
    }
}

#[tokio::test]
async fn a_store_that_deletes_nothing_ends_its_sweep() {
    for shelf in shelves().await {
        for image in 0..15 {
            std::fs::create_dir(orphan(&shelf, image)).unwrap();
        }
        std::fs::write(orphan(&shelf, 20), "orphan").unwrap();
        let error = beside(&shelf).await.images.sweep().await.unwrap_err().to_string();
        assert!(error.contains(&shelf.directory.display().to_string()), "{error}");
        assert_eq!(shelf.files(), 16);
    }
}

#[tokio::test]
async fn a_sweep_of_many_objects_keeps_every_one_that_an_image_names() {
    for shelf in shelves().await {
        let mut kept = Vec::new();
        for _ in 0..110 {
            let id = shelf.make(ANNA, json!({})).await;
            assert_eq!(shelf.put(ANNA, &id, id.clone()).await.status, 204);
            kept.push(id);
        }
        // More than a page of files, and a page of more names than one statement takes.
        for _ in 0..1000 {
            std::fs::write(orphan(&shelf, Uuid::new_v4().as_u128()), "").unwrap();
        }
        let swept = beside(&shelf).await.images.sweep().await.unwrap();
        assert_eq!(swept, Swept { deleted: 1000, ..Swept::default() });
        assert_eq!(shelf.files(), kept.len());
        for id in kept {
            assert_eq!(shelf.get(ANNA, &file_of(&id)).await.bytes, id.as_bytes());
        }
    }
}
