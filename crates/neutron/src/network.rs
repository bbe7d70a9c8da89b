//! Networks and subnets: the attributes on which a server's connection depends.

use std::net::IpAddr;

use http::Method;
use kilonova_ids::{NetworkId, SubnetId};
use serde::Deserialize;

use crate::client::MAX_IDS;
use crate::values::{Query, or_default};
use crate::{Call, Error, Neutron};

/// A network. Attributes that Neutron omits have their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Network {
    /// Its id.
    pub id: NetworkId,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// The owning project.
    #[serde(default, rename = "tenant_id")]
    pub project: String,
    /// True if other projects may use it.
    #[serde(default)]
    pub shared: bool,
    /// True if it is external (`router:external`).
    #[serde(default, rename = "router:external")]
    pub external: bool,
    /// False if ports have no security groups there.
    #[serde(default = "yes")]
    pub port_security_enabled: bool,
    /// The ids of its subnets.
    #[serde(default)]
    pub subnets: Vec<String>,
    /// MTU in bytes.
    #[serde(default)]
    pub mtu: Option<i64>,
    /// The domain in an external DNS, or empty.
    #[serde(default, deserialize_with = "or_default")]
    pub dns_domain: String,
    /// `vlan`, `flat`, `vxlan`, …; visible only to administrators.
    #[serde(default, rename = "provider:network_type")]
    pub network_type: Option<String>,
    /// The physical network; visible only to administrators.
    #[serde(default, rename = "provider:physical_network")]
    pub physical_network: Option<String>,
    /// The id of the VLAN or the tunnel; visible only to administrators.
    #[serde(default, rename = "provider:segmentation_id")]
    pub segmentation_id: Option<i64>,
    /// The segments of a network that has several; visible only to administrators.
    #[serde(default)]
    pub segments: Option<Vec<Segment>>,
}

/// A segment of a network that has several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Segment {
    /// `vlan`, `flat`, `vxlan`, ….
    #[serde(rename = "provider:network_type")]
    pub network_type: Option<String>,
    /// The physical network.
    #[serde(rename = "provider:physical_network")]
    pub physical_network: Option<String>,
}

fn yes() -> bool {
    true
}

/// A subnet.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Subnet {
    /// Its id.
    pub id: SubnetId,
    /// Its network.
    pub network_id: NetworkId,
    /// Its range, such as `10.0.0.0/24`.
    pub cidr: String,
    /// The gateway.
    pub gateway_ip: Option<IpAddr>,
    /// True if DHCP serves it.
    #[serde(default)]
    pub enable_dhcp: bool,
    /// Name servers.
    #[serde(default)]
    pub dns_nameservers: Vec<IpAddr>,
    /// Routes.
    #[serde(default)]
    pub host_routes: Vec<Route>,
    /// The assignment mode of IPv6 addresses.
    #[serde(default)]
    pub ipv6_address_mode: Option<String>,
}

/// A route of a subnet.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Route {
    /// The range.
    pub destination: String,
    /// The next hop.
    pub nexthop: IpAddr,
}

/// The networks to list.
#[derive(Debug, Clone, Copy)]
pub enum NetworkFilter<'a> {
    /// The networks with these ids that the caller can see.
    Ids(&'a [NetworkId]),
    /// The project's own networks that are not shared. `ready` omits those that are
    /// administratively down, such as a topology that is being created.
    Project {
        /// The project.
        project: &'a str,
        /// True to list only networks that are administratively up.
        ready: bool,
    },
    /// The shared networks.
    Shared,
}

impl Neutron {
    /// One network.
    ///
    /// # Errors
    /// 404 if the caller cannot see it.
    pub async fn network(&self, call: Call<'_>, id: NetworkId) -> Result<Network, Error> {
        self.one(call, Method::GET, &format!("/networks/{id}"), None, "network").await
    }

    /// The networks that the filter selects and the caller can see. With ids, the result has their
    /// order and repetitions.
    ///
    /// # Errors
    /// Neutron's errors.
    pub async fn networks(
        &self,
        call: Call<'_>,
        filter: NetworkFilter<'_>,
    ) -> Result<Vec<Network>, Error> {
        let list = |query: Query| async move {
            self.list::<Network>(call, "/networks", "networks", &query).await
        };
        match filter {
            NetworkFilter::Project { project, ready } => {
                let query = Query::default().with("tenant_id", project).with("shared", "False");
                list(query.maybe("admin_state_up", ready.then_some("True"))).await
            }
            NetworkFilter::Shared => list(Query::default().with("shared", "True")).await,
            NetworkFilter::Ids(ids) => {
                let mut found = Vec::new();
                for some in ids.chunks(MAX_IDS) {
                    let query = Query::default();
                    let query =
                        some.iter().fold(query, |query, id| query.with("id", id.to_string()));
                    found.extend(list(query).await?);
                }
                let of = |id: &NetworkId| found.iter().find(|network| network.id == *id).cloned();
                Ok(ids.iter().filter_map(of).collect())
            }
        }
    }

    /// The subnets with these ids that the caller can see.
    ///
    /// # Errors
    /// Neutron's errors.
    pub async fn subnets(&self, call: Call<'_>, ids: &[SubnetId]) -> Result<Vec<Subnet>, Error> {
        let mut found = Vec::new();
        // Without an id, Neutron would list all subnets.
        for some in ids.chunks(MAX_IDS) {
            let query = Query::default();
            let query = some.iter().fold(query, |query, id| query.with("id", id.to_string()));
            found.extend(self.list(call, "/subnets", "subnets", &query).await?);
        }
        Ok(found)
    }
}
