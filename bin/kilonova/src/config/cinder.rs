//! `[cinder]`: the Cinder of the cloud, with Nova's and keystoneauth's options, and `[service_user]`, whose
//! tokens vouch for every call to it.
//!
//! Users' requests carry the users' tokens. The calls that follow them may need a login of Kilonova's own: that of
//! `[cinder]`, or else that of `[service_user]`.

use std::time::Duration;

use kilonova_cinder::Cinder;
use kilonova_compute_app::volumes::{LONGEST_CALL, VolumeOptions, Volumes};
use kilonova_keystone::{Endpoint, Retries, ValidatorOptions};
use kilonova_program::config::Options;

use super::adapter::{self, SessionSettings};
use super::compute::number;
use super::{File, login};
use crate::failure::Failure;

const GROUP: &str = "cinder";
const SERVICE_USER: &str = "service_user";
/// Upstream's default of `catalog_info`.
const CATALOG_INFO: &str = "volumev3::publicURL";
/// The types under which catalogs have Cinder.
const TYPES: [&str; 2] = ["volumev3", "block-storage"];

/// The known options.
pub(super) const KNOWN: &Options = adapter::session_options!(
    GROUP,
    (GROUP, "catalog_info"),
    (GROUP, "cross_az_attach"),
    (GROUP, "endpoint_template"),
    (GROUP, "http_retries"),
    (GROUP, "os_region_name"),
    ("DEFAULT", "block_device_allocate_retries"),
    ("DEFAULT", "block_device_allocate_retries_interval"),
    ("DEFAULT", "reimage_timeout_per_gb"),
    ("DEFAULT", "max_local_block_devices"),
    ("compute", "max_disk_devices_to_attach"),
);

/// The groups, validated.
#[derive(Debug, Clone)]
pub struct CinderSettings {
    own: SessionSettings,
    service_token_login: SessionSettings,
    endpoint: Endpoint,
    template: Option<String>,
    retries: Retries,
    options: VolumeOptions,
}

/// Reads the groups; `None` if `[cinder]` is absent. `keystone` is the Keystone of the tokens.
pub(super) fn read(
    file: &File,
    keystone: Option<&ValidatorOptions>,
) -> Result<Option<CinderSettings>, Failure> {
    let otherwise = ("Cinder", "have no volumes");
    let selected = adapter::selected(file, GROUP, KNOWN, keystone, otherwise)?;
    let Some((named, keystone)) = selected else { return Ok(None) };
    let sends = file.parse(SERVICE_USER, "send_service_user_token", "true or false")?;
    let has_login = login::named(file, SERVICE_USER).is_some();
    if sends != Some(true) || !has_login {
        let why = "volumes need service tokens, without which Cinder refuses to detach them (its bug \
                   2004555): set send_service_user_token = true and a login with the role service in \
                   [service_user], or remove this group to have no volumes";
        return Err(file.wrong(GROUP, named, why));
    }
    let service_token_login = adapter::session(file, SERVICE_USER, keystone)?;
    let mut own = adapter::session(file, GROUP, keystone)?;
    if login::named(file, GROUP).is_none() {
        own.credentials = service_token_login.credentials.clone();
    }
    let connect = adapter::repetitions(file, GROUP, "http_retries", 3)?;
    let usual = VolumeOptions::default();
    let limit = |group: &str, option: &str, usual: i64| -> Result<i64, Failure> {
        let found = file.parse::<i64>(group, option, "a number, or -1 for no limit")?;
        match found {
            Some(most) if most < -1 => Err(file.wrong(group, option, "expected -1 or more")),
            found => Ok(found.unwrap_or(usual)),
        }
    };
    let interval = number(file, "DEFAULT", "block_device_allocate_retries_interval", 0, 3)?;
    let allocate = number(file, "DEFAULT", "block_device_allocate_retries", 0, 60)?;
    let reimage = number(file, "DEFAULT", "reimage_timeout_per_gb", 1, 20)?;
    Ok(Some(CinderSettings {
        endpoint: endpoint(file)?,
        template: template(file)?,
        retries: Retries { connect, ..Retries::default() },
        options: VolumeOptions {
            cross_az_attach: file
                .parse(GROUP, "cross_az_attach", "true or false")?
                .unwrap_or(usual.cross_az_attach),
            allocate_retries: u32::try_from(allocate).unwrap_or(u32::MAX),
            allocate_interval: Duration::from_secs(interval),
            max_disk_devices: limit(
                "compute",
                "max_disk_devices_to_attach",
                usual.max_disk_devices,
            )?,
            max_local_devices: limit(
                "DEFAULT",
                "max_local_block_devices",
                usual.max_local_devices,
            )?,
            reimage_per_gb: Duration::from_secs(reimage),
            timeout: own.timeout.saturating_mul(2),
            ..usual
        },
        own,
        service_token_login,
    }))
}

/// The URL that replaces the catalog's.
fn template(file: &File) -> Result<Option<String>, Failure> {
    const OPTION: &str = "endpoint_template";
    let Some(template) = file.get(GROUP, OPTION) else { return Ok(None) };
    adapter::check_url(file, GROUP, OPTION, template)?;
    if !Cinder::accepts_template(template) {
        let why = "its path must end with v3, or with v3 and %(project_id)s";
        return Err(file.wrong(GROUP, OPTION, why));
    }
    Ok(Some(template.to_owned()))
}

