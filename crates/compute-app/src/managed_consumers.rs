//! Allocations that clients of the Placement API must not change: those of servers and of their migrations. Such
//! allocations change in the same transaction as the server's row, document and devices; a manual change would leave a
//! running guest without its claim. The claims for the ports of a server are the exception: Neutron changes them when
//! the QoS policy of a bound port changes.
//!
//! Clients may change the providers of hosts. The host then registers again, which repairs what it reports.
//!
//! Consumers without a server here (those of an external Nova, or an operator's own) may be
//! changed.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use kilonova_compute_db::documents::Wake;
use kilonova_compute_db::kept::{self, Kept};
use kilonova_compute_db::{self as db, documents, external_ports, port_claims};
use kilonova_ids::{ConsumerId, ProviderId, ServerId};
use kilonova_placement::app::allocations::{AmountChanges, ConsumerManager};
use kilonova_store::{Error, Tx};
use kilonova_wire::time;
use newtype_uuid::GenericUuid;

use crate::Compute;

/// The delay between a change of allocations and the read of the ports, because Neutron changes the ports after the
/// allocations.
const READ_AFTER: SignedDuration = SignedDuration::from_secs(5);

/// The consumer manager for the servers of this database.
#[derive(Clone, Default)]
pub struct Servers {
    /// The compute service, if this process runs it. Hosts that poll other processes follow the change log.
    compute: Option<Compute>,
}

impl Servers {
    /// The manager for a process that may run the compute service.
    pub fn new(compute: Option<Compute>) -> Self {
        Self { compute }
    }
}

impl ConsumerManager for Servers {
    fn refusal(&self, tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<Option<String>, Error> {
        Ok(kept::by(tx, consumer)?.map(|kept| match kept {
            Kept::Server => format!(
                "Consumer {consumer} is a server of this cloud: its allocations change only with \
                 the server. Delete, resize or move the server by the Compute API."
            ),
            Kept::Migration(server) => format!(
                "Consumer {consumer} is a migration of server {server} of this cloud: its \
                 allocations are released when the migration ends. Confirm, revert or abort it by \
                 the Compute API."
            ),
        }))
    }
    fn adjust(
        &self,
        tx: &mut Tx<'_>,
        consumer: ConsumerId,
        changes: &AmountChanges,
    ) -> Result<bool, Error> {
        adjust(tx, consumer, changes).map_err(|db::Error::Store(error)| error)
    }

    fn tree_changed(&self, tx: &mut Tx<'_>, root: ProviderId) -> Result<(), Error> {
        let requested = documents::request_registration(tx, root);
        let requested = requested.map_err(|db::Error::Store(error)| error)?;
        if let (Some((host, generation)), Some(compute)) = (requested, &self.compute) {
            compute.wake_on_commit(tx, &host, generation);
        }
        Ok(())
    }
}

/// Accepts only changes to the amounts that a server has claimed for its ports in an external Neutron. Neutron changes no
/// other consumer, so the claim of a migration changes only with the migration.
fn adjust(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
    changes: &AmountChanges,
) -> Result<bool, db::Error> {
    let server = ServerId::from_untyped_uuid(consumer.into_untyped_uuid());
    let has_ports = external_ports::find(tx, server)?.is_some_and(|found| !found.is_gone);
    if !has_ports {
        return Ok(false);
    }
    let mut by_provider: BTreeMap<ProviderId, BTreeMap<String, i64>> = BTreeMap::new();
    for ((provider, class), amount) in changes {
        by_provider.entry(*provider).or_default().insert(class.to_string(), *amount);
    }
    for (provider, amounts) in &by_provider {
        if !port_claims::add(tx, consumer, *provider, amounts)? {
            return Ok(false);
        }
    }
    external_ports::refresh_by(tx, server, time::after(time::now(), READ_AFTER))?;
    Ok(!by_provider.is_empty())
}
