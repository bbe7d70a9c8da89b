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

/// Reads the group; `None` if it allows no site.
///
/// # Errors
/// An invalid value.
pub(super) fn read(file: &File) -> Result<Option<Cors>, Failure> {
    let origins = list(file, "allowed_origin", |text| {
        is_origin(text).then(|| HeaderValue::from_str(text).ok()).flatten()
    })?;
    let name = |text: &str| HeaderName::from_bytes(text.as_bytes()).ok();
    let cors = Cors {
        origins: origins.unwrap_or_default(),
        credentials: file.parse(GROUP, "allow_credentials", "true or false")?.unwrap_or(true),
        expose: list(file, "expose_headers", name)?.unwrap_or_default(),
        max_age: file.parse(GROUP, "max_age", "a number of seconds")?.unwrap_or(3600),
        methods: list(file, "allow_methods", |text| Method::from_bytes(text.as_bytes()).ok())?
            .unwrap_or_else(|| METHODS.to_vec()),
        headers: list(file, "allow_headers", name)?.unwrap_or_default(),
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
        assert_eq!((cors.methods.len(), cors.headers.len(), cors.expose.len()), (8, 0, 0));
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
