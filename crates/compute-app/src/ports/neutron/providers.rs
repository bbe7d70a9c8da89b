//! The providers of the resources that ports request, on the hosts where their server has claimed them.

use std::collections::{BTreeMap, HashMap};

use kilonova_compute_db::port_claims::PortClaim;
use kilonova_ids::{ConsumerId, PortId};
use kilonova_neutron::{Port, Profile, allocation};
use kilonova_wire::Refusal;
use serde_json::Value;

use super::Failure;

/// The key in a binding profile that names the providers.
const ALLOCATION: &str = "allocation";

/// The providers for each port and host.
#[derive(Debug, Clone, Default)]
pub struct Providers(HashMap<(PortId, String), Claimed>);

#[derive(Debug, Clone)]
struct Claimed {
    consumer: ConsumerId,
    claims: Vec<PortClaim>,
}

/// The claims of a port after Neutron has changed them along with its QoS policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedClaims {
    /// The server or its migration.
    pub consumer: ConsumerId,
    /// The port.
    pub port: PortId,
    /// All claims that the port has now.
    pub claims: Vec<PortClaim>,
}

impl Claimed {
    fn by_group(&self) -> BTreeMap<String, String> {
        let pair = |claim: &PortClaim| (claim.group.clone(), claim.provider.to_string());
        self.claims.iter().map(pair).collect()
    }
}

impl Providers {
    /// Adds a claim. A claim of another consumer for the same port on the same host replaces the earlier ones.
    pub fn add(&mut self, claim: PortClaim) {
        let consumer = claim.consumer;
        let place = (claim.port, claim.host.to_string());
        let new = || Claimed { consumer, claims: Vec::new() };
        let claimed = self.0.entry(place).or_insert_with(new);
        if claimed.consumer != consumer {
            *claimed = new();
        }
        claimed.claims.push(claim);
    }

    /// Adopts the groups that the binding of a port to a host names, if Neutron has changed them with the port's QoS
    /// policy. Returns the port's claims if they differ from the known ones. Neutron changes the allocations first,
    /// then the binding, so a binding with a group that the port does not request has not been changed yet.
    pub(super) fn adopt(&mut self, port: &Port, host: &str) -> Option<ChangedClaims> {
        let claimed = self.0.get_mut(&(port.id, host.to_owned()))?;
        let requested = port.requested()?;
        let named = named_providers(port)?;
        if !named.keys().all(|id| requested.groups.iter().any(|group| group.id == *id)) {
            return None;
        }
        let mut claims = Vec::with_capacity(named.len());
        for group in &requested.groups {
            let Some(provider) = named.get(&group.id) else { continue };
            let has_provider = |claim: &&PortClaim| claim.provider.to_string() == *provider;
            let earlier = claimed.claims.iter().find(has_provider)?;
            let (group, resources) = (group.id.clone(), group.resources.clone());
            claims.push(PortClaim { group, resources, ..earlier.clone() });
        }
        let is_same = claims.len() == claimed.claims.len()
            && claims.iter().all(|claim| claimed.claims.contains(claim));
        if is_same {
            return None;
        }
        claimed.claims.clone_from(&claims);
        Some(ChangedClaims { consumer: claimed.consumer, port: port.id, claims })
    }

    /// The profile of a port on a host.
    pub(super) fn profile(&self, port: &Port, host: &str) -> Profile {
        let mut profile = port.profile.clone();
        if let Some(claimed) = self.of(port, host)
            && port.requests_resources()
        {
            let value = allocation(&port.id.to_string(), &claimed.by_group());
            profile.insert(ALLOCATION.to_owned(), value);
        }
        profile
    }

    /// True if a binding of a port to a host names the providers.
    pub(super) fn are_in(&self, binding: &Profile, port: &Port, host: &str) -> bool {
        binding.get(ALLOCATION) == self.profile(port, host).get(ALLOCATION)
    }

