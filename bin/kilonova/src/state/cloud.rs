//! The id of the cloud whose controller has the state directory.
//!
//! It is written when a start has created the cloud's administrator. From then on an empty database is a
//! lost or misnamed one: a start would otherwise make a new, empty cloud beside the files of the old one.

use std::path::Path;

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
    let known = [FILE, OF_IMAGES].map(|name| std::fs::read_to_string(state_dir.join(name)));
    let Some(cloud) = known.iter().flatten().map(|text| text.trim()).find(|id| !id.is_empty())
    else {
        return Ok(());
    };
    if !is_empty {
        return Ok(());
    }
    Err(Failure::Refused(format!(
        "the state directory {} belongs to cloud {}, but the database is empty: restore it, check \
         [database] connection or --database, or use a new state directory (--state-dir)",
        state_dir.display(),
        cloud.escape_debug()
    )))
}

/// Records the cloud in the state directory.
///
/// # Errors
/// A file that cannot be written.
pub fn remember_cloud(directory: &StateDir, cloud: &str) -> Result<(), Failure> {
    let path = directory.join(FILE);
    if std::fs::read_to_string(&path).is_ok_and(|text| text.trim() == cloud) {
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
        assert!(refusal.to_string().contains("belongs to cloud of-images"), "{refusal}");
        remember_cloud(&directory, "c1").expect("it is written");
        let refusal = check_database(directory.path(), true).expect_err("it is refused");
        assert!(refusal.to_string().contains("belongs to cloud c1"), "{refusal}");
        assert!(check_database(directory.path(), false).is_ok());
    }
}
