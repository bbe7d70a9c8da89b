//! The options that every group with a keystoneauth session and adapter has: login, TLS, endpoint, retries.
//!
//! A group with a service of its own reads them here, and adds what only it has.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use kilonova_keystone::{Credentials, Endpoint, Http, Retries, Session, ValidatorOptions};
use kilonova_program::config::Options;

use super::compute::number;
use super::{File, login};
use crate::failure::Failure;

/// The default timeout of a request in seconds; upstream has none.
const TIMEOUT: u64 = 60;
/// The most repetitions of a request.
const MOST_RETRIES: u64 = 20;
/// The most bytes of an answer.
const LARGEST: usize = 16 * 1024 * 1024;

/// The pairs of group and option of a group with a login and TLS, and with the options that follow.
macro_rules! session_options {
    ($group:expr $(, $more:expr)* $(,)?) => {
        &[
            ($group, "application_credential_id"),
            ($group, "application_credential_name"),
            ($group, "application_credential_secret"),
            ($group, "auth_section"),
            ($group, "auth_type"),
            ($group, "auth_url"),
            ($group, "cafile"),
            ($group, "certfile"),
            ($group, "default_domain_id"),
            ($group, "default_domain_name"),
            ($group, "insecure"),
            ($group, "keyfile"),
            ($group, "password"),
            ($group, "project_domain_id"),
            ($group, "project_domain_name"),
            ($group, "project_id"),
            ($group, "project_name"),
            ($group, "timeout"),
            ($group, "token"),
            ($group, "user_domain_id"),
            ($group, "user_domain_name"),
            ($group, "user_id"),
            ($group, "username"),
            $($more,)*
        ]
    };
}

/// As `session_options`, with the endpoint of a service.
macro_rules! endpoint_options {
    ($group:expr $(, $more:expr)* $(,)?) => {
        $crate::config::adapter::session_options!(
            $group,
            ($group, "endpoint_override"),
            ($group, "region_name"),
            ($group, "service_name"),
            ($group, "service_type"),
            ($group, "valid_interfaces"),
            $($more,)*
        )
    };
}

/// As `endpoint_options`, with the repetitions of requests.
#[allow(unused_macros, reason = "groups with retries of their own do not need it")]
macro_rules! service_options {
    ($group:expr $(, $more:expr)* $(,)?) => {
        $crate::config::adapter::endpoint_options!(
            $group,
            ($group, "connect_retries"),
            ($group, "connect_retry_delay"),
            ($group, "retriable_status_codes"),
            ($group, "status_code_retries"),
            ($group, "status_code_retry_delay"),
            $($more,)*
        )
    };
}

#[allow(unused_imports, reason = "groups with retries of their own do not need it")]
pub(super) use service_options;
pub(super) use {endpoint_options, session_options};

/// A login with its HTTP client.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    /// The login.
    pub credentials: Credentials,
    cafile: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
    /// How long a request may take.
    pub timeout: Duration,
}

/// Reads the login of a group, or that of `[keystone_authtoken]` if it has none, and its TLS.
pub(super) fn session(
    file: &File,
    group: &str,
    keystone: &ValidatorOptions,
) -> Result<SessionSettings, Failure> {
    if file.parse(group, "insecure", "false")? == Some(true) {
        let why = "certificates are always verified; set cafile to the authority";
        return Err(file.wrong(group, "insecure", why));
    }
    let certificate = match (file.path(group, "certfile"), file.path(group, "keyfile")) {
        (Some(certfile), Some(keyfile)) => Some((certfile, keyfile)),
        (Some(_), None) => return Err(file.wrong(group, "certfile", "it needs keyfile too")),
        (None, Some(_)) => return Err(file.wrong(group, "keyfile", "it needs certfile too")),
        (None, None) => None,
    };
    let credentials = match login::named(file, group) {
        Some(named) => login::read(file, group, named)?,
        None => keystone.credentials.clone(),
    };
    Ok(SessionSettings {
        credentials,
        cafile: file.path(group, "cafile").or_else(|| keystone.cafile.clone()),
        certificate,
        timeout: Duration::from_secs(number(file, group, "timeout", 1, TIMEOUT)?.min(3600)),
    })
}