/// The endpoint of the catalog: `catalog_info` is `type:name:interface`, and the name may be empty.
fn endpoint(file: &File) -> Result<Endpoint, Failure> {
    let text = file.get(GROUP, "catalog_info").unwrap_or(CATALOG_INFO);
    let parts: Vec<&str> = text.split(':').map(str::trim).collect();
    let [kind, name, interface] = parts.as_slice() else {
        let why = "expected TYPE:NAME:INTERFACE, such as volumev3::publicURL";
        return Err(file.wrong(GROUP, "catalog_info", why));
    };
    let mut service_types = vec![(*kind).to_owned()];
    if TYPES.contains(kind) {
        service_types.extend(TYPES.iter().filter(|one| *one != kind).map(|one| (*one).to_owned()));
    }
    Ok(Endpoint {
        service_types,
        service_name: Some((*name).to_owned()).filter(|name| !name.is_empty()),
        interfaces: vec![(*interface).to_owned()],
        region: file.get(GROUP, "os_region_name").map(str::to_owned),
        endpoint_override: None,
    })
}

impl CinderSettings {
    /// A remark for the operator about a timeout that is longer than calls can last.
    pub fn remark(&self) -> Option<String> {
        (self.options.timeout > LONGEST_CALL).then(|| {
            format!(
                "[cinder] timeout is {} s, but a call ends after {} s, because no other worker may \
                 process its server meanwhile",
                self.own.timeout.as_secs(),
                LONGEST_CALL.as_secs()
            )
        })
    }

    /// Opens the service without sending a request. Call this within the runtime of the process.
    ///
    /// # Errors
    /// A text for the operator: a certificate cannot be used.
    pub fn open(&self) -> Result<Volumes, String> {
        let service = adapter::services(&self.own, Some(&self.service_token_login))?;
        let service = service(&self.endpoint, self.retries.clone());
        Ok(Volumes::new(Cinder::new(service, self.template.clone()), self.options.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::adapter::testing::{self, KEYSTONE};

    const SERVICE: &str = "[service_user]\nsend_service_user_token = true\nauth_url = http://keystone:5000\n\
         auth_type = password\nusername = nova\npassword = hidden\nproject_name = service\n";

    fn section(text: &str) -> Result<Option<CinderSettings>, String> {
        testing::read(text, read)
    }

    #[tokio::test]
    async fn usual_groups_are_accepted() {
        assert!(section(&format!("{KEYSTONE}{SERVICE}")).expect("it is valid").is_none());
        let usual = section(&format!("{KEYSTONE}{SERVICE}[cinder]\nos_region_name = RegionOne\n"));
        let usual = usual.expect("it is valid").expect("the group is there");
        assert_eq!(usual.endpoint.service_types, ["volumev3", "block-storage"]);
        assert_eq!(
            (usual.endpoint.interfaces[0].as_str(), usual.retries.connect),
            ("publicURL", 3)
        );
        assert!(usual.options.cross_az_attach && !format!("{usual:?}").contains("hidden"));
        assert_eq!((usual.remark(), usual.options.timeout), (None, LONGEST_CALL));
        usual.open().expect("it opens");
        let more = "[cinder]\ncatalog_info = block-storage:cinder:internalURL\ncross_az_attach = false\n\
             endpoint_template = http://cinder/v3/%(project_id)s\nhttp_retries = 1\n\
             [compute]\nmax_disk_devices_to_attach = 26\n";
        let more = section(&format!("{KEYSTONE}{SERVICE}{more}"));
        let more = more.expect("it is valid").expect("the group is there");
        assert_eq!(more.endpoint.service_name.as_deref(), Some("cinder"));
        assert_eq!(more.endpoint.service_types, ["block-storage", "volumev3"]);
        assert_eq!((more.options.cross_az_attach, more.options.max_disk_devices), (false, 26));
    }

    #[tokio::test]
    async fn no_call_is_longer_than_its_lease_whatever_the_timeout() {
        let slow = section(&format!("{KEYSTONE}{SERVICE}[cinder]\ntimeout = 600\n"));
        let slow = slow.expect("it is valid").expect("the group is there");
        assert!(
            slow.remark()
                .expect("a remark")
                .contains("timeout is 600 s, but a call ends after 120 s")
        );
        assert_eq!(slow.open().expect("it opens").options().timeout, LONGEST_CALL);
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let region = "[cinder]\nos_region_name = RegionOne\n";
        let silent = SERVICE.replace("true", "false");
        for (text, words) in [
            (format!("{SERVICE}{region}"), "[keystone_authtoken]"),
            (format!("{KEYSTONE}{region}"), "2004555"),
            (format!("{KEYSTONE}{silent}{region}"), "2004555"),
            (
                format!("{KEYSTONE}{SERVICE}[cinder]\ncatalog_info = volumev3\n"),
                "TYPE:NAME:INTERFACE",
            ),
            (format!("{KEYSTONE}{SERVICE}[cinder]\nendpoint_template = cinder\n"), "http://"),
            (format!("{KEYSTONE}{SERVICE}[cinder]\nendpoint_template = httpx://c/v3\n"), "http://"),
            (format!("{KEYSTONE}{SERVICE}[cinder]\nendpoint_template = http://c/v2\n"), "with v3"),
            (
                format!(
                    "{KEYSTONE}{SERVICE}[cinder]\nendpoint_template = http://c/v3/%(user_id)s\n"
                ),
                "with v3",
            ),
            (
                format!("{KEYSTONE}{SERVICE}{region}[compute]\nmax_disk_devices_to_attach = -2\n"),
                "-1",
            ),
        ] {
            let why = section(&text).expect_err("it is refused");
            assert!(why.contains(words), "{text}: {why}");
        }
    }
}