    /// Refuses a port that requests resources other than those that its server has claimed on the host.
    pub(super) fn check(&self, port: &Port, host: &str) -> Result<(), Failure> {
        let requested = port.requested();
        let claimed = self.of(port, host);
        let is_counted = requested.is_some_and(|requested| {
            let claims = claimed.into_iter().flat_map(|claimed| &claimed.claims);
            requested.is_empty() || requested.has_groups(claims.map(|claim| &claim.group))
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

/// The provider of each group that the binding of a port names; `None` if it names none, or names them in an unknown
/// form.
fn named_providers(port: &Port) -> Option<BTreeMap<String, String>> {
    match port.profile.get(ALLOCATION)? {
        Value::String(only) => Some(BTreeMap::from([(port.id.to_string(), only.clone())])),
        Value::Object(all) => {
            let pair = |(group, provider): (&String, &Value)| {
                Some((group.clone(), provider.as_str()?.to_owned()))
            };
            all.iter().map(pair).collect()
        }
        _ => None,
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
        providers.add(claim(1, "old", 1));
        providers.add(claim(2, "g", 2));
        let port = port();
        let profile = providers.profile(&port, "a");
        let provider = id(2);
        assert_eq!(json!(profile), json!({"trusted": true, "allocation": {"g": provider}}));
        assert!(providers.are_in(&profile, &port, "a"));
        assert!(!providers.are_in(&port.profile, &port, "a"));
        assert_eq!(providers.profile(&port, "b"), port.profile);
        assert!(providers.are_in(&port.profile, &port, "b"));
    }

    /// The claims that a port with this request and binding adopts, if it previously had one group `g` with the amount
    /// 1 from provider 1.
    fn adopted(request: Value, allocation: Value) -> Option<Vec<(String, i64)>> {
        let mut providers = Providers::default();
        let resources = BTreeMap::from([(CLASS.to_owned(), 1)]);
        providers.add(PortClaim { resources, ..claim(7, "g", 1) });
        let mut port = port();
        port.resource_request = serde_json::from_value(request).expect("a request");
        port.profile.insert("allocation".to_owned(), allocation);
        let changed = providers.adopt(&port, "a")?;
        assert_eq!(providers.adopt(&port, "a"), None, "adopted twice");
        let amount = |claim: PortClaim| (claim.group, claim.resources[CLASS]);
        Some(changed.claims.into_iter().map(amount).collect())
    }

    const CLASS: &str = "NET_BW_EGR_KILOBIT_PER_SEC";

    #[test]
    fn claims_follow_the_binding_that_neutron_has_changed() {
        let request = |group: &str, amount: i64| json!({"request_groups": [{"id": group, "resources": {CLASS: amount}}]});
        let (one, two) = (id(1), id(2));
        assert_eq!(adopted(request("g", 1), json!({"g": one})), None);
        assert_eq!(adopted(request("g", 5), json!({"g": one})), Some(vec![("g".to_owned(), 5)]));
        assert_eq!(adopted(request("h", 5), json!({"h": one})), Some(vec![("h".to_owned(), 5)]));
        assert_eq!(adopted(json!({}), json!({})), Some(vec![]));
        // Neutron has not changed the binding yet, or the binding does not match this request.
        assert_eq!(adopted(request("h", 5), json!({"g": one})), None);
        assert_eq!(adopted(json!({}), json!({"g": one})), None);
        assert_eq!(adopted(request("h", 5), json!({"h": two})), None);
        assert_eq!(adopted(request("g", 5), json!(null)), None);
        let old = json!({"resources": {CLASS: 5}});
        let port = PortId::nil().to_string();
        assert_eq!(adopted(old, json!(one)), Some(vec![(port, 5)]));
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
        providers.add(claim(1, "g", 1));
        assert_eq!(why(&providers, &port), "Ok(())");
        providers.add(claim(1, "h", 1));
        assert!(why(&providers, &port).contains("requests other resources"));
        port.resource_request.clear();
        assert_eq!(why(&providers, &port), "Ok(())");
    }
}
