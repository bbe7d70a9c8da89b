//! The id of a controller, in its state directory.
//!
//! The directory's lock is held as long as a process uses the id, so two processes never use the same id. A copy of
//! the directory must not be used by another controller.

use super::{StateDir, write_secret};
use crate::failure::Failure;

const FILE: &str = "controller";

/// The id of the controller whose state directory this is; a new one at the first start.
///
/// # Errors
/// A file that cannot be read or written.
pub fn controller_id(directory: &StateDir) -> Result<String, Failure> {
    let path = directory.join(FILE);
    let failed = |error: std::io::Error| {
        Failure::failed(
            "cannot use the id of the controller",
            format!("{}: {error}", path.display()),
        )
    };
    match std::fs::read_to_string(&path) {
        Ok(text)
            if uuid::Uuid::parse_str(text.trim()).is_ok_and(|id| id.to_string() == text.trim()) =>
        {
            return Ok(text.trim().to_owned());
        }
        Ok(_) => {
            tracing::warn!(file = %path.display(), "the id of the controller is not a UUID; making a new one")
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let id = uuid::Uuid::new_v4().to_string();
    write_secret(&path, &format!("{id}\n")).map_err(failed)?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_keeps_its_id() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let take =
            |name: &str| StateDir::take(&folder.path().join(name)).expect("the lock is free");
        let (one, other) = (take("one"), take("other"));
        let id = controller_id(&one).expect("the id is made");
        assert_eq!(controller_id(&one).expect("the id is read"), id);
        assert_ne!(controller_id(&other).expect("the id is made"), id);
        std::fs::write(one.join(FILE), "half of").expect("the file is written");
        let next = controller_id(&one).expect("the id is made");
        assert_ne!(next, id);
        assert_eq!(controller_id(&one).expect("the id is read"), next);
    }
}
