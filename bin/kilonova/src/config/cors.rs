//! `[cors]`: the sites whose pages may call the API from a browser. Options and defaults are upstream's.

use axum::http::{HeaderName, HeaderValue, Method};

use super::File;
use crate::failure::Failure;

const GROUP: &str = "cors";
const METHODS: [Method; 8] = [
    Method::OPTIONS,
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::TRACE,
    Method::PATCH,
];

/// The request headers that upstream's services allow by default: `set_cors_middleware_defaults` of
/// `glance/common/config.py` and `neutron/common/config.py`, `set_defaults` of `nova/middleware.py`,
/// `set_external_opts_defaults` of `keystone/conf/__init__.py`, and `placement/wsgi/__init__.py`.
/// One process serves all of them, so the default is their union; Cyborg adds none.
const ALLOWED: [HeaderName; 21] = [
    HeaderName::from_static("accept-encoding"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("openstack-api-version"),
    HeaderName::from_static("openstack-auth-receipt"),
    HeaderName::from_static("x-auth-token"),
    HeaderName::from_static("x-domain-id"),
    HeaderName::from_static("x-domain-name"),
    HeaderName::from_static("x-identity-status"),
    HeaderName::from_static("x-image-meta-checksum"),
    HeaderName::from_static("x-openstack-nova-api-version"),
    HeaderName::from_static("x-openstack-request-id"),
    HeaderName::from_static("x-project-domain-id"),
    HeaderName::from_static("x-project-domain-name"),
    HeaderName::from_static("x-project-id"),
    HeaderName::from_static("x-project-name"),
    HeaderName::from_static("x-roles"),
    HeaderName::from_static("x-service-catalog"),
    HeaderName::from_static("x-storage-token"),
    HeaderName::from_static("x-subject-token"),
    HeaderName::from_static("x-tenant-id"),
    HeaderName::from_static("x-user-id"),
];

/// The response headers that upstream's services let a page read by default, from the same places.
const EXPOSED: [HeaderName; 9] = [
    HeaderName::from_static("openstack-api-version"),
    HeaderName::from_static("openstack-auth-receipt"),
    HeaderName::from_static("openstack-volume-microversion"),
    HeaderName::from_static("x-auth-token"),
    HeaderName::from_static("x-image-meta-checksum"),
    HeaderName::from_static("x-openstack-nova-api-version"),
    HeaderName::from_static("x-openstack-request-id"),
    HeaderName::from_static("x-service-token"),
    HeaderName::from_static("x-subject-token"),
];

/// The CORS policy.
#[derive(Debug, Clone)]
pub struct Cors {
    /// Allowed sites; `*` allows any.
    pub origins: Vec<HeaderValue>,
    /// True if the browser may send credentials.
    pub credentials: bool,
    /// Response headers that the page may read.
    pub expose: Vec<HeaderName>,
    /// Seconds for which the browser may cache the policy; 0 omits the header.
    pub max_age: u32,
    /// Allowed methods.
    pub methods: Vec<Method>,
    /// Allowed request headers.
    pub headers: Vec<HeaderName>,
}

impl Cors {
    /// The default policy for these sites.
    pub fn of(origins: Vec<HeaderValue>) -> Self {
        Self {
            origins,
            credentials: true,
            expose: EXPOSED.to_vec(),
            max_age: 3600,
            methods: METHODS.to_vec(),
            headers: ALLOWED.to_vec(),
        }
    }
}

/// Reads the group; `None` if it allows no site.
///
/// # Errors
/// An invalid value.
pub(super) fn read(file: &File) -> Result<Option<Cors>, Failure> {
    let origins = list(file, "allowed_origin", |text| {
        is_origin(text).then(|| HeaderValue::from_str(text).ok()).flatten()
    })?;
    let name = |text: &str| HeaderName::from_bytes(text.as_bytes()).ok();
    let method = |text: &str| Method::from_bytes(text.as_bytes()).ok();
    let default = Cors::of(origins.unwrap_or_default());
    let credentials = file.parse(GROUP, "allow_credentials", "true or false")?;
    let cors = Cors {
        credentials: credentials.unwrap_or(default.credentials),
        expose: list(file, "expose_headers", name)?.unwrap_or(default.expose),
        max_age: file.parse(GROUP, "max_age", "a number of seconds")?.unwrap_or(default.max_age),
        methods: list(file, "allow_methods", method)?.unwrap_or(default.methods),
        headers: list(file, "allow_headers", name)?.unwrap_or(default.headers),
        origins: default.origins,
    };
    Ok((!cors.origins.is_empty()).then_some(cors))
}

/// True if a text is `SCHEME://HOST[:PORT]`, as browsers send it, or `*`.
fn is_origin(text: &str) -> bool {
    let host = text.split_once("://").map(|(_, host)| host);
    text == "*" || host.is_some_and(|host| !host.is_empty() && !host.contains(['/', ' ']))
}

fn list<T>(
    file: &File,
    option: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<Vec<T>>, Failure> {
    let Some(text) = file.get(GROUP, option) else { return Ok(None) };
    let each = text.split(',').map(str::trim).filter(|one| !one.is_empty());
    let wrong = |one: &str| {
        let form = match option {
            "allowed_origin" => "SCHEME://HOST[:PORT] without a trailing slash, or *",
            _ => "a comma-separated list",
        };
        file.wrong(GROUP, option, &format!("{one} is not a valid value; expected {form}"))
    };
    each.map(|one| read(one).ok_or_else(|| wrong(one))).collect::<Result<Vec<_>, _>>().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_with(options: &str) -> Result<Option<Cors>, String> {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("kilonova.conf");
        std::fs::write(&path, format!("[cors]\n{options}\n")).expect("the file is written");
        File::read(&path, crate::config::KNOWN)
            .and_then(|file| read(&file))
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_defaults_are_upstreams() {
        assert!(
            read_with("max_age = 5").expect("the file is valid").is_none(),
            "no site is allowed"
        );
        let cors = read_with("allowed_origin = http://a, https://b:8443")
            .expect("the configuration is valid");
        let cors = cors.expect("the option allows two sites");
        assert_eq!((cors.origins.len(), cors.max_age, cors.credentials), (2, 3600, true));
        assert_eq!((cors.methods.len(), cors.headers.len(), cors.expose.len()), (8, 21, 9));
    }

    #[test]
    fn lists_of_headers_replace_the_defaults() {
        let cors = read_with("allowed_origin = *\nallow_headers = X-Mine\nexpose_headers =")
            .expect("the configuration is valid")
            .expect("the option allows any site");
        assert_eq!((cors.headers, cors.expose), (vec![HeaderName::from_static("x-mine")], vec![]));
    }

    #[test]
    fn invalid_values_are_refused() {
        for wrong in [
            "allowed_origin = http://a/",
            "allowed_origin = a",
            "allow_headers = a b",
            "max_age = soon",
        ] {
            let message = read_with(wrong).expect_err(wrong);
            let option = wrong.split(' ').next().unwrap_or_default();
            assert!(message.contains(&format!("kilonova.conf:2: [cors] {option}: ")), "{message}");
        }
    }
}
