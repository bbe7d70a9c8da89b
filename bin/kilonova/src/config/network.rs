//! Network options, with the groups and names of Neutron and its ML2 plugin.

use kilonova_network::NetworkOptions;

use super::File;
use crate::failure::Failure;

const VLAN: &str = "ml2_type_vlan";
const FLAT: &str = "ml2_type_flat";
const RANGES: &str = "network_vlan_ranges";
const MTU: &str = "global_physnet_mtu";

/// The known options, by group.
pub(super) const KNOWN: [(&str, &str); 4] =
    [(VLAN, RANGES), (FLAT, "flat_networks"), ("DEFAULT", MTU), ("DEFAULT", "dns_domain")];

pub(super) fn read(file: &File) -> Result<NetworkOptions, Failure> {
    let mut options = NetworkOptions::default();
    if let Some(text) = file.get(VLAN, RANGES) {
        (options.vlan_networks, options.vlan_ranges) = (Vec::new(), Vec::new());
        for entry in words(text) {
            let (name, range) = entry_of(entry).map_err(|why| file.wrong(VLAN, RANGES, &why))?;
            options.vlan_ranges.extend(range.map(|(first, last)| (name.clone(), first, last)));
            if !options.vlan_networks.contains(&name) {
                options.vlan_networks.push(name);
            }
        }
        options.flat_networks = Some(options.vlan_networks.clone());
    }
    if let Some(text) = file.get(FLAT, "flat_networks") {
        let names: Vec<String> = words(text).map(str::to_owned).collect();
        options.flat_networks = (!names.iter().any(|name| name == "*")).then_some(names);
    }
    if let Some(mtu) = file.parse::<u16>("DEFAULT", MTU, "a number of bytes, 68 to 65535")? {
        if mtu < 68 {
            return Err(file.wrong("DEFAULT", MTU, "it must be 68 to 65535"));
        }
        options.mtu = mtu;
    }
    if let Some(domain) = file.get("DEFAULT", "dns_domain") {
        options.dns_domain = format!("{}.", domain.trim_end_matches('.'));
    }
    Ok(options)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', '\n']).map(str::trim).filter(|word| !word.is_empty())
}

/// `physnet` or `physnet:first:last`.
fn entry_of(text: &str) -> Result<(String, Option<(u16, u16)>), String> {
    let wrong = || format!("{text} is neither PHYSICAL_NETWORK nor PHYSICAL_NETWORK:FIRST:LAST");
    let parts: Vec<&str> = text.split(':').map(str::trim).collect();
    match parts[..] {
        [name] if !name.is_empty() => Ok((name.to_owned(), None)),
        [name, first, last] if !name.is_empty() => {
            let vlan = |text: &str| text.parse::<u16>().ok().filter(|id| (1..=4094).contains(id));
            let (Some(first), Some(last)) = (vlan(first), vlan(last)) else {
                return Err(format!("{text}: VLANs are 1 to 4094"));
            };
            if first > last {
                return Err(format!("{text}: the range ends before it begins"));
            }
            Ok((name.to_owned(), Some((first, last))))
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KNOWN;

    fn options(text: &str) -> Result<NetworkOptions, String> {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("k.conf");
        std::fs::write(&path, text).expect("the file is written");
        let read = File::read(&path, KNOWN).and_then(|file| read(&file));
        read.map_err(|failure| failure.to_string())
    }

    #[test]
    fn physical_networks_are_the_configured_ones() {
        assert_eq!(options(""), Ok(NetworkOptions::default()));
        let text = "[ml2_type_vlan]\nnetwork_vlan_ranges = a:10:20, b, a:30:40\n\
                    [DEFAULT]\nglobal_physnet_mtu = 9000\ndns_domain = example.org\n";
        let read = options(text).expect("the configuration is valid");
        assert_eq!(read.vlan_ranges, [("a".into(), 10, 20), ("a".into(), 30, 40)]);
        assert_eq!(read.vlan_networks, ["a", "b"]);
        assert_eq!(read.flat_networks, Some(vec!["a".into(), "b".into()]));
        assert_eq!((read.mtu, read.dns_domain.as_str()), (9000, "example.org."));
        let flat = |names: &str| {
            let text = format!("[ml2_type_flat]\nflat_networks = {names}\n");
            options(&text).expect("the configuration is valid").flat_networks
        };
        assert_eq!(flat("public, lan"), Some(vec!["public".into(), "lan".into()]));
        assert_eq!(flat("*"), None);
        assert_eq!(flat(""), Some(Vec::new()));
    }

    #[test]
    fn invalid_ranges_are_refused_with_their_line() {
        for (value, why) in [
            ("a:1", "is neither"),
            (":1:2", "is neither"),
            ("a:0:5", "VLANs are 1 to 4094"),
            ("a:1:4095", "VLANs are 1 to 4094"),
            ("a:20:10", "ends before it begins"),
        ] {
            let text = format!("[ml2_type_vlan]\nnetwork_vlan_ranges = {value}\n");
            let message = options(&text).expect_err(value);
            let place = "k.conf:2: [ml2_type_vlan] network_vlan_ranges";
            assert!(message.contains(place) && message.contains(why), "{message}");
        }
    }
}
