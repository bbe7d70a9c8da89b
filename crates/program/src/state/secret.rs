//! Secrets that the first start generates: each is a token in a file that only the owner can read.

use super::{StateDir, write_secret};
use crate::Failure;

impl StateDir {
    /// The token in the file `name`; generated if there is none.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn secret(&self, name: &str) -> Result<String, Failure> {
        let path = self.join(name);
        match std::fs::read_to_string(&path) {
            Ok(text) if !text.trim().is_empty() => return Ok(text.trim().to_owned()),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(Failure::failed(&format!("cannot read {}", path.display()), error));
            }
        }
        let secret = uuid::Uuid::new_v4().simple().to_string();
        write_secret(&path, &secret)
            .map_err(|e| Failure::failed(&format!("cannot write {}", path.display()), e))?;
        Ok(secret)
    }
}

/// Compares two secrets in constant time.
pub fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_generated_once_and_kept() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let directory = StateDir::take(folder.path()).expect("the lock is free");
        let made = directory.secret("a.token").expect("the secret is created");
        assert_eq!(made.len(), 32);
        assert_eq!(directory.secret("a.token").expect("the file is read"), made);
        assert_ne!(directory.secret("b.token").expect("the secret is created"), made);
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(folder.path().join("a.token"))
            .expect("the file exists")
            .permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
    }

    #[test]
    fn secrets_are_compared_whole() {
        assert!(same("abc", "abc"));
        assert!(!same("abc", "abd") && !same("abc", "ab") && !same("", "a"));
    }
}
