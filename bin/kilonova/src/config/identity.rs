//! Options of the identity service, with Keystone's groups and names.

use std::time::Duration;

use kilonova_identity::{IdentityOptions, Lockout, ServiceTokens};

use super::File;
use crate::failure::Failure;

/// Keystone's default of `lockout_duration`.
const LOCKED_SECONDS: u64 = 1800;
/// Maximum lifetime of a token.
const LONGEST: u64 = 30 * 24 * 3600;

/// Maximum time in minutes for which a signature is accepted.
const LONGEST_SIGNATURE: u64 = 30 * 24 * 60;

/// Reads the options.
pub(super) fn read(file: &File) -> Result<IdentityOptions, Failure> {
    let usual = IdentityOptions::default();
    let number = |group: &str, option: &str, least: i64| -> Result<Option<i64>, Failure> {
        match file.parse::<i64>(group, option, "an integer")? {
            Some(number) if number < least => {
                Err(file.wrong(group, option, &format!("it must be at least {least}")))
            }
            number => Ok(number),
        }
    };
    let positive = |group: &str, option: &str| -> Result<Option<u64>, Failure> {
        Ok(number(group, option, 1)?.and_then(|number| u64::try_from(number).ok()))
    };
    let attempts = positive("security_compliance", "lockout_failure_attempts")?;
    let locked = positive("security_compliance", "lockout_duration")?.unwrap_or(LOCKED_SECONDS);
    let token_expiration = match positive("token", "expiration")? {
        Some(seconds) => Duration::from_secs(seconds.min(LONGEST)),
        None => usual.token_expiration,
    };
    let window = positive("token", "allow_expired_window")?;
    Ok(IdentityOptions {
        token_expiration,
        allow_expired_window: window.map_or(usual.allow_expired_window, |seconds| {
            Duration::from_secs(seconds.min(LONGEST))
        }),
        service_tokens: service_tokens(file)?,
        lockout: attempts.map(|attempts| Lockout {
            attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
            duration: Duration::from_secs(locked),
        }),
        credential_limit: match number("application_credential", "user_limit", -1)? {
            Some(-1) => None,
            Some(limit) => Some(limit),
            None => usual.credential_limit,
        },
        max_redelegation: number("trust", "max_redelegation_count", 0)?
            .unwrap_or(usual.max_redelegation),
        signature_lifetime: positive("credential", "auth_ttl")?
            .map_or(usual.signature_lifetime, |minutes| {
                Duration::from_secs(minutes.min(LONGEST_SIGNATURE) * 60)
            }),
        ..usual
    })
}

/// Reads the rules for service tokens, which hold for our own tokens and for those of another Keystone.
pub(super) fn service_tokens(file: &File) -> Result<ServiceTokens, Failure> {
    const GROUP: &str = "keystone_authtoken";
    let usual = ServiceTokens::default();
    let roles = file.get(GROUP, "service_token_roles");
    let required = file.parse(GROUP, "service_token_roles_required", "true or false")?;
    Ok(ServiceTokens {
        roles: roles.map_or(usual.roles, |roles| {
            roles.split(',').map(|role| role.trim().to_owned()).collect()
        }),
        roles_required: required.unwrap_or(usual.roles_required),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<IdentityOptions, String> {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("kilonova.conf");
        std::fs::write(&path, text).expect("the file is written");
        File::read(&path, crate::config::KNOWN)
            .and_then(|file| read(&file))
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn options_have_keystones_names() {
        let usual = options("").expect("the configuration is valid");
        assert!(usual.lockout.is_none() && usual.credential_limit == Some(100));
        let text = "[security_compliance]\nlockout_failure_attempts = 5\n[trust]\n\
            max_redelegation_count = 1\n[application_credential]\nuser_limit = -1\n[token]\n\
            expiration = 600\nallow_expired_window = 60\n[keystone_authtoken]\n\
            service_token_roles = service, admin\nservice_token_roles_required = false\n\
            [credential]\nauth_ttl = 5\n";
        let given = options(text).expect("the configuration is valid");
        let lockout = given.lockout.expect("lockout is set");
        assert_eq!((lockout.attempts, lockout.duration), (5, Duration::from_secs(1800)));
        assert_eq!((given.credential_limit, given.max_redelegation), (None, 1));
        assert_eq!(given.token_expiration, Duration::from_secs(600));
        assert_eq!(given.allow_expired_window, Duration::from_secs(60));
        assert_eq!(given.service_tokens.roles, ["service", "admin"]);
        assert_eq!(usual.signature_lifetime, Duration::from_secs(900));
        assert_eq!(given.signature_lifetime, Duration::from_secs(300));
        assert!(usual.service_tokens.roles_required && !given.service_tokens.roles_required);
        for wrong in [
            "[security_compliance]\nlockout_failure_attempts = 0\n",
            "[application_credential]\nuser_limit = -2\n",
            "[token]\nexpiration = never\n",
            "[credential]\nauth_ttl = 0\n",
        ] {
            let why = options(wrong).expect_err("the value is refused");
            assert!(why.contains(":2: "), "{why}");
        }
    }
}
