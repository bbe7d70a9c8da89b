//! The metadata service behind Neutron's proxies, with Nova's options.
//!
//! The service is off unless `[neutron] service_metadata_proxy` is true. Nova runs with an empty
//! secret and a warning; here that is refused, because anybody could then read the user data of any
//! server.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use kilonova_compute_app::metadata_service::MetadataOptions;
use kilonova_program::config::vendordata;

use super::{File, compute};
use crate::failure::Failure;

const LISTEN: &str = "metadata_listen";
const PORT: &str = "metadata_listen_port";
const PROXY: &str = "service_metadata_proxy";
const SECRET: &str = "metadata_proxy_shared_secret";
const EXPIRATION: &str = "metadata_cache_expiration";
/// Nova's port.
const USUAL_PORT: u16 = 8775;

/// The known options.
pub(super) const KNOWN: [(&str, &str); 6] = [
    ("DEFAULT", LISTEN),
    ("DEFAULT", PORT),
    ("neutron", PROXY),
    ("neutron", SECRET),
    ("api", EXPIRATION),
    ("api", "dhcp_domain"),
];

/// The metadata service.
#[derive(Clone, PartialEq)]
pub struct MetadataSettings {
    /// The address for Neutron's proxies.
    pub listen: SocketAddr,
    /// The secret with which the proxies sign requests.
    pub secret: String,
    /// The options that affect the answers.
    pub options: MetadataOptions,
}

impl fmt::Debug for MetadataSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetadataSettings").field("listen", &self.listen).finish_non_exhaustive()
    }
}

/// Reads the options; `None` if the service is off. `taken` are the other listeners of this process.
pub(super) fn read(file: &File, taken: &[SocketAddr]) -> Result<Option<MetadataSettings>, Failure> {
    if !file.parse("neutron", PROXY, "true or false")?.unwrap_or(false) {
        return Ok(None);
    }
    let secret = file.get("neutron", SECRET).unwrap_or_default();
    if secret.is_empty() {
        let why = "it is empty, and service_metadata_proxy is true: anybody who reaches the port could \
                   read the user data of every server; set the secret of Neutron's metadata agents";
        return Err(file.wrong("neutron", SECRET, why));
    }
    let address = file.parse::<IpAddr>("DEFAULT", LISTEN, "an IP address")?;
    let address = address.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    let port = file.parse("DEFAULT", PORT, "a port")?.unwrap_or(USUAL_PORT);
    let listen = SocketAddr::new(address, port);
    let overlaps = |other: &&SocketAddr| {
        let (one, other) = (listen.ip(), other.ip());
        one == other || one.is_unspecified() || other.is_unspecified()
    };
    let other = taken.iter().filter(|other| port != 0 && other.port() == port).find(overlaps);
    if let Some(other) = other {
        let why = format!(
            "the metadata service has the port of another listener of this process, {other}: \
             change one of them; nova_metadata_port of Neutron's metadata agents must match \
             metadata_listen_port"
        );
        return Err(file.wrong("DEFAULT", PORT, &why));
    }
    let usual = MetadataOptions::default();
    let seconds = compute::number(file, "api", EXPIRATION, 0, usual.expiration.as_secs())?;
    let mut options = MetadataOptions {
        expiration: Duration::from_secs(seconds),
        dhcp_domain: file.get("api", "dhcp_domain").map_or(usual.dhcp_domain, str::to_owned),
        vendordata: usual.vendordata,
    };
    options.vendordata.fixed = vendordata::read(file)?;
    Ok(Some(MetadataSettings { listen, secret: secret.to_owned(), options }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::KNOWN;

    fn settings(text: &str) -> Result<Option<MetadataSettings>, String> {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let data = folder.path().join("vendor.json");
        std::fs::write(&data, r#"{"rack": 7}"#).expect("the file is written");
        std::fs::write(folder.path().join("bad.json"), "{").expect("the file is written");
        let path = folder.path().join("k.conf");
        let text = text.replace("HERE", &folder.path().display().to_string());
        std::fs::write(&path, text).expect("the file is written");
        let taken = [SocketAddr::from(([192, 0, 2, 1], 8780))];
        let read = File::read(&path, KNOWN).and_then(|file| read(&file, &taken));
        read.map_err(|failure| failure.to_string())
    }

    const ON: &str = "[neutron]\nservice_metadata_proxy = true\nmetadata_proxy_shared_secret = s\n";

    #[test]
    fn the_service_is_off_unless_neutron_has_proxies() {
        assert_eq!(settings(""), Ok(None));
        assert_eq!(settings("[neutron]\nmetadata_proxy_shared_secret = s\n"), Ok(None));
        let read = settings(ON).expect("the configuration is valid").expect("the service is on");
        assert_eq!(read.listen, SocketAddr::from(([0, 0, 0, 0], 8775)));
        assert_eq!(read.options, MetadataOptions::default());
        assert!(!format!("{read:?}").contains("secret"), "no log shows the secret");
        let text = format!(
            "{ON}[DEFAULT]\nmetadata_listen = ::1\nmetadata_listen_port = 1234\n[api]\n\
             metadata_cache_expiration = 0\ndhcp_domain =\nvendordata_jsonfile_path = HERE/vendor.json\n"
        );
        let read = settings(&text).expect("the configuration is valid").expect("it is on");
        assert_eq!(read.listen.to_string(), "[::1]:1234");
        assert_eq!((read.options.expiration, &*read.options.dhcp_domain), (Duration::ZERO, ""));
        assert_eq!(read.options.vendordata.fixed, Some(json!({"rack": 7})));
        let text = format!("{ON}[api]\nvendordata_providers = DynamicJSON\n");
        let read = settings(&text).expect("the configuration is valid").expect("it is on");
        assert_eq!(read.options.vendordata.fixed, None);
    }

    #[test]
    fn an_empty_secret_and_other_dangers_are_refused() {
        let cases = [
            (
                "[neutron]\nservice_metadata_proxy = true\n",
                "metadata_proxy_shared_secret: it is empty",
            ),
            (
                "[neutron]\nservice_metadata_proxy = true\nmetadata_proxy_shared_secret =\n",
                "k.conf:3: [neutron] metadata_proxy_shared_secret: it is empty",
            ),
            (
                &*format!("{ON}[DEFAULT]\nmetadata_listen_port = 8780\n"),
                "the port of another listener",
            ),
            (&*format!("{ON}[DEFAULT]\nmetadata_listen = everywhere\n"), "an IP address"),
            (&*format!("{ON}[api]\nvendordata_jsonfile_path = HERE/none\n"), "No such file"),
            (&*format!("{ON}[api]\nvendordata_jsonfile_path = HERE/bad.json\n"), "not JSON"),
            (&*format!("{ON}[api]\nvendordata_providers = XML\n"), "XML is not a provider"),
        ];
        for (text, why) in cases {
            let message = settings(text).expect_err(text);
            assert!(message.contains(why), "{message}");
        }
        let elsewhere =
            format!("{ON}[DEFAULT]\nmetadata_listen = 127.0.0.1\nmetadata_listen_port = 8780\n");
        assert!(settings(&elsewhere).is_ok(), "the same port of another address is free");
    }
}
