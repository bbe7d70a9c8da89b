//! `[glance]`: the Glance of the cloud as the image service, with Nova's and keystoneauth's options.
//!
//! Users' requests carry the users' tokens. The calls that follow them need a login of Kilonova's own: that of
//! this group, or else that of `[keystone_authtoken]`.

use kilonova_compute_app::images::glance::{CloudGlance, CloudGlanceOptions};
use kilonova_glance::{Glance, GlanceOptions};
use kilonova_keystone::{Endpoint, Retries, ValidatorOptions};
use kilonova_program::config::Options;

use super::File;
use super::adapter::{self, SessionSettings, list};
use crate::failure::Failure;

const GROUP: &str = "glance";
/// The option of the group `DEFAULT`.
const INHERITED: &str = "non_inheritable_image_properties";

/// The known options.
pub(super) const KNOWN: &Options = adapter::endpoint_options!(
    GROUP,
    ("DEFAULT", INHERITED),
    (GROUP, "api_servers"),
    (GROUP, "num_retries"),
);

/// The group, validated.
#[derive(Debug, Clone)]
pub struct GlanceSettings {
    session: SessionSettings,
    /// The login of service tokens, if it is a different one.
    service_token_login: Option<SessionSettings>,
    endpoints: Vec<Endpoint>,
    client: GlanceOptions,
    service: CloudGlanceOptions,
}

/// Reads the group; `None` if it is absent. `keystone` is the Keystone of the tokens, `snapshots`
/// the maximum number of concurrent uploads of hosts.
pub(super) fn read(
    file: &File,
    keystone: Option<&ValidatorOptions>,
    snapshots: usize,
) -> Result<Option<GlanceSettings>, Failure> {
    let otherwise = ("Glance", "use the image service of Kilonova");
    let selected = adapter::selected(file, GROUP, KNOWN, keystone, otherwise)?;
    let Some((_, keystone)) = selected else { return Ok(None) };
    let session = adapter::session(file, GROUP, keystone)?;
    let usual = GlanceOptions::default();
    let retries = adapter::repetitions(file, GROUP, "num_retries", usual.retries)?;
    let inherited = file.get("DEFAULT", INHERITED).map(|text| list(text).collect());
    let timeout = session.timeout;
    Ok(Some(GlanceSettings {
        session,
        service_token_login: adapter::service_token_login(file, keystone)?,
        endpoints: endpoints(file)?,
        client: GlanceOptions { retries, timeout, ..usual },
        service: CloudGlanceOptions {
            non_inheritable: inherited
                .unwrap_or_else(|| CloudGlanceOptions::default().non_inheritable),
            snapshots,
        },
    }))
}

/// The endpoints: those of `api_servers`, or a single one from `endpoint_override` or the catalog.
fn endpoints(file: &File) -> Result<Vec<Endpoint>, Failure> {
    let Some(urls) = file.get(GROUP, "api_servers") else {
        return Ok(vec![adapter::endpoint(file, GROUP, &["image"], "/v2")?]);
    };
    let urls: Vec<String> = list(urls).collect();
    if urls.is_empty() {
        return Err(file.wrong(GROUP, "api_servers", "it names no URL"));
    }
    let at = |url: String| {
        let url = adapter::url(file, GROUP, "api_servers", &url, "/v2")?;
        Ok(Endpoint { endpoint_override: Some(url), ..Endpoint::default() })
    };
    urls.into_iter().map(at).collect()
}

impl GlanceSettings {
    /// Opens the service without sending a request.
    ///
    /// # Errors
    /// A text for the operator: a certificate cannot be used.
    pub fn open(&self) -> Result<CloudGlance, String> {
        let service = adapter::services(&self.session, self.service_token_login.as_ref())?;
        let all = self.endpoints.iter().map(|endpoint| service(endpoint, Retries::default()));
        let client = Glance::new(all.collect(), self.client.clone());
        CloudGlance::new(client, self.service.clone()).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use kilonova_keystone::Credentials;

    use super::*;
    use crate::config::adapter::testing::{self, KEYSTONE};

    fn section(text: &str) -> Result<Option<GlanceSettings>, String> {
        testing::read(text, |file, keystone| read(file, keystone, 4))
    }

    #[test]
    fn usual_groups_are_accepted() {
        assert!(section(KEYSTONE).expect("it is valid").is_none(), "our own service");
        let usual = section(&format!("{KEYSTONE}[glance]\nregion_name = RegionOne\n"));
        let usual = usual.expect("it is valid").expect("the group is there");
        assert_eq!(usual.endpoints[0].interfaces, ["internal", "public"]);
        assert!(
            matches!(&usual.session.credentials, Credentials::Password(login, _) if login.username == "nova")
        );
        assert!(!format!("{usual:?}").contains("secret"));
        usual.open().expect("it opens");
        assert!(usual.service_token_login.is_none(), "the login of [keystone_authtoken] vouches");
        let vouched = "[glance]\nregion_name = RegionOne\n[service_user]\nsend_service_user_token = true\n\
             auth_url = http://keystone:5000\nusername = voucher\npassword = secret\nproject_name = service\n";
        let vouched = section(&format!("{KEYSTONE}{vouched}"));
        let vouched = vouched.expect("it is valid").expect("the group is there");
        let service_token_login =
            vouched.service_token_login.as_ref().expect("another login vouches");
        assert!(
            matches!(&service_token_login.credentials, Credentials::Password(login, _) if login.username == "voucher")
        );
        vouched.open().expect("it opens");
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
            (
                format!(
                    "{KEYSTONE}[glance]\nregion_name = x\n[service_user]\n\
                     send_service_user_token = true\npassword = x\n"
                ),
                "auth_url",
            ),
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
