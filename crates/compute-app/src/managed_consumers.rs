//! Allocations that clients of the Placement API must not change: those of servers and of their
//! migrations. These change in one transaction with the server's row, document and devices; a
//! manual change would leave a running guest without its claim.
//!
//! Consumers without a server here (those of an external Nova, or an operator's own) may be
//! changed.

use kilonova_compute_db::kept::{self, Kept};
use kilonova_ids::ConsumerId;
use kilonova_placement::app::allocations::ConsumerManager;
use kilonova_store::{Error, Tx};

/// The servers of this database.
#[derive(Debug, Clone, Copy, Default)]
pub struct Servers;

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
}
