//! `clouds.yaml` and `openrc` for the admin. They are written before the user is created, so that a crash
//! never leaves an admin with an unknown password.

use std::path::{Path, PathBuf};

use super::{StateDir, write_service_secret};
use crate::failure::Failure;

/// The admin's password.
pub struct Credentials {
    /// The password.
    pub password: String,
    /// True if the files were written by this start.
    pub fresh: bool,
}

const FILES: [&str; 2] = ["openrc", "clouds.yaml"];
const PASSWORD: &str = "      password: ";

impl Credentials {
    /// Reads the files of an earlier start, or creates them. If an admin exists already
    /// (`has_admin`), none are created, because the password would be wrong. Unmodified files are
    /// updated to a new `url` or `cacert`; modified files are left unchanged.
    ///
    /// # Errors
    /// If the files cannot be written or contain no password.
    pub fn load(
        directory: &StateDir,
        url: &str,
        cacert: Option<&Path>,
        has_admin: bool,
    ) -> Result<Self, Failure> {
        let place = Place::new(url, cacert);
        let clouds = directory.join("clouds.yaml");
        match std::fs::read_to_string(&clouds) {
            Ok(text) => {
                let password = text.lines().find_map(|line| line.strip_prefix(PASSWORD));
                let password = password.ok_or_else(|| {
                    Failure::Refused(format!("{} contains no password", clouds.display()))
                })?;
                let password = password.trim_matches('"').to_owned();
                follow(directory, &text, &place, &password)?;
                Ok(Self { password, fresh: false })
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && has_admin => {
                tracing::info!(
                    "{} does not exist here: copy it and openrc from the controller that created the cloud; \
                     if they are lost, `kilonova admin password` sets a new password",
                    clouds.display()
                );
                Ok(Self { password: uuid::Uuid::new_v4().simple().to_string(), fresh: false })
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let password = uuid::Uuid::new_v4().simple().to_string();
                write(directory.path(), &place, &password)?;
                Ok(Self { password, fresh: true })
            }
            Err(error) => Err(Failure::failed(&format!("cannot read {}", clouds.display()), error)),
        }
    }
}

impl Credentials {
    /// Writes both files with a new password, which the caller then gives to the admin. The directory may
    /// belong to a running controller, which reads the files only at its start.
    ///
    /// # Errors
    /// If one of the files exists: it may have a password that works, or changes of an operator.
    pub fn renew(directory: &Path, url: &str, cacert: Option<&Path>) -> Result<Self, Failure> {
        for name in FILES {
            let path = directory.join(name);
            if path.exists() {
                return Err(Failure::Refused(format!(
                    "{} exists: use the password in it; if that does not work, move the file away first",
                    path.display()
                )));
            }
        }
        let password = uuid::Uuid::new_v4().simple().to_string();
        write(directory, &Place::new(url, cacert), &password)
            .inspect_err(|_| Self::withdraw(directory))?;
        Ok(Self { password, fresh: true })
    }

    /// Removes the files of [`Self::renew`], whose password the admin did not get.
    pub fn withdraw(directory: &Path) {
        for name in FILES {
            // The error that led here is more important.
            drop(std::fs::remove_file(directory.join(name)));
        }
    }

    /// Removes the files that this start wrote: another controller, which started at the same time,
    /// created the admin, with its own password.
    pub fn discard(&self, directory: &StateDir) {
        for name in FILES {
            let path = directory.join(name);
            if let Err(error) = std::fs::remove_file(&path) {
                tracing::warn!(%error, "cannot remove {}, whose password is wrong", path.display());
            }
        }
        tracing::warn!(
            "another controller has created the admin at the same time; the password is in \
             clouds.yaml and openrc of its state directory"
        );
    }
}

/// The URL and authority that the files name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    url: String,
    cacert: Option<PathBuf>,
}

const URL: &str = "      auth_url: ";
const CACERT: &str = "    cacert: ";

impl Place {
    /// For services at `url`, with the authority in the file `cacert`.
    fn new(url: &str, cacert: Option<&Path>) -> Self {
        let cacert = cacert.map(|path| std::path::absolute(path).unwrap_or(path.to_owned()));
        Self { url: format!("{url}/identity/v3"), cacert }
    }

    /// Parses `clouds.yaml`.
    fn of(clouds: &str) -> Option<Self> {
        let line = |begin: &str| clouds.lines().find_map(|line| line.strip_prefix(begin));
        let cacert = line(CACERT).and_then(|quoted| serde_json::from_str::<PathBuf>(quoted).ok());
        Some(Self { url: line(URL)?.to_owned(), cacert })
    }

