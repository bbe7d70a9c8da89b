//! Earlier names of Neutron's rules (`DeprecatedRule` in `neutron/conf/policies`).

use kilonova_policy::Renamed;

/// Each earlier name with the rule that replaced it.
pub const RENAMED: &[Renamed] = &[
    ("create_floatingips_tags", &["create_floatingip:tags"]),
    ("get_floatingips_tags", &["get_floatingip:tags"]),
    ("update_floatingips_tags", &["update_floatingip:tags"]),
    ("delete_floatingips_tags", &["delete_floatingip:tags"]),
    ("create_networks_tags", &["create_network:tags"]),
    ("get_networks_tags", &["get_network:tags"]),
    ("update_networks_tags", &["update_network:tags"]),
    ("delete_networks_tags", &["delete_network:tags"]),
    ("create_network_segment_ranges_tags", &["create_network_segment_range:tags"]),
    ("get_network_segment_ranges_tags", &["get_network_segment_range:tags"]),
    ("update_network_segment_ranges_tags", &["update_network_segment_range:tags"]),
    ("delete_network_segment_ranges_tags", &["delete_network_segment_range:tags"]),
    ("create_ports_tags", &["create_port:tags"]),
    ("get_ports_tags", &["get_port:tags"]),
    ("update_ports_tags", &["update_port:tags"]),
    ("delete_ports_tags", &["delete_port:tags"]),
    ("get_policies_tags", &["get_policy:tags"]),
    ("create_policies_tags", &["create_policy:tags"]),
    ("update_policies_tags", &["update_policy:tags"]),
    ("delete_policies_tags", &["delete_policy:tags"]),
    ("create_routers_tags", &["create_router:tags"]),
    ("get_routers_tags", &["get_router:tags"]),
    ("update_routers_tags", &["update_router:tags"]),
    ("delete_routers_tags", &["delete_router:tags"]),
    ("create_security_groups_tags", &["create_security_group:tags"]),
    ("get_security_groups_tags", &["get_security_group:tags"]),
    ("update_security_groups_tags", &["update_security_group:tags"]),
    ("delete_security_groups_tags", &["delete_security_group:tags"]),
    ("create_subnets_tags", &["create_subnet:tags"]),
    ("get_subnets_tags", &["get_subnet:tags"]),
    ("update_subnets_tags", &["update_subnet:tags"]),
    ("delete_subnets_tags", &["delete_subnet:tags"]),
    ("create_subnetpools_tags", &["create_subnetpool:tags"]),
    ("get_subnetpools_tags", &["get_subnetpool:tags"]),
    ("update_subnetpools_tags", &["update_subnetpool:tags"]),
    ("delete_subnetpools_tags", &["delete_subnetpool:tags"]),
    ("create_trunks_tags", &["create_trunk:tags"]),
    ("get_trunks_tags", &["get_trunk:tags"]),
    ("update_trunks_tags", &["update_trunk:tags"]),
    ("delete_trunks_tags", &["delete_trunk:tags"]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RULES;

    #[test]
    fn every_successor_is_a_rule() {
        for name in RENAMED.iter().flat_map(|(_, new)| *new) {
            assert!(RULES.iter().any(|rule| rule.name == *name), "{name}");
        }
    }
}
