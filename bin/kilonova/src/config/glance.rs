//! `[glance]`: the Glance of the cloud as the image service, with Nova's and keystoneauth's options.
//!
//! Users' requests carry the users' tokens. The calls that follow them need a login of Kilonova's own: that of
//! this group, or else that of `[keystone_authtoken]`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kilonova_compute_app::images::glance::{CloudGlance, CloudGlanceOptions};
use kilonova_glance::{Glance, GlanceOptions};
use kilonova_keystone::{Credentials, Endpoint, Http, Retries, Service, Session, ValidatorOptions};

use super::compute::number;
use super::{File, login};
use crate::failure::Failure;

const GROUP: &str = "glance";
/// The option of the group `DEFAULT`.
const INHERITED: &str = "non_inheritable_image_properties";
/// The default timeout of a request in seconds; upstream has none.
const TIMEOUT: u64 = 60;
const MOST_RETRIES: u32 = 20;
/// The most bytes of an answer that is not an image.
const LARGEST: usize = 16 * 1024 * 1024;

/// The options that name a login.
const LOGIN: [&str; 8] = [
    "auth_type",
    "auth_url",
    "username",
    "user_id",
    "password",
    "application_credential_id",
    "application_credential_secret",
    "token",
];

/// The known options.
pub(super) const KNOWN: [(&str, &str); 27] = [
    ("DEFAULT", INHERITED),
    (GROUP, "api_servers"),
    (GROUP, "application_credential_id"),
    (GROUP, "application_credential_secret"),
    (GROUP, "auth_type"),
    (GROUP, "auth_url"),
    (GROUP, "cafile"),
    (GROUP, "certfile"),
    (GROUP, "endpoint_override"),
    (GROUP, "insecure"),
    (GROUP, "keyfile"),
    (GROUP, "num_retries"),
    (GROUP, "password"),
    (GROUP, "project_domain_id"),
    (GROUP, "project_domain_name"),
    (GROUP, "project_id"),
    (GROUP, "project_name"),
    (GROUP, "region_name"),
    (GROUP, "service_name"),
    (GROUP, "service_type"),
    (GROUP, "timeout"),
    (GROUP, "token"),
    (GROUP, "user_domain_id"),
    (GROUP, "user_domain_name"),
    (GROUP, "user_id"),
    (GROUP, "username"),
    (GROUP, "valid_interfaces"),
];

/// The group, validated.
#[derive(Debug, Clone)]
pub struct GlanceSettings {
    credentials: Credentials,
    endpoints: Vec<Endpoint>,
    cafile: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
    timeout: Duration,
    client: GlanceOptions,
    service: CloudGlanceOptions,
}

/// Reads the group; `None` if it is absent. `keystone` is the Keystone of the tokens, `snapshots` the most
/// uploads of hosts at once.
pub(super) fn read(
    file: &File,
    keystone: Option<&ValidatorOptions>,
    snapshots: usize,
) -> Result<Option<GlanceSettings>, Failure> {
    let get = |option: &str| file.get(GROUP, option).map(str::to_owned);
    let own = KNOWN.iter().filter(|(group, _)| *group == GROUP);
    let Some((_, named)) = own.clone().find(|(_, option)| get(option).is_some()) else {
        return Ok(None);
    };
    let Some(keystone) = keystone else {
        let why = "a Glance accepts only tokens of its own Keystone: name that one in [keystone_authtoken], \
                   or remove this group to use the image service of Kilonova";
        return Err(file.wrong(GROUP, named, why));
    };
    if file.parse(GROUP, "insecure", "false")? == Some(true) {
        let why = "certificates are always verified; set cafile to the authority";
        return Err(file.wrong(GROUP, "insecure", why));
    }
    let certificate = match (file.path(GROUP, "certfile"), file.path(GROUP, "keyfile")) {
        (Some(certfile), Some(keyfile)) => Some((certfile, keyfile)),
        (Some(_), None) => return Err(file.wrong(GROUP, "certfile", "it needs keyfile too")),
        (None, Some(_)) => return Err(file.wrong(GROUP, "keyfile", "it needs certfile too")),
        (None, None) => None,
    };
    let timeout = number(file, GROUP, "timeout", 1, TIMEOUT)?.min(3600);
    let retries = number(file, GROUP, "num_retries", 0, GlanceOptions::default().retries)?;
    let inherited = file.get("DEFAULT", INHERITED).map(|text| list(text).collect());
    Ok(Some(GlanceSettings {
        credentials: credentials(file, keystone)?,
        endpoints: endpoints(file)?,
        cafile: file.path(GROUP, "cafile").or_else(|| keystone.cafile.clone()),
        certificate,
        timeout: Duration::from_secs(timeout),
        client: GlanceOptions {
            retries: retries.min(MOST_RETRIES),
            patience: Duration::from_secs(timeout),
            ..GlanceOptions::default()
        },
        service: CloudGlanceOptions {
            non_inheritable: inherited
                .unwrap_or_else(|| CloudGlanceOptions::default().non_inheritable),
            snapshots,
        },
    }))
}

fn list(text: &str) -> impl Iterator<Item = String> {
    text.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty())
}

