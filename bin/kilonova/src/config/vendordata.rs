//! Dynamic vendor data: the operator's services of `[api] vendordata_dynamic_targets`, and the login of
//! `[vendordata_dynamic_auth]`, whose token they receive. The options are Nova's.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kilonova_compute_app::vendordata::{DynamicVendordata, Target};
use kilonova_keystone::{Http, Session, ValidatorOptions};
use kilonova_program::config::{Options, vendordata};

use super::adapter::{self, SessionSettings, list};
use super::compute::number;
use super::{File, login};
use crate::failure::Failure;

const GROUP: &str = "vendordata_dynamic_auth";
const TARGETS: &str = "vendordata_dynamic_targets";
const FATAL: &str = "vendordata_dynamic_failure_fatal";
const CONNECT: &str = "vendordata_dynamic_connect_timeout";
const READ: &str = "vendordata_dynamic_read_timeout";
const CAFILE: &str = "vendordata_dynamic_ssl_certfile";
/// The default of both waits, in seconds.
const WAIT: u64 = 5;
/// Maximum wait.
const LONGEST: u64 = 60;

/// The known options.
pub(super) const KNOWN: &Options = adapter::session_options!(
    GROUP,
    ("api", TARGETS),
    ("api", FATAL),
    ("api", CONNECT),
    ("api", READ),
    ("api", CAFILE),
);

/// The services, validated.
#[derive(Debug, Clone)]
pub struct VendordataSettings {
    targets: Vec<Target>,
    cafile: Option<PathBuf>,
    waits: (Duration, Duration),
    session: Option<SessionSettings>,
    is_failure_fatal: bool,
}

/// Reads the options; `None` if there is no service. `keystone` is the Keystone of the tokens.
pub(super) fn read(
    file: &File,
    keystone: Option<&ValidatorOptions>,
) -> Result<Option<VendordataSettings>, Failure> {
    let targets = targets(file)?;
    let wait = |option: &str| -> Result<Duration, Failure> {
        let seconds = number(file, "api", option, 3, WAIT)?;
        Ok(Duration::from_secs(seconds.min(LONGEST)))
    };
    let waits = (wait(CONNECT)?, wait(READ)?);
    let is_failure_fatal = file.parse("api", FATAL, "true or false")?.unwrap_or(false);
    let session = match (login::named(file, GROUP), keystone) {
        (None, _) => None,
        (Some(_), Some(keystone)) => Some(adapter::session(file, GROUP, keystone)?),
        (Some(named), None) => {
            let why = "a login is useful only in a cloud with an external Keystone: configure that in \
                       [keystone_authtoken], or remove this group";
            return Err(file.wrong(GROUP, named, why));
        }
    };
    if targets.is_empty() {
        return Ok(None);
    }
    if !vendordata::has_dynamic(file)? {
        let why = "no service is called, because DynamicJSON is not in [api] vendordata_providers; add it, or \
                   remove this option";
        return Err(file.wrong("api", TARGETS, why));
    }
    let cafile = file.path("api", CAFILE).filter(|path| !path.as_os_str().is_empty());
    Ok(Some(VendordataSettings { targets, cafile, waits, session, is_failure_fatal }))
}

/// The services: `name@url`.
fn targets(file: &File) -> Result<Vec<Target>, Failure> {
    let wrong = |why: &str| Err(file.wrong("api", TARGETS, why));
    let mut targets: Vec<Target> = Vec::new();
    for text in list(file.get("api", TARGETS).unwrap_or_default()) {
        let Some((name, url)) = text.split_once('@').filter(|(name, _)| !name.is_empty()) else {
            return wrong("each item must be NAME@URL");
        };
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        let Some(rest) = rest else {
            return wrong("a URL must begin with http:// or https://");
        };
        if rest.split(['/', '?']).next().is_some_and(|authority| authority.contains('@')) {
            return wrong("a URL cannot have a user; name the login in [vendordata_dynamic_auth]");
        }
        if targets.iter().any(|target| target.name == name) {
            return wrong(&format!("{name} occurs twice"));
        }
        targets.push(Target { name: name.to_owned(), url: url.to_owned() });
    }
    Ok(targets)
}

