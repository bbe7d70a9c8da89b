//! What the operator of a host says of its networks, by the names that Neutron's options have.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Where a physical network begins on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uplink {
    /// At an interface.
    Interface(String),
    /// At a bridge of the operator's, which has the interface.
    Bridge(String),
}

/// The options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where physical networks begin, by name.
    pub uplinks: BTreeMap<String, Uplink>,
    /// Folder for what lasts until the host is started anew.
    pub folder: PathBuf,
}

impl Default for Config {
    fn default() -> Self {
        Self { uplinks: BTreeMap::new(), folder: PathBuf::from("/run/kilonova/network") }
    }
}

impl Config {
    /// From `[linux_bridge] physical_interface_mappings` and `bridge_mappings`.
    ///
    /// # Errors
    /// What is wrong with them.
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
                    return Err(format!("{option}: {physical} is mapped twice; leave one of them"));
                }
            }
        }
        Ok(config)
    }
}

/// Reads `physnet1:eth1,physnet2:eth2`.
///
/// # Errors
/// What is wrong with it.
pub fn mappings(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut all: Vec<(String, String)> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let pair = part.split_once(':').map(|(physical, name)| (physical.trim(), name.trim()));
        let Some((physical, name)) = pair.filter(|(physical, _)| !physical.is_empty()) else {
            return Err(format!("'{part}' is not like physnet1:eth1"));
        };
        if !is_link_name(name) {
            return Err(format!("'{name}' is no name of a network interface"));
        }
        if all.iter().any(|(other, _)| other == physical) {
            return Err(format!("{physical} is mapped twice; leave one of them"));
        }
        all.push((physical.to_owned(), name.to_owned()));
    }
    Ok(all)
}

/// What the kernel takes as the name of a link, and neither `ip` nor `nft` takes for something else.
fn is_link_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '@');
    (1..=15).contains(&name.len()) && name.chars().all(good) && !name.starts_with(['-', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_neutrons() {
        let config = Config::from_options("physnet1:eth1, physnet2:enp3s0f1", "external:br-ex");
        let uplinks = config.expect("good").uplinks;
        assert_eq!(uplinks["physnet1"], Uplink::Interface("eth1".into()));
        assert_eq!(uplinks["external"], Uplink::Bridge("br-ex".into()));
        assert_eq!(Config::from_options("", "").expect("good"), Config::default());
        for (interfaces, bridges, why) in [
            ("eth1", "", "physnet1:eth1"),
            (":eth1", "", "physnet1:eth1"),
            ("a:eth1,a:eth2", "", "twice"),
            ("a:eth1", "a:br0", "twice"),
            ("a:eth 1", "", "no name"),
            ("a:-eth1", "", "no name"),
            ("a:abcdefghijklmnop", "", "no name"),
            ("a:", "", "no name"),
        ] {
            let wrong = Config::from_options(interfaces, bridges).expect_err(interfaces);
            assert!(wrong.contains(why), "{wrong}");
        }
    }
}
