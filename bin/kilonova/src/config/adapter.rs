//! The options that every group with a keystoneauth session and adapter has: login, TLS, endpoint, retries.
//!
//! A group with its own service reads them here and adds its specific options.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kilonova_keystone::{Credentials, Endpoint, Http, Retries, Service, Session, ValidatorOptions};
use kilonova_program::config::Options;

use super::compute::number;
use super::{File, login};
use crate::failure::Failure;

/// The default timeout of a request in seconds; upstream has none.
const TIMEOUT: u64 = 60;
/// Maximum number of repetitions of a request.
const MOST_RETRIES: u32 = 20;
/// Maximum number of bytes of an answer.
const LARGEST: usize = 16 * 1024 * 1024;

/// The pairs of group and option of a group with a login and TLS, plus the given ones.
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

pub(super) use {endpoint_options, session_options};

/// The first option that the file sets in a group, which thereby selects a service of the cloud, and the
/// Keystone of the tokens; `None` if it sets none. `service` is the service's name, `instead` the
/// alternative without the group.
pub(super) fn selected<'a>(
    file: &File,
    group: &str,
    known: &Options,
    keystone: Option<&'a ValidatorOptions>,
    (service, instead): (&str, &str),
) -> Result<Option<(&'static str, &'a ValidatorOptions)>, Failure> {
    let is_set = |(of, option): &&(&str, &str)| *of == group && file.get(of, option).is_some();
    let Some((_, named)) = known.iter().find(is_set) else { return Ok(None) };
    let Some(keystone) = keystone else {
        let why = format!(
            "{service} accepts only tokens of its Keystone: name this Keystone in [keystone_authtoken], or \
             remove this group to {instead}"
        );
        return Err(file.wrong(group, named, &why));
    };
    Ok(Some((named, keystone)))
}

/// How often a request to a group's service is repeated.
pub(super) fn repetitions(
    file: &File,
    group: &str,
    option: &str,
    usual: u32,
) -> Result<u32, Failure> {
    Ok(number(file, group, option, 0, usual)?.min(MOST_RETRIES))
}

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
    /// Opens the session without sending a request.
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

/// The login whose tokens vouch for users' tokens (`[service_user]`), if it differs from that of the
/// called service.
pub(super) fn service_token_login(
    file: &File,
    keystone: &ValidatorOptions,
) -> Result<Option<SessionSettings>, Failure> {
    let is_on = file.parse(VOUCHER, "send_service_user_token", "true or false")?;
    if is_on != Some(true) {
        return Ok(None);
    }
    session(file, VOUCHER, keystone).map(Some)
}

/// Opens a group's session and that for service tokens. Returns a constructor of the service for an
/// endpoint; sends nothing.
///
/// # Errors
/// A text for the operator: a certificate cannot be used.
pub(super) fn services(
    own: &SessionSettings,
    service_token_login: Option<&SessionSettings>,
) -> Result<impl Fn(&Endpoint, Retries) -> Service, String> {
    let session = own.open()?;
    let service_token_login = service_token_login.map(SessionSettings::open).transpose();
    let service_token_login = service_token_login.map_err(|why| format!("[{VOUCHER}] {why}"))?;
    Ok(move |endpoint: &Endpoint, retries: Retries| {
        let service = Service::new(Arc::clone(&session), endpoint.clone(), retries);
        match &service_token_login {
            Some(service_token_login) => service.vouched_by(Arc::clone(service_token_login)),
            None => service,
        }
    })
}

/// Items of a list.
pub(super) fn list(text: &str) -> impl Iterator<Item = String> {
    text.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty())
}

/// The base URL of requests: `url` without a trailing slash or API version.
///
/// # Errors
/// If it is not a URL.
pub(super) fn url(
    file: &File,
    group: &str,
    option: &str,
    url: &str,
    version: &str,
) -> Result<String, Failure> {
    check_url(file, group, option, url)?;
    let url = url.trim_end_matches('/');
    Ok(url.strip_suffix(version).unwrap_or(url).trim_end_matches('/').to_owned())
}

/// Refuses a text that is not an HTTP URL.
pub(super) fn check_url(file: &File, group: &str, option: &str, url: &str) -> Result<(), Failure> {
    if url.starts_with("http://") || url.starts_with("https://") {
        return Ok(());
    }
    Err(file.wrong(group, option, "a URL must begin with http:// or https://"))
}

/// The endpoint of a group's service. `types` are its usual types in a catalog, `version` is the API
/// version in the paths of requests.
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

/// For the tests of the groups.
#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// A Keystone with a login.
    pub(in crate::config) const KEYSTONE: &str = "[keystone_authtoken]\nauth_url = http://keystone:5000\nusername = nova\n\
         password = secret\nproject_name = service\n";

    /// Reads a group of a file with this text; the error is the text of the refusal.
    pub(in crate::config) fn read<T>(
        text: &str,
        group: impl FnOnce(&File, Option<&ValidatorOptions>) -> Result<T, Failure>,
    ) -> Result<T, String> {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("kilonova.conf");
        std::fs::write(&path, text).expect("the file is written");
        let file = File::read(&path, crate::config::KNOWN).map_err(|e| e.to_string())?;
        let keystone = crate::config::keystone::read(&file).map_err(|e| e.to_string())?;
        group(&file, keystone.as_ref()).map_err(|e| e.to_string())
    }
}
