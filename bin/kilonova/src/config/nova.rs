//! `[nova]`: an external Nova that uses our accelerator service and is notified when its requests
//! are bound. Without it, no Nova is notified. Options are named as in Cyborg.

use std::sync::Arc;

use kilonova_accelerator::nova::{Address, Credentials, HttpNova};
use kilonova_keystone::Login;

use super::File;
use crate::failure::Failure;

const OPTIONS: [&str; 14] = [
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
    "valid_interfaces",
    "interface",
    "region_name",
];

pub(super) fn read(file: &File) -> Result<Option<Arc<HttpNova>>, Failure> {
    let get = |option: &str| file.get("nova", option);
    let address = match (get("endpoint_override"), get("auth_url")) {
        (Some(endpoint), _) => Address::at(endpoint),
        (None, Some(_)) => listed(file),
        (None, None) => {
            return match OPTIONS.into_iter().find(|option| get(option).is_some()) {
                Some(option) => {
                    let why = "it has no effect without the URL of Nova in endpoint_override, or of \
                                                   the Keystone whose catalog lists it in auth_url";
                    Err(file.wrong("nova", option, why))
                }
                None => Ok(None),
            };
        }
    };
    let needed = |option: &str| match get(option) {
        Some(text) => Ok(text.to_owned()),
        None => Err(file.wrong("nova", option, "this auth_type requires it")),
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
            let why = format!("{other} is not supported; expected password, admin_token or none");
            return Err(file.wrong("nova", "auth_type", &why));
        }
    };
    if file.parse("nova", "insecure", "false")? == Some(true) {
        let why = "certificates are always verified; set cafile to the authority";
        return Err(file.wrong("nova", "insecure", why));
    }
    let cafile = file.path("nova", "cafile");
    if let (Address::Catalog { .. }, Credentials::None | Credentials::Token(_)) =
        (&address, &credentials)
    {
        let why = "only a password login returns a catalog; set endpoint_override to the URL of \
                           Nova";
        return Err(file.wrong("nova", "auth_type", why));
    }
    let option = if get("endpoint_override").is_some() { "endpoint_override" } else { "auth_url" };
    match HttpNova::new(address, credentials, cafile.as_deref()) {
        Ok(nova) => Ok(Some(Arc::new(nova))),
        Err(why) => Err(file.wrong("nova", option, &why)),
    }
}

/// The address from the catalog, selected by keystoneauth's options.
fn listed(file: &File) -> Address {
    let get = |option: &str| file.get("nova", option);
    let interfaces = get("valid_interfaces").or(get("interface")).unwrap_or("internal, public");
    let interfaces = interfaces.split(',').map(str::trim).filter(|name| !name.is_empty());
    Address::Catalog {
        interfaces: interfaces.map(|name| name.trim_end_matches("URL").to_owned()).collect(),
        region: get("region_name").map(str::to_owned),
    }
}
