//! Floating IPs, for the view of a server.

use std::net::IpAddr;

use kilonova_ids::PortId;
use serde::Deserialize;

use crate::client::MAX_IDS;
use crate::values::Query;
use crate::{Call, Error, Neutron};

/// A floating IP of a port.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FloatingIp {
    /// The address.
    pub floating_ip_address: IpAddr,
    /// The fixed address to which it maps.
    pub fixed_ip_address: Option<IpAddr>,
    /// The port.
    pub port_id: Option<PortId>,
}

impl Neutron {
    /// The floating IPs of ports. Empty for a Neutron without routers, which answers 404.
    ///
    /// # Errors
    /// Neutron's errors.
    pub async fn floating_ips(
        &self,
        call: Call<'_>,
        ports: &[PortId],
    ) -> Result<Vec<FloatingIp>, Error> {
        let mut found = Vec::new();
        for some in ports.chunks(MAX_IDS) {
            let query = Query::default();
            let query = some.iter().fold(query, |query, id| query.with("port_id", id.to_string()));
            match self.list(call, "/floatingips", "floatingips", &query).await {
                Ok(list) => found.extend(list),
                Err(error) if error.is_not_found() => return Ok(Vec::new()),
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}
