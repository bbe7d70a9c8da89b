//! `[nova]`: the Nova of somebody else that uses our accelerator service and waits to hear that its
//! requests are bound. Without it nobody is told. The names are those that Cyborg has.

use std::sync::Arc;

use kilonova_accelerator::nova::{Credentials, HttpNova};
use kilonova_keystone::Login;

use super::File;
use crate::failure::Failure;

const OPTIONS: [&str; 11] = [
    "endpoint_override",
    "auth_type",
    "auth_url",
    "username",
    "password",
    "project_name",
    "user_domain_name",
    "project_domain_name",
    "token",
    "cafile",
    "insecure",
];

pub(super) fn read(file: &File) -> Result<Option<Arc<HttpNova>>, Failure> {
    let get = |option: &str| file.get("nova", option);
    let Some(endpoint) = get("endpoint_override") else {
        return match OPTIONS.into_iter().find(|option| get(option).is_some()) {
            Some(option) => {
                let why = "it says nothing without endpoint_override, the URL of the Nova";
                Err(file.wrong("nova", option, why))
            }
            None => Ok(None),
        };
    };
    let needed = |option: &str| match get(option) {
        Some(text) => Ok(text.to_owned()),
        None => Err(file.wrong("nova", option, "it is needed for this auth_type")),
    };
    let domain = |option: &str| get(option).unwrap_or("Default").to_owned();
    let by_default = match (get("auth_url"), get("token")) {
        (Some(_), _) => "password",
        (None, Some(_)) => "admin_token",
        (None, None) => "none",
    };
    let credentials = match get("auth_type").unwrap_or(by_default) {
        "none" => Credentials::None,
        "admin_token" => Credentials::Token(needed("token")?),
        "password" | "v3password" => Credentials::Password(Login {
            auth_url: needed("auth_url")?,
            username: needed("username")?,
            password: needed("password")?,
            project_name: needed("project_name")?,
            user_domain_name: domain("user_domain_name"),
            project_domain_name: domain("project_domain_name"),
        }),
        other => {
            let why = format!("{other} is not known; choose password, admin_token or none");
            return Err(file.wrong("nova", "auth_type", &why));
        }
    };
    if file.parse("nova", "insecure", "false")? == Some(true) {
        let why = "certificates are always checked; name the authority with cafile";
        return Err(file.wrong("nova", "insecure", why));
    }
    let cafile = file.path("nova", "cafile");
    match HttpNova::new(endpoint, credentials, cafile.as_deref()) {
        Ok(nova) => Ok(Some(Arc::new(nova))),
        Err(why) => Err(file.wrong("nova", "endpoint_override", &why)),
    }
}