    fn clouds(&self, password: &str) -> String {
        // A quoted JSON text is valid YAML.
        let cacert = self.cacert.as_ref().map(|path| {
            format!("{CACERT}{}\n", serde_json::Value::from(path.display().to_string()))
        });
        format!(
            "clouds:\n  kilonova:\n    auth:\n{URL}{}\n      username: admin\n\
             {PASSWORD}\"{password}\"\n      project_name: admin\n      user_domain_name: Default\n      \
             project_domain_name: Default\n    region_name: RegionOne\n    identity_api_version: 3\n    \
             accelerator_api_version: \"2.3\"\n{}",
            self.url,
            cacert.unwrap_or_default()
        )
    }

    fn openrc(&self, password: &str) -> String {
        let cacert = match &self.cacert {
            Some(path) => {
                let quoted = path.display().to_string().replace('\'', "'\\''");
                format!("export OS_CACERT='{quoted}'\n")
            }
            None => String::new(),
        };
        format!(
            "export OS_AUTH_URL={}\nexport OS_USERNAME=admin\nexport OS_PASSWORD={password}\n\
             export OS_PROJECT_NAME=admin\nexport OS_USER_DOMAIN_NAME=Default\n\
             export OS_PROJECT_DOMAIN_NAME=Default\nexport OS_REGION_NAME=RegionOne\n\
             export OS_IDENTITY_API_VERSION=3\nexport OS_ACCELERATOR_API_VERSION=2.3\n{cacert}",
            self.url
        )
    }
}

fn write(directory: &Path, place: &Place, password: &str) -> Result<(), Failure> {
    let (openrc, clouds) = (place.openrc(password), place.clouds(password));
    for (name, text) in [("openrc", &openrc), ("clouds.yaml", &clouds)] {
        let path = directory.join(name);
        write_service_secret(directory, name, text)
            .map_err(|e| Failure::failed(&format!("cannot write {}", path.display()), e))?;
    }
    Ok(())
}

/// Updates unmodified files to a new URL or authority.
fn follow(
    directory: &StateDir,
    clouds: &str,
    place: &Place,
    password: &str,
) -> Result<(), Failure> {
    let Some(before) = Place::of(clouds) else { return Ok(()) };
    if before == *place {
        return Ok(());
    }
    let untouched = |name: &str, made: &str| {
        std::fs::read_to_string(directory.join(name)).is_ok_and(|text| text == made)
    };
    if clouds == before.clouds(password) && untouched("openrc", &before.openrc(password)) {
        tracing::info!(url = place.url, "updated clouds.yaml and openrc to the new URL");
        return write(directory.path(), place, password);
    }
    tracing::warn!(
        "{} names {}, but the services answer at {}; the files were modified, so update it and \
         openrc manually",
        directory.join("clouds.yaml").display(),
        before.url,
        place.url
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_cannot_both_be_written_are_withdrawn() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let directory = folder.path();
        // The draft of clouds.yaml cannot be created.
        std::fs::create_dir(directory.join("clouds.new")).expect("the directory is created");
        let renew = || Credentials::renew(directory, "http://127.0.0.1:8774", None).map(drop);
        let error = renew().expect_err("clouds.yaml is not written").to_string();
        assert!(error.contains("cannot write") && error.contains("clouds.yaml"), "{error}");
        assert!(!directory.join("openrc").exists());
        std::fs::remove_dir(directory.join("clouds.new")).expect("the directory is removed");
        renew().expect("the files are written");
    }

    #[test]
    fn unmodified_files_follow_the_url() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let directory = StateDir::take(&folder.path().join("state")).expect("the lock is free");
        let read =
            |name: &str| std::fs::read_to_string(directory.join(name)).expect("the file is read");
        let load = |url: &str, cacert: Option<&str>| {
            Credentials::load(&directory, url, cacert.map(Path::new), false)
                .expect("the file is loaded")
        };
        let made = load("http://127.0.0.1:8774", None);
        assert!(made.fresh && !read("clouds.yaml").contains("cacert"));
        let later = load("https://cloud.example", Some("/etc/it's.pem"));
        assert!(!later.fresh && later.password == made.password);
        let (clouds, openrc) = (read("clouds.yaml"), read("openrc"));
        assert!(clouds.contains("auth_url: https://cloud.example/identity/v3\n"), "{clouds}");
        assert!(clouds.contains("    cacert: \"/etc/it's.pem\"\n"), "{clouds}");
        assert!(openrc.contains("export OS_CACERT='/etc/it'\\''s.pem'\n"), "{openrc}");
        std::fs::write(directory.join("openrc"), openrc + "export OS_MINE=1\n")
            .expect("the file is written");
        load("http://127.0.0.1:8774", None);
        assert_eq!(read("clouds.yaml"), clouds);
        assert!(read("openrc").contains("OS_MINE"));
    }
}
