//! Networks that Neutron creates for a project that has none
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
    /// True if Neutron can create a network for the project; creates nothing. False if the
    /// extension is missing (404), or if the operator has not prepared the topology (409).
    ///
    /// # Errors
    /// Neutron's other errors.
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

    /// The project's network, which Neutron creates if there is none. This may take a while.
    ///
    /// # Errors
    /// 409 if Neutron cannot create one.
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