impl SessionSettings {
    /// The session; nothing is sent.
    ///
    /// # Errors
    /// A text for the operator: a certificate cannot be used.
    pub fn open(&self) -> Result<Arc<Session>, String> {
        let own = self.certificate.as_ref().map(|(cert, key)| (cert.as_path(), key.as_path()));
        let http = Http::with_certificate(self.cafile.as_deref(), own, self.timeout, LARGEST);
        let http = http.map_err(|error| error.to_string())?;
        Ok(Arc::new(Session::new(http, self.credentials.clone())))
    }
}

/// The group of the login whose tokens vouch for users' tokens.
const VOUCHER: &str = "service_user";

/// The known options of that group.
pub(super) const VOUCHER_OPTIONS: &Options =
    session_options!(VOUCHER, (VOUCHER, "send_service_user_token"));

/// The login whose tokens vouch for users' tokens (`[service_user]`), where it differs from that of the
/// service that is asked.
pub(super) fn voucher(
    file: &File,
    keystone: &ValidatorOptions,
) -> Result<Option<SessionSettings>, Failure> {
    let is_on = file.parse(VOUCHER, "send_service_user_token", "true or false")?;
    if is_on != Some(true) {
        return Ok(None);
    }
    session(file, VOUCHER, keystone).map(Some)
}

/// Items of a list.
pub(super) fn list(text: &str) -> impl Iterator<Item = String> {
    text.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty())
}

/// A URL without a slash or the version of the API at its end, which requests begin with.
///
/// # Errors
/// If it is no URL.
pub(super) fn url(
    file: &File,
    group: &str,
    option: &str,
    url: &str,
    version: &str,
) -> Result<String, Failure> {
    if url.starts_with("http://") || url.starts_with("https://") {
        let url = url.trim_end_matches('/');
        return Ok(url.strip_suffix(version).unwrap_or(url).trim_end_matches('/').to_owned());
    }
    Err(file.wrong(group, option, "a URL must begin with http:// or https://"))
}

/// The endpoint of a group's service. `types` are its usual types in a catalog, `version` is that of the
/// paths of requests.
pub(super) fn endpoint(
    file: &File,
    group: &str,
    types: &[&str],
    version: &str,
) -> Result<Endpoint, Failure> {
    let get = |option: &str| file.get(group, option).filter(|text| !text.is_empty());
    let endpoint_override = get("endpoint_override")
        .map(|text| url(file, group, "endpoint_override", text, version))
        .transpose()?;
    Ok(Endpoint {
        service_types: match get("service_type") {
            Some(one) => vec![one.to_owned()],
            None => types.iter().map(|one| (*one).to_owned()).collect(),
        },
        service_name: get("service_name").map(str::to_owned),
        interfaces: list(get("valid_interfaces").unwrap_or("internal, public")).collect(),
        region: get("region_name").map(str::to_owned),
        endpoint_override,
    })
}

/// The repetitions of a group's requests. `by_default` is the number of those without an answer.
#[allow(dead_code, reason = "groups with retries of their own do not need it")]
pub(super) fn retries(file: &File, group: &str, by_default: u32) -> Result<Retries, Failure> {
    let usual = Retries { connect: by_default, ..Retries::default() };
    let count = |option: &str, usual: u32| -> Result<u32, Failure> {
        let count = number(file, group, option, 0, u64::from(usual))?.min(MOST_RETRIES);
        Ok(u32::try_from(count).unwrap_or(usual))
    };
    let delay = |option: &str, usual: Duration| -> Result<Duration, Failure> {
        let seconds = file.parse::<f64>(group, option, "a number of seconds")?;
        let Some(seconds) = seconds else { return Ok(usual) };
        Duration::try_from_secs_f64(seconds.clamp(0.0, 60.0))
            .map_err(|_| file.wrong(group, option, "expected a number of seconds"))
    };
    let statuses = match file.get(group, "retriable_status_codes") {
        None => usual.statuses.clone(),
        Some(text) => list(text)
            .map(|code| {
                let code = code.parse().ok().and_then(|code| StatusCode::from_u16(code).ok());
                let why = "expected HTTP statuses such as 500,503";
                code.ok_or_else(|| file.wrong(group, "retriable_status_codes", why))
            })
            .collect::<Result<_, _>>()?,
    };
    Ok(Retries {
        connect: count("connect_retries", usual.connect)?,
        connect_delay: delay("connect_retry_delay", usual.connect_delay)?,
        status: count("status_code_retries", usual.status)?,
        status_delay: delay("status_code_retry_delay", usual.status_delay)?,
        statuses,
    })
}
