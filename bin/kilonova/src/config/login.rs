//! The login of a service user in a group with keystoneauth's options (`auth_type` and those of its type).

use kilonova_keystone::{Credentials, Ids, Login};

use super::File;
use crate::failure::Failure;

/// Reads the login of a group. A missing option is reported at the option `named`, which is set.
pub(super) fn read(file: &File, group: &str, named: &str) -> Result<Credentials, Failure> {
    let text = |option: &str| file.get(group, option).map(str::to_owned);
    let needed = |option: &str| {
        text(option)
            .ok_or_else(|| file.wrong(group, named, &format!("this group requires {option} too")))
    };
    let auth_url = needed("auth_url")?;
    if !auth_url.starts_with("http://") && !auth_url.starts_with("https://") {
        return Err(file.wrong(group, "auth_url", "it must begin with http:// or https://"));
    }
    let domain = |option: &str| text(option).unwrap_or_else(|| "Default".to_owned());
    Ok(match file.get(group, "auth_type").unwrap_or("password") {
        "password" | "v3password" => {
            let ids = Ids {
                user: text("user_id"),
                user_domain: text("user_domain_id"),
                project: text("project_id"),
                project_domain: text("project_domain_id"),
            };
            let or_id = |option: &str, id: &Option<String>| match id {
                Some(_) => Ok(text(option).unwrap_or_default()),
                None => needed(option),
            };
            let login = Login {
                auth_url,
                username: or_id("username", &ids.user)?,
                password: needed("password")?,
                user_domain_name: domain("user_domain_name"),
                project_name: or_id("project_name", &ids.project)?,
                project_domain_name: domain("project_domain_name"),
            };
            Credentials::Password(login, ids)
        }
        "v3applicationcredential" => Credentials::ApplicationCredential {
            auth_url,
            id: needed("application_credential_id")?,
            secret: needed("application_credential_secret")?,
        },
        "token" | "v3token" => {
            Credentials::Token { auth_url, token: needed("token")?, project: needed("project_id")? }
        }
        other => {
            let why = format!(
                "{other} is not supported; use password, v3applicationcredential or v3token"
            );
            return Err(file.wrong(group, "auth_type", &why));
        }
    })
}
