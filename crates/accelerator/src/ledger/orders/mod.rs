//! Device orders: load a bitstream, clean a handle. An order is a row, written by the transaction
//! that requires it. The host gets it with its next documents, and the host's report ends it.
//!
//! ```text
//!   bind, PATCH …/program ─► program: open ─┬─ done ──► bitstream_id; waiting requests are Bound
//!                                           └─ failed ► content unknown; waiting requests are BindFailed
//!   release ─► handle parked ─► clean: open ─┬─ done ──► handle free
//!                                            └─ failed ► parked; retried, or cleaned by an operator
//! ```
//!
//! While an order to program a device is open, none of the device's handles is assigned.

mod carried;
mod clean;
mod pending;
mod program;

use kilonova_ids::{HostName, ImageId};
use kilonova_node_api::Order;
use kilonova_store::Tx;

pub use carried::complete_order;
pub(crate) use clean::{clean_dropped, mark_dirty, park_of_arq, park_of_consumer};
pub use pending::{Processed, has_pending, process_pending};
pub use program::{check, prepare};
pub(crate) use program::{function_trait, program_deployable, withhold_programmed};

use crate::Error;
use crate::db::orders;

/// Notifies hosts; this service never contacts them itself.
pub trait HostNotifier: Send + Sync + 'static {
    /// Starts the next document generation of a host in this transaction, and wakes its agent after
    /// the commit. `None` for a host that has never registered.
    /// # Errors
    /// Store errors.
    fn next(&self, tx: &mut Tx<'_>, host: &HostName) -> Result<Option<i64>, kilonova_store::Error>;
}

/// An image used as a bitstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitstream {
    /// The image.
    pub image: ImageId,
    /// True if its data is uploaded.
    pub ready: bool,
    /// Its property `accel:function_id`.
    pub function: Option<String>,
}

/// The source of bitstreams, supplied by a component with access to the image service.
pub trait Bitstreams: Send + Sync + 'static {
    /// Finds an image by id.
    ///
    /// # Errors
    /// Store errors.
    fn by_id(
        &self,
        tx: &mut Tx<'_>,
        image: ImageId,
    ) -> Result<Option<Bitstream>, kilonova_store::Error>;

    /// The images with this `accel:function_id`, among those that only administrators can create: a tenant's image must
    /// not be loaded into a card merely because of its properties.
    ///
    /// # Errors
    /// Store errors.
    fn by_function(
        &self,
        tx: &mut Tx<'_>,
        function: &str,
    ) -> Result<Vec<Bitstream>, kilonova_store::Error>;
}

/// Puts all new orders into the next generation of their hosts' documents.
///
/// # Errors
/// Store errors only.
pub fn announce(tx: &mut Tx<'_>, nodes: &dyn HostNotifier) -> Result<(), Error> {
    for host in orders::unannounced(tx)? {
        if let Some(generation) = nodes.next(tx, &host)? {
            orders::announce(tx, &host, generation)?;
        }
    }
    Ok(())
}

/// The orders of a host after a generation.
///
/// # Errors
/// Store errors only.
pub fn since(tx: &mut Tx<'_>, host: &HostName, generation: i64) -> Result<Vec<Order>, Error> {
    Ok(orders::since(tx, host, generation)?)
}

/// True if an order in a host's documents programs a device with this image.
///
/// # Errors
/// Store errors only.
pub fn program_with(tx: &mut Tx<'_>, host: &HostName, image: ImageId) -> Result<bool, Error> {
    Ok(orders::program_with(tx, host, image)?)
}

/// Announces [`since`].
///
/// # Errors
/// Store errors only.
pub fn expect_since(tx: &mut Tx<'_>, host: &HostName, generation: i64) -> Result<(), Error> {
    Ok(orders::expect_since(tx, host, generation)?)
}
