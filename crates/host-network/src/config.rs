//! The host's network options, named as in Neutron.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The host's connection to a physical network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uplink {
    /// An interface.
    Interface(String),
    /// A bridge of the operator, to which the interface is attached.
    Bridge(String),
}

/// The options of a host's networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostNetworkConfig {
    /// The uplinks, by physical network.
    pub uplinks: BTreeMap<String, Uplink>,
    /// True if guests can ask for their metadata over their networks.
    pub metadata: bool,
    /// True if the host runs routers.
    pub routers: bool,
    /// Directory for state that lasts until the host reboots.
    pub folder: PathBuf,
}

impl Default for HostNetworkConfig {
    fn default() -> Self {
        Self {
            uplinks: BTreeMap::new(),
            metadata: true,
            routers: true,
            folder: PathBuf::from("/run/kilonova/network"),
        }
    }
}

impl HostNetworkConfig {
    /// Parses `[linux_bridge] physical_interface_mappings` and `bridge_mappings`.
    ///
    /// # Errors
    /// The reason why a value is invalid.
    pub fn from_options(interfaces: &str, bridges: &str) -> Result<Self, String> {
        let mut config = Self::default();
        for (option, text) in
            [("physical_interface_mappings", interfaces), ("bridge_mappings", bridges)]
        {
            for (physical, name) in mappings(text).map_err(|why| format!("{option}: {why}"))? {
                let uplink = match option {
                    "bridge_mappings" => Uplink::Bridge(name),
                    _ => Uplink::Interface(name),
                };
                if config.uplinks.insert(physical.clone(), uplink).is_some() {
                    return Err(format!(
                        "{option}: {physical} is mapped twice; remove one mapping"
                    ));
                }
            }
        }
        Ok(config)
    }
}

/// Parses `physnet1:eth1,physnet2:eth2`.
///
/// # Errors
/// The reason why the value is invalid.
pub fn mappings(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut all: Vec<(String, String)> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let pair = part.split_once(':').map(|(physical, name)| (physical.trim(), name.trim()));
        let Some((physical, name)) = pair.filter(|(physical, _)| !physical.is_empty()) else {
            return Err(format!("'{part}' does not have the form physnet1:eth1"));
        };
        if !is_link_name(name) {
            return Err(format!("'{name}' is not a valid interface name"));
        }
        if all.iter().any(|(other, _)| other == physical) {
            return Err(format!("{physical} is mapped twice; remove one mapping"));
        }
        all.push((physical.to_owned(), name.to_owned()));
    }
    Ok(all)
}

/// True if the kernel accepts it as a link name and neither `ip` nor `nft` interprets it otherwise.
fn is_link_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '@');
    (1..=15).contains(&name.len()) && name.chars().all(good) && !name.starts_with(['-', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_as_neutrons() {
        let config =
            HostNetworkConfig::from_options("physnet1:eth1, physnet2:enp3s0f1", "external:br-ex");
        let uplinks = config.expect("the rules are valid").uplinks;
        assert_eq!(uplinks["physnet1"], Uplink::Interface("eth1".into()));
        assert_eq!(uplinks["external"], Uplink::Bridge("br-ex".into()));
        assert_eq!(
            HostNetworkConfig::from_options("", "").expect("the rules are valid"),
            HostNetworkConfig::default()
        );
        for (interfaces, bridges, why) in [
            ("eth1", "", "physnet1:eth1"),
            (":eth1", "", "physnet1:eth1"),
            ("a:eth1,a:eth2", "", "twice"),
            ("a:eth1", "a:br0", "twice"),
            ("a:eth 1", "", "not a valid interface name"),
            ("a:-eth1", "", "not a valid interface name"),
            ("a:abcdefghijklmnop", "", "not a valid interface name"),
            ("a:", "", "not a valid interface name"),
        ] {
            let wrong = HostNetworkConfig::from_options(interfaces, bridges).expect_err(interfaces);
            assert!(wrong.contains(why), "{wrong}");
        }
    }
}
