//! `[keystone_authtoken]`: tokens are another Keystone's.
//!
//! The options are upstream's. Those that make no difference here are known too, so that a section
//! carries over as it is: answers are remembered in the process, not in memcached, and the address
//! is the one that is named.

use std::time::Duration;

use kilonova_keystone::{Login, Options};

use super::File;
use crate::failure::Failure;

const GROUP: &str = "keystone_authtoken";

const NEEDED: [&str; 4] = ["auth_url", "username", "password", "project_name"];

/// What the group says; nothing when it names nobody.
pub(super) fn read(file: &File) -> Result<Option<Options>, Failure> {
    let Some(named) = NEEDED.iter().find(|option| file.get(GROUP, option).is_some()) else {
        return Ok(None);
    };
    let needed = |option: &str| match file.get(GROUP, option) {
        Some(text) => Ok(text.to_owned()),
        None => Err(file.wrong(GROUP, named, &format!("this group needs {option} too"))),
    };
    let domain = |option: &str| file.get(GROUP, option).unwrap_or("Default").to_owned();
    let kind = file.get(GROUP, "auth_type").unwrap_or("password");
    if !matches!(kind, "password" | "v3password") {
        return Err(file.wrong(GROUP, "auth_type", &format!("{kind} is not known; use password")));
    }
    let auth_url = needed("auth_url")?;
    if !auth_url.starts_with("http://") && !auth_url.starts_with("https://") {
        return Err(file.wrong(GROUP, "auth_url", "it has to begin with http:// or https://"));
    }
    refuse(file, "insecure", "certificates are always checked; name the authority with cafile")?;
    refuse(file, "delay_auth_decision", "a request without a valid token is always refused here")?;
    let seconds = file
        .parse::<u64>(GROUP, "token_cache_time", "seconds, 0 to remember nothing")?
        .unwrap_or(300);
    let roles = file.get(GROUP, "service_token_roles").unwrap_or("service");
    Ok(Some(Options {
        login: Login {
            auth_url,
            username: needed("username")?,
            password: needed("password")?,
            user_domain_name: domain("user_domain_name"),
            project_name: needed("project_name")?,
            project_domain_name: domain("project_domain_name"),
        },
        www_authenticate_uri: file.get(GROUP, "www_authenticate_uri").map(str::to_owned),
        cafile: file.path(GROUP, "cafile"),
        cache_time: Duration::from_secs(seconds.min(24 * 3600)),
        service_token_roles: roles.split(',').map(|role| role.trim().to_owned()).collect(),
        service_token_roles_required: file
            .parse(GROUP, "service_token_roles_required", "true or false")?
            .unwrap_or(false),
    }))
}

fn refuse(file: &File, option: &str, why: &str) -> Result<(), Failure> {
    match file.parse(GROUP, option, "false")? {
        Some(true) => Err(file.wrong(GROUP, option, why)),
        _ => Ok(()),
    }
}
