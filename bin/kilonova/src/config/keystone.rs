//! `[keystone_authtoken]`: validates tokens of an external Keystone.
//!
//! The options are upstream's, so that a section carries over unchanged; the table of upstream's options
//! names those without effect.

use std::time::Duration;

use kilonova_keystone::ValidatorOptions;

use super::{File, identity, login};
use crate::failure::Failure;

const GROUP: &str = "keystone_authtoken";

/// The default timeout of Keystone in seconds; upstream has none.
const TIMEOUT: u64 = 10;
/// Upstream's default.
const RETRIES: u32 = 3;
const MOST_RETRIES: u32 = 20;

/// Reads the group; `None` if it names no Keystone.
pub(super) fn read(file: &File) -> Result<Option<ValidatorOptions>, Failure> {
    // A type alone is the default of some installers; it names no Keystone.
    let Some(named) = login::named(file, GROUP).filter(|named| *named != "auth_type") else {
        return Ok(None);
    };
    let credentials = login::read(file, GROUP, named)?;
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
    let service_tokens = identity::service_tokens(file)?;
    Ok(Some(ValidatorOptions {
        credentials,
        timeout,
        retries: retries.unwrap_or(RETRIES).min(MOST_RETRIES),
        www_authenticate_uri: file.get(GROUP, "www_authenticate_uri").map(str::to_owned),
        cafile: file.path(GROUP, "cafile"),
        cache_time: Duration::from_secs(seconds.min(24 * 3600)),
        service_token_roles: service_tokens.roles,
        service_token_roles_required: service_tokens.roles_required,
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
    use kilonova_keystone::{CredentialName, Credentials, Named};

    use super::*;

    fn section(more: &str) -> Result<Option<ValidatorOptions>, String> {
        read_text(&format!(
            "auth_url = http://keystone:5000\nusername = placement\npassword = secret\n\
             project_name = service\n{more}\n"
        ))
    }

    fn read_text(options: &str) -> Result<Option<ValidatorOptions>, String> {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("kilonova.conf");
        let text = format!("[keystone_authtoken]\n{options}");
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
        let ids = |options: &ValidatorOptions| match &options.credentials {
            Credentials::Password(_, ids) => (ids.user_domain.clone(), ids.project_domain.clone()),
            other => panic!("{other:?}"),
        };
        let default = Some("default".to_owned());
        assert_eq!(ids(&options), (default.clone(), default));
        assert_eq!((options.timeout, options.retries), (Duration::from_secs(30), 5));
        assert_eq!(options.cache_time, Duration::ZERO);
        let plain =
            section("").expect("the configuration is valid").expect("the section names a Keystone");
        assert_eq!((plain.timeout, plain.retries), (Duration::from_secs(10), 3));
        assert_eq!(ids(&plain), (None, None));
        assert!(plain.service_token_roles_required);
    }

    #[test]
    fn every_type_of_login_is_read() {
        let login = |options: &str| {
            let options = format!("auth_url = http://keystone:5000/v3\n{options}");
            let read = read_text(&options)?.expect("the section names a Keystone");
            Ok::<_, String>(read.credentials)
        };
        let by_id = login("user_id = u1\npassword = secret\nproject_id = p1\n");
        let Ok(Credentials::Password(_, ids)) = by_id else { panic!("{by_id:?}") };
        assert_eq!((ids.user.as_deref(), ids.project.as_deref()), (Some("u1"), Some("p1")));
        let credential = login(
            "auth_type = v3applicationcredential\napplication_credential_id = c1\n\
             application_credential_secret = secret\n",
        );
        let Ok(Credentials::ApplicationCredential { credential, secret, .. }) = credential else {
            panic!("{credential:?}")
        };
        assert_eq!((credential, secret.as_str()), (CredentialName::Id("c1".into()), "secret"));
        let credential = login(
            "auth_type = v3applicationcredential\napplication_credential_name = c\n\
             username = nova\ndefault_domain_id = d1\napplication_credential_secret = secret\n",
        );
        let Ok(Credentials::ApplicationCredential { credential, .. }) = credential else {
            panic!("{credential:?}")
        };
        let user = Named::Name {
            name: "nova".into(),
            domain_id: Some("d1".into()),
            domain_name: "Default".into(),
        };
        assert_eq!(credential, CredentialName::OfUser { name: "c".into(), user });
        let token = login("auth_type = v3token\ntoken = t1\nproject_id = p1\n");
        let Ok(Credentials::Token { token, project, .. }) = token else { panic!("{token:?}") };
        assert_eq!((token.as_str(), project), ("t1", Named::Id("p1".into())));
        for (wrong, why) in [
            ("auth_type = v3token\ntoken = t1\n", "project_name"),
            (
                "auth_type = v3applicationcredential\napplication_credential_name = c\n\
                 application_credential_secret = s\n",
                "username",
            ),
            ("auth_type = v3applicationcredential\napplication_credential_id = c1\n", "_secret"),
            ("password = secret\nproject_id = p1\n", "username"),
            ("auth_type = v3kerberos\n", "v3kerberos is not supported"),
        ] {
            let refused = login(wrong).expect_err("the login is refused");
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn the_login_may_be_in_another_group() {
        let elsewhere = "auth_section = service_login\n[service_login]\nauth_url = http://keystone:5000\n\
                         auth_type = password\nuser_name = nova\npassword = secret\ntenant_name = service\n";
        let read = read_text(elsewhere).expect("it is valid").expect("it names a Keystone");
        let Credentials::Password(login, _) = read.credentials else {
            panic!("{:?}", read.credentials)
        };
        assert_eq!((login.username.as_str(), login.project_name.as_str()), ("nova", "service"));
        for (text, why) in [
            ("auth_section = nowhere\n", "[nowhere] of this file has no login"),
            ("auth_section = glance\n[glance]\nauth_section = nova\n", "has no login"),
            ("auth_section = one\n[one]\nfrob = 1\n", "frob"),
            ("[one]\nauth_url = http://keystone:5000\n", "this group is not known"),
        ] {
            let refused = read_text(text).expect_err("it is refused");
            assert!(refused.contains(why), "{refused}");
        }
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
