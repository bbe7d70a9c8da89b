//! `[neutron]`: the Neutron of the cloud as the network service, with Nova's and keystoneauth's options.
//!
//! Users' requests carry the users' tokens. Bindings, and the calls that follow a request, need a login of
//! Kilonova's own: that of this group, or else that of `[keystone_authtoken]`. The group's options of the
//! metadata service are in `metadata`, and do not select a network service.

use std::time::Duration;

use jiff::SignedDuration;
use kilonova_compute_app::ports::external::{CloudNeutron, CloudNeutronOptions};
use kilonova_keystone::{Endpoint, Retries, ValidatorOptions};
use kilonova_neutron::Neutron;
use kilonova_program::config::Options;

use super::File;
use super::adapter::{self, SessionSettings};
use super::compute::number;
use crate::failure::Failure;

const GROUP: &str = "neutron";
const PLUGGING_TIMEOUT: &str = "vif_plugging_timeout";
const PLUGGING_IS_FATAL: &str = "vif_plugging_is_fatal";

const LIVE_MIGRATION_WAITS: &str = "live_migration_wait_for_vif_plug";

/// The known options.
pub(super) const KNOWN: &Options = adapter::endpoint_options!(
    GROUP,
    ("DEFAULT", PLUGGING_IS_FATAL),
    ("DEFAULT", PLUGGING_TIMEOUT),
    ("compute", LIVE_MIGRATION_WAITS),
    (GROUP, "extension_sync_interval"),
    (GROUP, "http_retries"),
    (GROUP, "ovs_bridge"),
);

/// The group, validated.
#[derive(Debug, Clone)]
pub struct NeutronSettings {
    session: SessionSettings,
    /// The login of service tokens, if it is a different one.
    service_token_login: Option<SessionSettings>,
    endpoint: Endpoint,
    retries: u32,
    extension_sync_interval: Duration,
    service: CloudNeutronOptions,
}

/// Reads the group; `None` if it is absent. `keystone` is the Keystone of the tokens.
pub(super) fn read(
    file: &File,
    keystone: Option<&ValidatorOptions>,
) -> Result<Option<NeutronSettings>, Failure> {
    let plugging = plugging(file)?;
    let otherwise = ("Neutron", "use the network service of Kilonova");
    let selected = adapter::selected(file, GROUP, KNOWN, keystone, otherwise)?;
    let Some((_, keystone)) = selected else { return Ok(None) };
    let interval = number(file, GROUP, "extension_sync_interval", 0, 600)?;
    Ok(Some(NeutronSettings {
        session: adapter::session(file, GROUP, keystone)?,
        service_token_login: adapter::service_token_login(file, keystone)?,
        endpoint: adapter::endpoint(file, GROUP, &["network"], "/v2.0")?,
        retries: adapter::repetitions(file, GROUP, "http_retries", 3)?,
        extension_sync_interval: Duration::from_secs(interval),
        service: CloudNeutronOptions {
            ovs_bridge: file.get(GROUP, "ovs_bridge").unwrap_or("br-int").to_owned(),
            timeout: timeout(file)?,
            ..plugging
        },
    }))
}

/// Nova's options of `[DEFAULT]` and `[compute]` for how builds and live migrations wait for their ports.
fn plugging(file: &File) -> Result<CloudNeutronOptions, Failure> {
    let timeout = number(file, "DEFAULT", PLUGGING_TIMEOUT, 0, 300)?;
    let is_fatal = file.parse("DEFAULT", PLUGGING_IS_FATAL, "true or false")?.unwrap_or(true);
    let live = file.parse("compute", LIVE_MIGRATION_WAITS, "true or false")?.unwrap_or(true);
    Ok(CloudNeutronOptions {
        vif_plugging_timeout: SignedDuration::from_secs(timeout),
        vif_plugging_is_fatal: is_fatal,
        live_migration_wait_for_vif_plug: live,
        ..CloudNeutronOptions::default()
    })
}

