//! The external Neutron as the network service of compute.
//!
//! ```text
//!   networks  the part within transactions: writes the goal, reads the views
//!   requests  the calls before a request's transaction, with the user's token
//!   requested the same for the resources that the ports of a server request, with the service's login
//!   settle    after the commit: a worker changes Neutron to match the goal, and delivers the documents
//!   failed    handles failed attempts of the worker
//!   events    notifications of changes from Neutron
//!   sweep     ports of servers that are gone
//!   journal   the rows; `view`: the last view of a port
//!   queue     the servers that this process works on next
//! ```
//!
//! No call is part of a transaction. The transaction that boots, moves or deletes a server writes the goal
//! (`compute_db::external_ports`) and holds back the host's document ([`Delivery::Held`]). A worker makes the calls,
//! each of which may be made twice, and delivers the document with the interfaces of the bound ports, or reports the
//! failure like a failure of the host, so that the flows do not depend on Neutron. A user's token must never reach a
//! row or a log.
//!
//! [`Delivery::Held`]: kilonova_compute_db::documents::Delivery::Held

mod events;
mod failed;
mod journal;
mod networks;
mod queue;
mod requested;
mod requests;
mod settle;
mod sweep;
mod view;

use std::sync::Arc;

use jiff::SignedDuration;
use kilonova_ids::ServerId;
use kilonova_keystone::Caller;
use kilonova_neutron::{Call, Neutron, PortFilter};
use kilonova_wire::UserToken;

use crate::tokens::Tokens;

pub use events::{NetworkEvent, observe};
pub use failed::Failed;
pub(crate) use networks::{is_awaited_on, is_plugged};
pub use requested::SeenRequests;
pub(crate) use requested::claimed_by;
pub use requests::{External, SeenNetworks};
pub use settle::{Attempt, run, settle};
pub use sweep::sweep;

/// How long only this process, which knows the user's token, may start the work that it has committed; after that, any
/// other process may.
const OWN_TIME: SignedDuration = SignedDuration::from_secs(10);

/// The operator's settings for the service.
#[derive(Debug, Clone)]
pub struct CloudNeutronOptions {
    /// The Open vSwitch bridge that is used if a binding names none (`[neutron] ovs_bridge`).
    pub ovs_bridge: String,
    /// How long at most a guest is paused until its ports are plugged (`[DEFAULT] vif_plugging_timeout`); 0 for no
    /// wait.
    pub vif_plugging_timeout: SignedDuration,
    /// True if a boot or a move fails when the ports are not plugged in time (`[DEFAULT] vif_plugging_is_fatal`).
    pub vif_plugging_is_fatal: bool,
    /// True if a live migration copies no memory before the destination has plugged the ports that it can plug without
    /// the guest (`[compute] live_migration_wait_for_vif_plug`).
    pub live_migration_wait_for_vif_plug: bool,
    /// How long one attempt to change a server's ports may take. No other worker starts one meanwhile, so the
    /// unfinished work of a dead process waits that long.
    pub longest_attempt: SignedDuration,
    /// How long a document is held back while Neutron does not answer; then its operation fails.
    pub timeout: SignedDuration,
}

impl Default for CloudNeutronOptions {
    fn default() -> Self {
        Self {
            ovs_bridge: "br-int".to_owned(),
            vif_plugging_timeout: SignedDuration::from_secs(300),
            vif_plugging_is_fatal: true,
            live_migration_wait_for_vif_plug: true,
            longest_attempt: SignedDuration::from_secs(90),
            timeout: SignedDuration::from_mins(10),
        }
    }
}

/// The Neutron of the cloud.
pub struct CloudNeutron {
    client: Neutron,
    /// The operator's settings.
    pub options: CloudNeutronOptions,
    tokens: Arc<Tokens<ServerId>>,
    queue: Arc<queue::Queue>,
}

impl CloudNeutron {
    /// Creates the service over a client, without sending anything.
    pub fn new(client: Neutron, options: CloudNeutronOptions) -> Self {
        Self { client, options, tokens: Arc::default(), queue: Arc::default() }
    }

    /// True if a guest that starts is paused until its ports are plugged.
    pub(crate) fn waits_for_plugs(&self) -> bool {
        self.options.vif_plugging_timeout.is_positive()
    }

    /// True if a live migration waits until the destination has plugged its ports.
    pub(crate) fn waits_before_transfer(&self) -> bool {
        self.waits_for_plugs() && self.options.live_migration_wait_for_vif_plug
    }

    /// Logs in and requests the ports of a nonexistent server, as a test of the settings.
    ///
    /// # Errors
    /// Errors from Neutron.
    pub async fn check(&self) -> Result<(), kilonova_neutron::Error> {
        let nobody = ServerId::new_v4().to_string();
        self.client.ports(own(), PortFilter::Device(&nobody), &["id"]).await.map(drop)
    }
}

/// A call with the service's login.
fn own() -> Call<'static> {
    Call { caller: Caller::Own, request_id: None }
}

/// A call that follows a user's request, if the token is still known.
fn vouched(token: Option<&UserToken>) -> Option<Call<'_>> {
    token.map(|token| Call { caller: Caller::Vouched(token), request_id: None })
}
