//! What a boot is made of once every name in it is resolved.

use std::collections::BTreeMap;

use crate::db::servers::Spec;

use super::query::Profiles;
use crate::app::nics::Nics;

/// A resolved `POST /servers`.
#[derive(Debug, Clone)]
pub struct BootRequest {
    /// Who asks.
    pub project_id: String,
    /// Who asks.
    pub user_id: String,
    /// `req-<uuid>`.
    pub request_id: String,
    /// Name, or its stem when several are asked for.
    pub name: String,
    /// For people.
    pub description: Option<String>,
    /// What each is to be.
    pub spec: Spec,
    /// Metadata.
    pub metadata: BTreeMap<String, String>,
    /// Tags.
    pub tags: Vec<String>,
    /// The device profiles of the flavor and of the ports.
    pub profiles: Profiles,
    /// The connections to networks.
    pub nics: Nics,
    /// Whether the host was named in the old way, `zone:host`, which passes over filters.
    pub forced: bool,
    /// At least so many.
    pub min_count: usize,
    /// At most so many.
    pub max_count: usize,
}
