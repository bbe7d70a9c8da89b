//! The id of the cloud whose controller has the state directory.
//!
//! It is written when a start has created the cloud's administrator. From then on an empty database is a
//! lost or misnamed one: a start would otherwise make a new, empty cloud beside the files of the old one.
//! A database of another cloud is a misnamed one too.

use std::path::Path;

use kilonova_store::Store;

use super::{StateDir, write_secret};
use crate::failure::Failure;

const FILE: &str = "cloud";
/// The id in the image directory, which earlier versions wrote too.
const OF_IMAGES: &str = "images/.cloud";

/// Checks that a cloud whose files are in the state directory does not start with an empty database.
///
/// # Errors
/// If it would.
pub fn check_database(state_dir: &Path, is_empty: bool) -> Result<(), Failure> {
    if !is_empty {
        return Ok(());
    }
    let known = |name| recorded(state_dir, name).map(|cloud| (name, cloud));
    let Some((name, cloud)) = known(FILE).or_else(|| known(OF_IMAGES)) else { return Ok(()) };
    Err(Failure::Refused(format!(
        "the state directory {} belongs to cloud {} (file {name}), but the database is empty: restore it, \
         check [database] connection or --database, or use a new state directory (--state-dir)",
        state_dir.display(),
        cloud.escape_debug()
    )))
}

/// Checks that the database is that of the cloud whose files are in the state directory. The id in the
/// image directory does not count: several clouds may have used that directory, and the image store
/// warns of another cloud's.
///
/// # Errors
/// If the database has another cloud.
pub fn check_cloud(state_dir: &Path, cloud: &str) -> Result<(), Failure> {
    match recorded(state_dir, FILE) {
        Some(other) if other != cloud => Err(Failure::Refused(format!(
            "the state directory {} belongs to cloud {}, but the database has cloud {cloud}: correct \
             [database] connection or --database; delete {} to use this state directory for the other cloud",
            state_dir.display(),
            other.escape_debug(),
            state_dir.join(FILE).display()
        ))),
        _ => Ok(()),
    }
}

/// Checks the cloud of a database before its schema is changed. A database without an id, or of a version that had none,
/// passes.
///
/// # Errors
/// Like [`check_cloud`].
pub async fn check_known_cloud(state_dir: &Path, store: &Store) -> Result<(), Failure> {
    match kilonova_image::known_cloud_id(store).await {
        Ok(Some(cloud)) => check_cloud(state_dir, &cloud),
        Ok(None) | Err(_) => Ok(()),
    }
}

fn recorded(state_dir: &Path, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(state_dir.join(name)).ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Records the cloud in the state directory.
///
/// # Errors
/// A file that cannot be written.
pub fn remember_cloud(directory: &StateDir, cloud: &str) -> Result<(), Failure> {
    let path = directory.join(FILE);
    if recorded(directory.path(), FILE).is_some_and(|known| known == cloud) {
        return Ok(());
    }
    write_secret(&path, &format!("{cloud}\n"))
        .map_err(|e| Failure::failed(&format!("cannot write {}", path.display()), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_cloud_that_has_started_needs_its_database() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let directory = StateDir::take(&folder.path().join("state")).expect("the lock is free");
        assert!(check_database(directory.path(), true).is_ok(), "a first start");
        std::fs::create_dir(directory.join("images")).expect("the directory is created");
        std::fs::write(directory.join(OF_IMAGES), "of-images").expect("the file is written");
        let refusal = check_database(directory.path(), true).expect_err("it is refused");
        let words = "belongs to cloud of-images (file images/.cloud)";
        assert!(refusal.to_string().contains(words), "{refusal}");
        assert!(
            check_cloud(directory.path(), "c1").is_ok(),
            "the image directory may be another's"
        );
        remember_cloud(&directory, "c1").expect("it is written");
        let refusal = check_database(directory.path(), true).expect_err("it is refused");
        assert!(refusal.to_string().contains("belongs to cloud c1"), "{refusal}");
        assert!(check_database(directory.path(), false).is_ok());
        assert!(check_cloud(directory.path(), "c1").is_ok());
        let refusal = check_cloud(directory.path(), "c2").expect_err("it is refused").to_string();
        let remedy = format!("delete {}", directory.join(FILE).display());
        for words in ["belongs to cloud c1", "has cloud c2", &remedy] {
            assert!(refusal.contains(words), "{refusal}");
        }
    }
}
