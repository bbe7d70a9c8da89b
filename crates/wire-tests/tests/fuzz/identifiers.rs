//! Identifiers of existing objects, by the word that precedes them in paths.

use std::collections::BTreeMap;

use crate::fuzz::random::Rng;
use crate::fuzz::values;

#[derive(Default, Clone)]
pub struct Identifiers(BTreeMap<String, Vec<String>>);

/// Words with the same meaning.
const ALIKE: &[(&str, &str)] = &[
    ("flavorRef", "flavors"),
    ("flavor", "flavors"),
    ("imageRef", "images"),
    ("image", "images"),
    ("rescue_image_ref", "images"),
    ("image_ref", "images"),
    ("host", "hosts"),
    ("node", "hosts"),
    ("hypervisor_hostname", "hosts"),
    ("key_name", "os-keypairs"),
    ("server_uuid", "servers"),
    ("instance_uuid", "servers"),
    ("server_id", "servers"),
    ("uuid", "servers"),
    ("marker", "servers"),
    ("same_host", "servers"),
    ("different_host", "servers"),
    ("tenant", "projects"),
    ("tenant_id", "projects"),
    ("project_id", "projects"),
    ("os-quota-sets", "projects"),
    ("os-simple-tenant-usage", "projects"),
    ("user_id", "users"),
    ("group", "os-server-groups"),
    ("resource_provider_uuid", "resource_providers"),
    ("in_tree", "resource_providers"),
    ("parent_provider_uuid", "resource_providers"),
    ("resource_class", "resource_classes"),
    ("inventories", "resource_classes"),
    ("resources", "classed"),
    ("required", "traits"),
    ("member_of", "aggregate_uuids"),
    ("consumer_uuid", "allocations"),
    ("device_profile_name", "device_profiles"),
    ("os-hypervisors", "hypervisors"),
    ("availability_zone", "zones"),
    ("network_id", "networks"),
    ("subnet_id", "subnets"),
    ("port_id", "ports"),
    ("router_id", "routers"),
    ("floating_network_id", "networks"),
    ("security_group_id", "security-groups"),
    ("device_id", "servers"),
    ("tag", "tags"),
    ("metadata", "keys"),
    ("meta", "keys"),
    ("os-extra_specs", "keys"),
];

impl Identifiers {
    pub fn set(&mut self, kind: &str, ids: Vec<String>) {
        self.0.insert(kind.to_owned(), ids);
    }

    pub fn all(&self, kind: &str) -> &[String] {
        let kind = ALIKE.iter().find(|(word, _)| *word == kind).map_or(kind, |(_, same)| same);
        self.0.get(kind).map_or(&[], Vec::as_slice)
    }

    /// An existing identifier of the word's kind, if there is one.
    pub fn there(&self, rng: &mut Rng, word: &str) -> Option<String> {
        let all = self.all(word);
        (!all.is_empty()).then(|| rng.pick(all).clone())
    }

    /// Usually an existing identifier.
    pub fn some(&self, rng: &mut Rng, word: &str) -> String {
        if rng.odd(6) {
            return values::text(rng);
        }
        self.there(rng, word).unwrap_or_else(|| values::text(rng))
    }
}