/// How long an operation waits for a Neutron that does not answer: the time limit of a build.
fn timeout(file: &File) -> Result<SignedDuration, Failure> {
    let limit = number(file, "DEFAULT", "instance_build_timeout", 0, 0)?;
    Ok(match limit {
        0 => CloudNeutronOptions::default().timeout,
        limit => SignedDuration::from_secs(limit),
    })
}

impl NeutronSettings {
    /// Opens the service without sending a request.
    ///
    /// # Errors
    /// A text for the operator: a certificate cannot be used.
    pub fn open(&self) -> Result<CloudNeutron, String> {
        let retries = Retries { connect: self.retries, ..Retries::default() };
        let service = adapter::services(&self.session, self.service_token_login.as_ref())?;
        let service = service(&self.endpoint, retries);
        let client = Neutron::new(service, self.extension_sync_interval);
        Ok(CloudNeutron::new(client, self.service.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::adapter::testing::{self, KEYSTONE};

    fn section(text: &str) -> Result<Option<NeutronSettings>, String> {
        testing::read(text, read)
    }

    #[test]
    fn usual_groups_are_accepted() {
        assert!(section(KEYSTONE).expect("it is valid").is_none(), "our own service");
        let proxy = "[neutron]\nservice_metadata_proxy = true\nmetadata_proxy_shared_secret = s\n";
        let own = section(&format!("{KEYSTONE}{proxy}")).expect("it is valid");
        assert!(own.is_none(), "the metadata service alone selects nothing");
        let usual = section(&format!("{KEYSTONE}[neutron]\nregion_name = RegionOne\n"));
        let usual = usual.expect("it is valid").expect("the group is there");
        assert_eq!(usual.endpoint.interfaces, ["internal", "public"]);
        assert_eq!(usual.service.vif_plugging_timeout, SignedDuration::from_secs(300));
        assert!(usual.service.vif_plugging_is_fatal);
        assert!(usual.service.live_migration_wait_for_vif_plug);
        assert!(!format!("{usual:?}").contains("secret"));
        usual.open().expect("it opens");
        let more = "[neutron]\nauth_type = password\nauth_url = http://k:5000\nusername = neutron\n\
             password = hidden\nproject_name = service\nendpoint_override = http://n:9696/v2.0/\n\
             ovs_bridge = br-other\n[DEFAULT]\nvif_plugging_timeout = 0\nvif_plugging_is_fatal = false\n\
             instance_build_timeout = 60\n[compute]\nlive_migration_wait_for_vif_plug = false\n";
        let more =
            section(&format!("{KEYSTONE}{more}")).expect("it is valid").expect("it is there");
        assert_eq!(more.endpoint.endpoint_override.as_deref(), Some("http://n:9696"));
        assert_eq!(more.service.ovs_bridge, "br-other");
        assert_eq!(more.service.vif_plugging_timeout, SignedDuration::ZERO);
        assert_eq!(more.service.timeout, SignedDuration::from_secs(60));
        assert!(!more.service.vif_plugging_is_fatal);
        assert!(!more.service.live_migration_wait_for_vif_plug);
        assert!(!format!("{more:?}").contains("hidden"));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        for (text, words) in [
            ("[neutron]\nregion_name = RegionOne\n".to_owned(), "[keystone_authtoken]"),
            (format!("{KEYSTONE}[neutron]\ninsecure = true\n"), "cafile"),
            (format!("{KEYSTONE}[neutron]\nendpoint_override = neutron:9696\n"), "http://"),
            (format!("{KEYSTONE}[neutron]\nauth_type = password\nusername = x\n"), "auth_url"),
            (format!("{KEYSTONE}[neutron]\ncertfile = /x\n"), "keyfile"),
            (format!("{KEYSTONE}[DEFAULT]\nvif_plugging_timeout = -1\n"), "vif_plugging_timeout"),
            (
                format!("{KEYSTONE}[compute]\nlive_migration_wait_for_vif_plug = maybe\n"),
                "live_migration_wait_for_vif_plug",
            ),
        ] {
            let why = section(&text).expect_err("it is refused");
            assert!(why.contains(words), "{text}: {why}");
        }
    }
}
