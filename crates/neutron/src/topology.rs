//! Networks that Neutron makes for a project that has none
//! ([`AutoAllocatedTopology`](crate::Extension::AutoAllocatedTopology)).

use http::{Method, StatusCode};
use kilonova_ids::NetworkId;
use serde::Deserialize;
use serde_json::Value;

use crate::{Call, Error, Neutron};

#[derive(Deserialize)]
struct Topology {
    id: NetworkId,
}

impl Neutron {
    /// True if Neutron can make a network for the project; nothing is made. It cannot without the
    /// extension (404), or without what its operator must prepare (409).
    ///
    /// # Errors
    /// Neutron's others.
    pub async fn can_allocate_network(&self, call: Call<'_>, project: &str) -> Result<bool, Error> {
        let path = format!("/auto-allocated-topology/{project}?fields=dry-run");
        let answer: Result<Value, Error> =
            self.one(call, Method::GET, &path, None, "auto_allocated_topology").await;
        match answer {
            Ok(_) => Ok(true),
            Err(Error::Refused(refused))
                if matches!(refused.status, StatusCode::CONFLICT | StatusCode::NOT_FOUND) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// The project's network, which Neutron makes unless there is one. It may take a while.
    ///
    /// # Errors
    /// 409 if Neutron cannot make one.
    pub async fn allocate_network(
        &self,
        call: Call<'_>,
        project: &str,
    ) -> Result<NetworkId, Error> {
        let path = format!("/auto-allocated-topology/{project}");
        let found = self.one(call, Method::GET, &path, None, "auto_allocated_topology").await;
        found.map(|topology: Topology| topology.id)
    }
}
