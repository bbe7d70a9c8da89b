//! The login of a service user in a group with keystoneauth's options (`auth_type` and those of its type).

use kilonova_keystone::{CredentialName, Credentials, Ids, Login, Named};

use super::File;
use crate::failure::Failure;

/// The options that show that a group has a login of its own. The type, which some installers always write, is
/// the last.
pub(super) const NAMING: [&str; 12] = [
    "auth_section",
    "auth_url",
    "username",
    "user_id",
    "password",
    "project_name",
    "project_id",
    "application_credential_id",
    "application_credential_name",
    "application_credential_secret",
    "token",
    "auth_type",
];

/// The first option by which a group has a login of its own.
pub(super) fn named(file: &File, group: &str) -> Option<&'static str> {
    NAMING.into_iter().find(|option| file.get(group, option).is_some_and(|text| !text.is_empty()))
}

/// Reads the login of a group, or that of the group which its `auth_section` names. A missing option is
/// reported at the option `named`, which is set.
pub(super) fn read(file: &File, group: &str, named: &str) -> Result<Credentials, Failure> {
    let Some(section) = file.get(group, "auth_section").filter(|section| *section != group) else {
        return Section { file, group, named }.credentials();
    };
    // As in keystoneauth, that group cannot refer to a third one.
    let mut own = NAMING.into_iter().filter(|option| *option != "auth_section");
    let Some(named) = own.find(|option| file.get(section, option).is_some()) else {
        let why = format!("the group [{section}] of this file has no login");
        return Err(file.wrong(group, "auth_section", &why));
    };
    Section { file, group: section, named }.credentials()
}

/// A group with a login.
#[derive(Clone, Copy)]
struct Section<'a> {
    file: &'a File,
    group: &'a str,
    named: &'a str,
}

impl Section<'_> {
    fn text(&self, option: &str) -> Option<String> {
        self.file.get(self.group, option).map(str::to_owned)
    }

    fn needed(&self, option: &str) -> Result<String, Failure> {
        let Self { file, group, named } = self;
        self.text(option)
            .ok_or_else(|| file.wrong(group, named, &format!("this group requires {option} too")))
    }

    /// The id and the name of the domain of a user or a project. The default domain applies where the group
    /// names neither.
    fn domain(&self, id: &str, name: &str) -> (Option<String>, String) {
        let (id, name) = (self.text(id), self.text(name));
        let by_default = id.is_none() && name.is_none();
        let id = id.or_else(|| self.text("default_domain_id").filter(|_| by_default));
        let name = name.or_else(|| self.text("default_domain_name"));
        (id, name.unwrap_or_else(|| "Default".to_owned()))
    }

    /// A user or a project.
    fn object(&self, id: &str, name: &str, domain: [&str; 2]) -> Result<Named, Failure> {
        if let Some(id) = self.text(id) {
            return Ok(Named::Id(id));
        }
        let (domain_id, domain_name) = self.domain(domain[0], domain[1]);
        Ok(Named::Name { name: self.needed(name)?, domain_id, domain_name })
    }

    fn user(&self) -> Result<Named, Failure> {
        self.object("user_id", "username", ["user_domain_id", "user_domain_name"])
    }

    fn project(&self) -> Result<Named, Failure> {
        self.object("project_id", "project_name", ["project_domain_id", "project_domain_name"])
    }

    fn credentials(&self) -> Result<Credentials, Failure> {
        let Self { file, group, .. } = self;
        let auth_url = self.needed("auth_url")?;
        if !auth_url.starts_with("http://") && !auth_url.starts_with("https://") {
            return Err(file.wrong(group, "auth_url", "it must begin with http:// or https://"));
        }
        Ok(match file.get(group, "auth_type").unwrap_or("password") {
            "password" | "v3password" => {
                let (user, project) = (self.user()?, self.project()?);
                let ((user_id, username), (user_domain, user_domain_name)) = parts(user);
                let ((project_id, project_name), (project_domain, project_domain_name)) =
                    parts(project);
                let ids = Ids { user: user_id, user_domain, project: project_id, project_domain };
                let login = Login {
                    auth_url,
                    username,
                    password: self.needed("password")?,
                    user_domain_name,
                    project_name,
                    project_domain_name,
                };
                Credentials::Password(login, ids)
            }
            "v3applicationcredential" => {
                let credential = match self.text("application_credential_name") {
                    Some(name) if self.text("application_credential_id").is_none() => {
                        CredentialName::OfUser { name, user: self.user()? }
                    }
                    _ => CredentialName::Id(self.needed("application_credential_id")?),
                };
                let secret = self.needed("application_credential_secret")?;
                Credentials::ApplicationCredential { auth_url, credential, secret }
            }
            "token" | "v3token" => {
                let (token, project) = (self.needed("token")?, self.project()?);
                Credentials::Token { auth_url, token, project }
            }
            other => {
                let why = format!(
                    "{other} is not supported; use password, v3applicationcredential or v3token"
                );
                return Err(file.wrong(group, "auth_type", &why));
            }
        })
    }
}

/// Id and name of an object, and of its domain.
type Parts = ((Option<String>, String), (Option<String>, String));

fn parts(object: Named) -> Parts {
    match object {
        Named::Id(id) => ((Some(id), String::new()), (None, String::new())),
        Named::Name { name, domain_id, domain_name } => ((None, name), (domain_id, domain_name)),
    }
}