impl VendordataSettings {
    /// Opens the services without sending a request.
    ///
    /// # Errors
    /// A text for the operator: a certificate cannot be used.
    pub fn open(&self) -> Result<DynamicVendordata, String> {
        let urls = self.targets.iter().map(|target| &*target.url);
        let (cafile, largest) = (self.cafile.as_deref(), DynamicVendordata::LARGEST);
        let http = Http::for_urls(urls, cafile, self.waits, largest);
        let http = http.map_err(|error| format!("[api] {CAFILE}: {error}"))?;
        let session: Option<Arc<Session>> = match &self.session {
            Some(session) => Some(session.open().map_err(|why| format!("[{GROUP}] {why}"))?),
            None => {
                tracing::warn!(
                    "the services of [api] {TARGETS} receive no token, so they cannot identify the \
                     caller; set [{GROUP}]"
                );
                None
            }
        };
        Ok(DynamicVendordata::new(self.targets.clone(), http, session, self.is_failure_fatal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::adapter::testing::{self, KEYSTONE};

    fn settings(text: &str) -> Result<Option<VendordataSettings>, String> {
        testing::read(text, read)
    }

    const ON: &str = "[api]\nvendordata_providers = StaticJSON, DynamicJSON\n\
                      vendordata_dynamic_targets = ipam@http://ipam:9/v?key=sesame, join@https://j/\n";

    #[test]
    fn the_services_are_read() {
        assert!(settings("").expect("it is valid").is_none());
        let read = settings(ON).expect("it is valid").expect("services are named");
        assert_eq!(read.waits, (Duration::from_secs(5), Duration::from_secs(5)));
        assert!(read.session.is_none() && !read.is_failure_fatal);
        let names: Vec<&str> = read.targets.iter().map(|target| &*target.name).collect();
        assert_eq!(names, ["ipam", "join"]);
        let opened = format!("{:?}", read.open().expect("it opens"));
        assert!(!opened.contains("sesame"), "{opened}");
        let more = format!(
            "{ON}vendordata_dynamic_connect_timeout = 3\nvendordata_dynamic_read_timeout = 7\n\
             vendordata_dynamic_failure_fatal = true\n{KEYSTONE}[vendordata_dynamic_auth]\n\
             auth_section = keystone_authtoken\n"
        );
        let read = settings(&more).expect("it is valid").expect("services are named");
        assert_eq!(read.waits, (Duration::from_secs(3), Duration::from_secs(7)));
        assert!(read.session.is_some() && read.is_failure_fatal);
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let targets = |text: &str| ON.replace("ipam@http://ipam:9/v?key=sesame", text);
        for (text, words) in [
            (targets("http://nameless"), "NAME@URL"),
            (targets("a@ftp://b"), "http://"),
            (targets("a@http://me:sesame@b/"), "[vendordata_dynamic_auth]"),
            (targets("join@http://b"), "twice"),
            (ON.replace(", DynamicJSON", ""), "DynamicJSON"),
            (format!("{ON}vendordata_dynamic_read_timeout = 2\n"), "at least 3"),
            (format!("{ON}vendordata_dynamic_failure_fatal = often\n"), "true or false"),
            (format!("{ON}vendordata_dynamic_ssl_certfile = /none\n"), "/none"),
            (format!("{ON}[vendordata_dynamic_auth]\npassword = x\n"), "[keystone_authtoken]"),
            (format!("{ON}{KEYSTONE}[vendordata_dynamic_auth]\npassword = x\n"), "auth_url"),
        ] {
            let refused = match settings(&text) {
                Ok(Some(read)) => read.open().expect_err("it is refused"),
                Ok(None) => panic!("{text} is ignored"),
                Err(why) => why,
            };
            assert!(refused.contains(words), "{text}: {refused}");
            assert!(!refused.contains("sesame"), "{refused}");
        }
    }
}
