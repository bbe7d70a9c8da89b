//! `clouds.yaml` and `openrc` for the admin. They are written before the user is made, so that a
//! crash in between never leaves an admin whose password nobody knows.

use std::net::SocketAddr;

use super::{StateDir, write_secret};
use crate::failure::Failure;

/// The admin's password and whether it is new.
pub struct Credentials {
    /// The password.
    pub password: String,
    /// Whether the files were written just now.
    pub fresh: bool,
}

const PASSWORD: &str = "      password: ";

impl Credentials {
    /// Reads the files of an earlier start, or makes them. Where there is an admin already
    /// (`has_admin`), none are made: they would hold a password that is not his.
    ///
    /// # Errors
    /// When the files cannot be written or have lost their password.
    pub fn load(
        directory: &StateDir,
        address: SocketAddr,
        has_admin: bool,
    ) -> Result<Self, Failure> {
        let clouds = directory.join("clouds.yaml");
        match std::fs::read_to_string(&clouds) {
            Ok(text) => {
                let password = text.lines().find_map(|line| line.strip_prefix(PASSWORD));
                let password = password.ok_or_else(|| {
                    Failure::Refused(format!("{} names no password", clouds.display()))
                })?;
                Ok(Self { password: password.trim_matches('"').to_owned(), fresh: false })
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && has_admin => {
                tracing::warn!(
                    "{} is gone, and the admin's password is known to nobody here; put the file \
                     back, or use the password from elsewhere",
                    clouds.display()
                );
                Ok(Self { password: uuid::Uuid::new_v4().simple().to_string(), fresh: false })
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let password = uuid::Uuid::new_v4().simple().to_string();
                Self::write(directory, address, &password)?;
                Ok(Self { password, fresh: true })
            }
            Err(error) => Err(Failure::failed(&format!("cannot read {}", clouds.display()), error)),
        }
    }

    fn write(directory: &StateDir, address: SocketAddr, password: &str) -> Result<(), Failure> {
        let url = format!("http://{address}/identity/v3");
        let clouds = format!(
            "clouds:\n  kilonova:\n    auth:\n      auth_url: {url}\n      username: admin\n\
             {PASSWORD}\"{password}\"\n      project_name: admin\n      user_domain_name: Default\n      \
             project_domain_name: Default\n    region_name: RegionOne\n    identity_api_version: 3\n    \
             accelerator_api_version: \"2.3\"\n"
        );
        let openrc = format!(
            "export OS_AUTH_URL={url}\nexport OS_USERNAME=admin\nexport OS_PASSWORD={password}\n\
             export OS_PROJECT_NAME=admin\nexport OS_USER_DOMAIN_NAME=Default\n\
             export OS_PROJECT_DOMAIN_NAME=Default\nexport OS_REGION_NAME=RegionOne\n\
             export OS_IDENTITY_API_VERSION=3\nexport OS_ACCELERATOR_API_VERSION=2.3\n"
        );
        for (name, text) in [("openrc", &openrc), ("clouds.yaml", &clouds)] {
            let path = directory.join(name);
            write_secret(&path, text)
                .map_err(|e| Failure::failed(&format!("cannot write {}", path.display()), e))?;
        }
        Ok(())
    }
}
