//! A boot request with all names resolved.

use std::collections::BTreeMap;

use kilonova_compute_db::servers::Spec;
use kilonova_ids::ServerId;

use super::query::Profiles;
use crate::ports::ServerPorts;
use crate::volumes::resolve::BootVolumes;

/// A resolved `POST /servers`.
#[derive(Debug, Clone)]
pub struct BootRequest {
    /// The project.
    pub project_id: String,
    /// The user.
    pub user_id: String,
    /// `req-<uuid>`.
    pub request_id: String,
    /// The server's name; for several servers, the prefix of their names.
    pub name: String,
    /// Description.
    pub description: Option<String>,
    /// The requested properties of each server.
    pub spec: Spec,
    /// Metadata.
    pub metadata: BTreeMap<String, String>,
    /// Tags.
    pub tags: Vec<String>,
    /// The device profiles of the flavor and the ports.
    pub profiles: Profiles,
    /// The ports.
    pub ports: ServerPorts,
    /// The volumes.
    pub volumes: BootVolumes,
    /// The ids of the servers, if a service outside the database already knows them.
    pub ids: Vec<ServerId>,
    /// True if the host was named in the legacy form `zone:host`, which skips filters.
    pub forced: bool,
    /// Minimum number of servers.
    pub min_count: usize,
    /// Maximum number of servers.
    pub max_count: usize,
}
