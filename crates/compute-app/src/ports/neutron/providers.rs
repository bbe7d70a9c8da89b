//! The providers of the resources that ports request, on the hosts where their server has claimed them.

use std::collections::{BTreeMap, HashMap};

use kilonova_compute_db::port_claims::PortClaim;
use kilonova_ids::{ConsumerId, PortId};
use kilonova_neutron::{Port, Profile, allocation};
use kilonova_wire::Refusal;

use super::Failure;

/// The key of a profile that names the providers.
const ALLOCATION: &str = "allocation";

/// The providers for each port and host.
#[derive(Debug, Clone, Default)]
pub struct Providers(HashMap<(PortId, String), Claimed>);

#[derive(Debug, Clone)]
struct Claimed {
    consumer: ConsumerId,
    by_group: BTreeMap<String, String>,
}

impl Providers {
    /// Adds a claim. One of another consumer for the same port on the same host replaces the earlier ones.
    pub fn add(&mut self, claim: &PortClaim) {
        let consumer = claim.consumer;
        let place = (claim.port, claim.host.to_string());
        let new = || Claimed { consumer, by_group: BTreeMap::new() };
        let claimed = self.0.entry(place).or_insert_with(new);
        if claimed.consumer != consumer {
            *claimed = new();
        }
        claimed.by_group.insert(claim.group.clone(), claim.provider.to_string());
    }

    /// The profile of a port on a host.
    pub(super) fn profile(&self, port: &Port, host: &str) -> Profile {
        let mut profile = port.profile.clone();
        if let Some(claimed) = self.of(port, host)
            && port.requests_resources()
        {
            let value = allocation(&port.id.to_string(), &claimed.by_group);
            profile.insert(ALLOCATION.to_owned(), value);
        }
        profile
    }

    /// True if a binding of a port to a host names the providers.
    pub(super) fn are_in(&self, binding: &Profile, port: &Port, host: &str) -> bool {
        binding.get(ALLOCATION) == self.profile(port, host).get(ALLOCATION)
    }

    /// Refuses a port that requests other resources than its server has claimed on the host.
    pub(super) fn check(&self, port: &Port, host: &str) -> Result<(), Failure> {
        let requested = port.requested();
        let claimed = self.of(port, host);
        let is_counted = requested.is_some_and(|requested| {
            let groups = claimed.into_iter().flat_map(|claimed| claimed.by_group.keys());
            requested.is_empty() || requested.has_groups(groups)
        });
        if is_counted {
            return Ok(());
        }
        let id = port.id;
        Err(Failure::Request(Refusal::bad_request(match claimed {
            Some(_) => format!(
                "Port {id} requests other resources than those claimed for it, as its QoS policy has changed: \
                 try again."
            ),
            None => format!(
                "Port {id} has a QoS policy that guarantees resources, which are not claimed for its server: try \
                 again, or remove the minimum bandwidth or packet rate from the policy."
            ),
        })))
    }

    fn of(&self, port: &Port, host: &str) -> Option<&Claimed> {
        self.0.get(&(port.id, host.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use kilonova_ids::HostName;
    use serde_json::json;

    use super::*;

    fn port() -> Port {
        let groups = json!([{"id": "g", "resources": {"NET_BW_EGR_KILOBIT_PER_SEC": 1}}]);
        let port = json!({
            "id": PortId::nil(), "resource_request": {"request_groups": groups},
            "binding:profile": {"trusted": true},
        });
        serde_json::from_value(port).expect("a port")
    }

    fn claim(consumer: u8, group: &str, provider: u8) -> PortClaim {
        PortClaim {
            consumer: id(consumer).parse().expect("an id"),
            group: group.to_owned(),
            port: PortId::nil(),
            host: HostName::verbatim("a"),
            provider: id(provider).parse().expect("an id"),
            resources: BTreeMap::new(),
        }
    }

    fn id(number: u8) -> String {
        format!("00000000-0000-4000-8000-{number:012}")
    }

    #[test]
    fn the_last_consumer_on_a_host_counts() {
        let mut providers = Providers::default();
        providers.add(&claim(1, "old", 1));
        providers.add(&claim(2, "g", 2));
        let port = port();
        let profile = providers.profile(&port, "a");
        let provider = id(2);
        assert_eq!(json!(profile), json!({"trusted": true, "allocation": {"g": provider}}));
        assert!(providers.are_in(&profile, &port, "a"));
        assert!(!providers.are_in(&port.profile, &port, "a"));
        assert_eq!(providers.profile(&port, "b"), port.profile);
        assert!(providers.are_in(&port.profile, &port, "b"));
    }

    #[test]
    fn a_port_is_bound_only_where_all_its_groups_are_claimed() {
        let mut providers = Providers::default();
        let (mut port, why) =
            (port(), |providers: &Providers, port: &Port| match providers.check(port, "a") {
                Err(Failure::Request(refusal)) => refusal.message,
                other => format!("{other:?}"),
            });
        assert!(why(&providers, &port).contains("are not claimed"));
        providers.add(&claim(1, "g", 1));
        assert_eq!(why(&providers, &port), "Ok(())");
        providers.add(&claim(1, "h", 1));
        assert!(why(&providers, &port).contains("requests other resources"));
        port.resource_request.clear();
        assert_eq!(why(&providers, &port), "Ok(())");
    }
}
