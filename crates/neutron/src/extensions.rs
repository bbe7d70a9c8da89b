//! The extensions of Neutron's API: the plugins that the operator has enabled determine which
//! exist.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::sync::Mutex;

use crate::values::Query;
use crate::{Call, Error, Neutron};

/// An extension on which the compute service's requests depend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extension {
    /// Networks that Neutron creates for a project on demand.
    AutoAllocatedTopology,
    /// Several bindings of one port.
    BindingExtended,
    /// `dns_name` of ports.
    DnsIntegration,
    /// Details of the port of a floating IP.
    FipPortDetails,
    /// Filters by a part of an address.
    IpSubstringFiltering,
    /// Several segments of one network.
    MultiProvider,
    /// Several groups of resources that one port requests.
    PortResourceRequestGroups,
    /// Lists of security groups that other projects share.
    SecurityGroupsSharedFiltering,
    /// Segments as objects.
    Segment,
}

impl Extension {
    /// Neutron's alias.
    pub const fn alias(self) -> &'static str {
        match self {
            Self::AutoAllocatedTopology => "auto-allocated-topology",
            Self::BindingExtended => "binding-extended",
            Self::DnsIntegration => "dns-integration",
            Self::FipPortDetails => "fip-port-details",
            Self::IpSubstringFiltering => "ip-substring-filtering",
            Self::MultiProvider => "multi-provider",
            Self::PortResourceRequestGroups => "port-resource-request-groups",
            Self::SecurityGroupsSharedFiltering => "security-groups-shared-filtering",
            Self::Segment => "segment",
        }
    }
}

/// The aliases of the extensions, and when they were read.
type Known = Option<(Instant, HashSet<String>)>;

/// The list of extensions in memory.
pub(crate) struct Extensions {
    interval: Duration,
    known: Mutex<Known>,
}

impl Extensions {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { interval, known: Mutex::default() }
    }
}

#[derive(Deserialize)]
struct Alias {
    alias: String,
}

impl Neutron {
    /// True if Neutron has the extension. Concurrent callers share one request. If Neutron does not
    /// answer, the last list applies.
    ///
    /// # Errors
    /// Neutron's errors, if the list was never read.
    pub async fn has(&self, call: Call<'_>, extension: Extension) -> Result<bool, Error> {
        let cache = self.extensions();
        let mut known = cache.known.lock().await;
        if let Some((read_at, aliases)) = &*known
            && read_at.elapsed() < cache.interval
        {
            return Ok(aliases.contains(extension.alias()));
        }
        let query = Query::default().fields(&["alias"]);
        match self.list::<Alias>(call, "/extensions", "extensions", &query).await {
            Ok(list) => {
                let aliases: HashSet<String> = list.into_iter().map(|one| one.alias).collect();
                let has = aliases.contains(extension.alias());
                *known = Some((Instant::now(), aliases));
                Ok(has)
            }
            Err(error) => match &*known {
                Some((_, aliases)) => {
                    tracing::debug!(%error, "could not refresh the list of Neutron's extensions; \
                        using the last one");
                    Ok(aliases.contains(extension.alias()))
                }
                None => Err(error),
            },
        }
    }
}
