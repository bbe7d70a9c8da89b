//! What an operator decides about networks, by the names that Neutron's options have.

/// The options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// `[ml2_type_vlan] network_vlan_ranges`: physical network, first and last VLAN of those that
    /// projects' networks are given, in order.
    pub vlan_ranges: Vec<(String, u16, u16)>,
    /// `[ml2_type_vlan] network_vlan_ranges`, all physical networks in it, also those without a
    /// range: administrators may name any VLAN of them.
    pub vlan_networks: Vec<String>,
    /// `[ml2_type_flat] flat_networks`: physical networks that flat networks may take; any for `None`.
    pub flat_networks: Option<Vec<String>>,
    /// `[DEFAULT] global_physnet_mtu`.
    pub mtu: u16,
    /// `[DEFAULT] dns_domain`, for names of ports.
    pub dns_domain: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            vlan_ranges: vec![("physnet1".to_owned(), 100, 4094)],
            vlan_networks: vec!["physnet1".to_owned()],
            flat_networks: Some(vec!["physnet1".to_owned()]),
            mtu: 1500,
            dns_domain: "openstacklocal.".to_owned(),
        }
    }
}
