//! The operator's options for networks, named as in Neutron.

/// Configuration of the network service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkOptions {
    /// `[ml2_type_vlan] network_vlan_ranges`: physical network, first and last VLAN id. Projects'
    /// networks get VLANs from these ranges in order.
    pub vlan_ranges: Vec<(String, u16, u16)>,
    /// `[ml2_type_vlan] network_vlan_ranges`: all physical networks named there, with or without a
    /// range. Administrators may use any VLAN on them.
    pub vlan_networks: Vec<String>,
    /// `[ml2_type_flat] flat_networks`: physical networks allowed for flat networks; `None` allows any.
    pub flat_networks: Option<Vec<String>>,
    /// `[DEFAULT] global_physnet_mtu`.
    pub mtu: u16,
    /// `[DEFAULT] dns_domain`, the domain of ports' DNS names.
    pub dns_domain: String,
}

impl Default for NetworkOptions {
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
