//! `[keystone_authtoken]`: validates tokens of an external Keystone.
//!
//! The options are upstream's, so that a section carries over unchanged; the table of upstream's options
//! names those without effect.

use std::time::Duration;

use kilonova_keystone::{DomainIds, Login, ValidatorOptions};

use super::File;
use crate::failure::Failure;

const GROUP: &str = "keystone_authtoken";

/// The default timeout of Keystone in seconds; upstream has none.
const TIMEOUT: u64 = 10;
/// Upstream's default.
const RETRIES: u32 = 3;
const MOST_RETRIES: u32 = 20;

const NEEDED: [&str; 4] = ["auth_url", "username", "password", "project_name"];

/// Reads the group; `None` if it names no Keystone.
pub(super) fn read(file: &File) -> Result<Option<ValidatorOptions>, Failure> {
    let Some(named) = NEEDED.iter().find(|option| file.get(GROUP, option).is_some()) else {
        return Ok(None);
    };
    let needed = |option: &str| match file.get(GROUP, option) {
        Some(text) => Ok(text.to_owned()),
        None => Err(file.wrong(GROUP, named, &format!("this group requires {option} too"))),
    };
    let domain = |option: &str| file.get(GROUP, option).unwrap_or("Default").to_owned();
    let kind = file.get(GROUP, "auth_type").unwrap_or("password");
    if !matches!(kind, "password" | "v3password") {
        return Err(file.wrong(
            GROUP,
            "auth_type",
            &format!("{kind} is not supported; use password"),
        ));
    }
    let auth_url = needed("auth_url")?;
    if !auth_url.starts_with("http://") && !auth_url.starts_with("https://") {
        return Err(file.wrong(GROUP, "auth_url", "it must begin with http:// or https://"));
    }
    refuse(file, "insecure", "certificates are always verified; set cafile to the authority")?;
    refuse(file, "delay_auth_decision", "a request without a valid token is always refused")?;
    let seconds = file
        .parse::<i64>(GROUP, "token_cache_time", "seconds, or -1 to disable the cache")?
        .map_or(300, |seconds| u64::try_from(seconds).unwrap_or(0));
    let timeout = match file.parse::<u64>(GROUP, "http_connect_timeout", "seconds")? {
        Some(0) => return Err(file.wrong(GROUP, "http_connect_timeout", "it must be at least 1")),
        seconds => Duration::from_secs(seconds.unwrap_or(TIMEOUT).min(3600)),
    };
    let retries = file.parse::<u32>(GROUP, "http_request_max_retries", "a number of retries")?;
    match file.get(GROUP, "enforce_token_bind") {
        None | Some("disabled" | "permissive") => {}
        Some(_) => {
            let why = "token binding is not supported; use disabled or permissive";
            return Err(file.wrong(GROUP, "enforce_token_bind", why));
        }
    }
    let roles = file.get(GROUP, "service_token_roles").unwrap_or("service");
    Ok(Some(ValidatorOptions {
        login: Login {
            auth_url,
            username: needed("username")?,
            password: needed("password")?,
            user_domain_name: domain("user_domain_name"),
            project_name: needed("project_name")?,
            project_domain_name: domain("project_domain_name"),
        },
        domains: DomainIds {
            user: file.get(GROUP, "user_domain_id").map(str::to_owned),
            project: file.get(GROUP, "project_domain_id").map(str::to_owned),
        },
        timeout,
        retries: retries.unwrap_or(RETRIES).min(MOST_RETRIES),
        www_authenticate_uri: file.get(GROUP, "www_authenticate_uri").map(str::to_owned),
        cafile: file.path(GROUP, "cafile"),
        cache_time: Duration::from_secs(seconds.min(24 * 3600)),
        service_token_roles: roles.split(',').map(|role| role.trim().to_owned()).collect(),
        service_token_roles_required: file
            .parse(GROUP, "service_token_roles_required", "true or false")?
            .unwrap_or(true),
    }))
}

fn refuse(file: &File, option: &str, why: &str) -> Result<(), Failure> {
    match file.parse(GROUP, option, "false")? {
        Some(true) => Err(file.wrong(GROUP, option, why)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(more: &str) -> Result<Option<ValidatorOptions>, String> {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("kilonova.conf");
        let text = format!(
            "[keystone_authtoken]\nauth_url = http://keystone:5000\nusername = placement\n\
             password = secret\nproject_name = service\n{more}\n"
        );
        std::fs::write(&path, text).expect("the file is written");
        File::read(&path, crate::config::KNOWN)
            .and_then(|file| read(&file))
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_section_of_a_usual_deployment_is_accepted() {
        let usual = "www_authenticate_uri = http://keystone:5000\nauth_type = password\n\
            user_domain_id = default\nproject_domain_id = default\nregion_name = RegionOne\n\
            service_type = placement\nmemcached_servers = one:11211,two:11211\n\
            memcache_security_strategy = ENCRYPT\nmemcache_secret_key = key\n\
            memcache_use_advanced_pool = True\nmemcache_pool_maxsize = 10\n\
            memcache_pool_dead_retry = 300\nmemcache_pool_socket_timeout = 3\n\
            memcache_pool_unused_timeout = 60\nmemcache_pool_conn_get_timeout = 10\n\
            memcache_tls_enabled = False\nmemcache_sasl_enabled = False\n\
            include_service_catalog = True\nenforce_token_bind = permissive\n\
            http_connect_timeout = 30\nhttp_request_max_retries = 5\ntoken_cache_time = -1";
        let options = section(usual)
            .expect("the configuration is valid")
            .expect("the section names a Keystone");
        assert_eq!(options.domains.user.as_deref(), Some("default"));
        assert_eq!(options.domains.project.as_deref(), Some("default"));
        assert_eq!((options.timeout, options.retries), (Duration::from_secs(30), 5));
        assert_eq!(options.cache_time, Duration::ZERO);
        let plain =
            section("").expect("the configuration is valid").expect("the section names a Keystone");
        assert_eq!((plain.timeout, plain.retries), (Duration::from_secs(10), 3));
        assert!(plain.domains.user.is_none() && plain.service_token_roles_required);
    }

    #[test]
    fn unsupported_options_are_refused() {
        for (wrong, text) in [
            ("enforce_token_bind = required", "enforce_token_bind"),
            ("http_connect_timeout = 0", "http_connect_timeout"),
            ("http_request_max_retries = many", "http_request_max_retries"),
            ("memcach_servers = x", "memcach_servers"),
        ] {
            let why = section(wrong).expect_err("the value is refused");
            assert!(why.contains(text), "{why}");
        }
    }
}