/// The login of the group, or that of `[keystone_authtoken]`.
fn credentials(file: &File, keystone: &ValidatorOptions) -> Result<Credentials, Failure> {
    match LOGIN.into_iter().find(|option| file.get(GROUP, option).is_some()) {
        Some(named) => login::read(file, GROUP, named),
        None => Ok(keystone.credentials.clone()),
    }
}

/// The endpoints: `api_servers`, `endpoint_override`, or that of the catalog.
fn endpoints(file: &File) -> Result<Vec<Endpoint>, Failure> {
    let get = |option: &str| file.get(GROUP, option);
    let at = |option: &'static str, url: String| {
        if url.starts_with("http://") || url.starts_with("https://") {
            // Paths begin with the version, which an installer may have written too.
            let url = url.trim_end_matches('/').trim_end_matches("/v2").to_owned();
            return Ok(Endpoint { endpoint_override: Some(url), ..Endpoint::default() });
        }
        Err(file.wrong(GROUP, option, "a URL must begin with http:// or https://"))
    };
    if let Some(urls) = get("api_servers") {
        let urls: Vec<String> = list(urls).collect();
        if urls.is_empty() {
            return Err(file.wrong(GROUP, "api_servers", "it names no URL"));
        }
        return urls.into_iter().map(|url| at("api_servers", url)).collect();
    }
    if let Some(url) = get("endpoint_override") {
        return Ok(vec![at("endpoint_override", url.to_owned())?]);
    }
    let interfaces = get("valid_interfaces").unwrap_or("internal, public");
    Ok(vec![Endpoint {
        service_types: vec![get("service_type").unwrap_or("image").to_owned()],
        service_name: get("service_name").map(str::to_owned),
        interfaces: list(interfaces).collect(),
        region: get("region_name").map(str::to_owned),
        endpoint_override: None,
    }])
}

impl GlanceSettings {
    /// The service; nothing is sent.
    ///
    /// # Errors
    /// A text for the operator: a certificate cannot be used.
    pub fn open(&self) -> Result<CloudGlance, String> {
        let own = self.certificate.as_ref().map(|(cert, key)| (cert.as_path(), key.as_path()));
        let http = Http::with_certificate(self.cafile.as_deref(), own, self.timeout, LARGEST);
        let session = Session::new(http.map_err(|e| e.to_string())?, self.credentials.clone());
        let session = Arc::new(session);
        let service = |endpoint: &Endpoint| {
            Service::new(Arc::clone(&session), endpoint.clone(), Retries::default())
        };
        let client = Glance::new(self.endpoints.iter().map(service).collect(), self.client.clone());
        CloudGlance::new(client, self.service.clone()).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keystone;

    const KEYSTONE: &str = "[keystone_authtoken]\nauth_url = http://keystone:5000\nusername = nova\n\
         password = secret\nproject_name = service\n";

    fn section(text: &str) -> Result<Option<GlanceSettings>, String> {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("kilonova.conf");
        std::fs::write(&path, text).expect("the file is written");
        let file = File::read(&path, crate::config::KNOWN).map_err(|e| e.to_string())?;
        let keystone = keystone::read(&file).map_err(|e| e.to_string())?;
        read(&file, keystone.as_ref(), 4).map_err(|e| e.to_string())
    }

    #[test]
    fn usual_groups_are_accepted() {
        assert!(section(KEYSTONE).expect("it is valid").is_none(), "our own service");
        let usual = section(&format!("{KEYSTONE}[glance]\nregion_name = RegionOne\n"));
        let usual = usual.expect("it is valid").expect("the group is there");
        assert_eq!(usual.endpoints[0].interfaces, ["internal", "public"]);
        assert!(
            matches!(&usual.credentials, Credentials::Password(login, _) if login.username == "nova")
        );
        assert!(!format!("{usual:?}").contains("secret"));
        usual.open().expect("it opens");
        let servers = "[glance]\napi_servers = http://one:9292, https://two/image/v2/\nnum_retries = 1\n\
             auth_type = v3applicationcredential\nauth_url = http://k:5000\napplication_credential_id = i\n\
             application_credential_secret = hidden\n";
        let servers = section(&format!("{KEYSTONE}{servers}"));
        let servers = servers.expect("it is valid").expect("the group is there");
        let urls: Vec<_> =
            servers.endpoints.iter().filter_map(|one| one.endpoint_override.as_deref()).collect();
        assert_eq!(
            (urls, servers.client.retries),
            (vec!["http://one:9292", "https://two/image"], 1)
        );
        assert!(!format!("{servers:?}").contains("hidden"));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        for (text, words) in [
            ("[glance]\nregion_name = RegionOne\n".to_owned(), "[keystone_authtoken]"),
            (format!("{KEYSTONE}[glance]\ninsecure = true\n"), "cafile"),
            (format!("{KEYSTONE}[glance]\napi_servers = glance:9292\n"), "http://"),
            (
                format!("{KEYSTONE}[glance]\nauth_url = http://k\nauth_type = v2password\n"),
                "not supported",
            ),
            (format!("{KEYSTONE}[glance]\nauth_type = password\nusername = x\n"), "auth_url"),
            (format!("{KEYSTONE}[glance]\ncertfile = /x\n"), "keyfile"),
            (format!("{KEYSTONE}[glance]\nnum_retries = -1\n"), "num_retries"),
        ] {
            let why = section(&text).expect_err("it is refused");
            assert!(why.contains(words), "{text}: {why}");
        }
    }
}
