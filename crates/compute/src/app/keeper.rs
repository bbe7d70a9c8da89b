//! Which allocations clients of the Placement API must not change: those of servers and of their
//! migrations. They change in one transaction with the server's row, document and devices; a change by
//! hand would leave a guest that runs on room which is promised to others.
//!
//! Consumers of which there is no server (those of a Nova of somebody else, an operator's own) are free.

use kilonova_ids::ConsumerId;
use kilonova_placement::app::allocations::ConsumerManager;
use kilonova_store::{Error, Tx};

use crate::db::kept::{self, Kept};

/// The servers of this database.
#[derive(Debug, Clone, Copy, Default)]
pub struct Servers;

impl ConsumerManager for Servers {
    fn refusal(&self, tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<Option<String>, Error> {
        Ok(kept::by(tx, consumer)?.map(|kept| match kept {
            Kept::Server => format!(
                "Consumer {consumer} is a server of this cloud: its allocations change with the server \
                 alone. Delete, resize or move the server by the Compute API."
            ),
            Kept::Migration(server) => format!(
                "Consumer {consumer} is a migration of server {server} of this cloud: its allocations go \
                 when the migration ends. Confirm, revert or abort it by the Compute API."
            ),
        }))
    }
}
