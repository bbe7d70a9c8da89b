//! What is to be done to devices: bitstreams, clean-ups. An order is a row, written by the transaction
//! that makes it needful; the node is told of it with the next documents, and its word ends it.
//!
//! ```text
//!   bind, PATCH …/program ─► program: open ─┬─ done ──► bitstream_id; waiting requests are Bound
//!                                           └─ failed ► unknown content; they are BindFailed
//!   release ─► handle parked ─► clean: open ─┬─ done ──► handle free
//!                                            └─ failed ► parked; tried again, or an operator cleans
//! ```
//!
//! While a device has an open order to be programmed, none of its handles is chosen.

mod carried;
mod clean;
mod program;
mod tidy;

use kilonova_ids::ImageId;
use kilonova_node_api::Order;
use kilonova_store::{Row, Tx, params};

pub use carried::carried_out;
pub(crate) use clean::{dropped, park_dirty, park_of_arq, park_of_consumer};
pub(crate) use program::{by_hand, function_trait};
pub use program::{check, prepare};
pub use tidy::{Tidied, needs_tidying, tidy};

use crate::Error;
use crate::db::orders;

/// Who speaks to the nodes; this service never does.
pub trait Nodes: Send + Sync + 'static {
    /// The next generation of what a host is told, counted in this transaction. Its node is woken
    /// once that is durable. `None` for a host that has never registered.
    ///
    /// # Errors
    /// The store's.
    fn next(&self, tx: &mut Tx<'_>, host: &str) -> Result<Option<i64>, kilonova_store::Error>;
}

/// An image that is a bitstream, or is taken for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitstream {
    /// The image.
    pub image: ImageId,
    /// Whether its bytes are there.
    pub ready: bool,
    /// Its property `accel:function_id`.
    pub function: Option<String>,
}

/// Where bitstreams are; handed in by whoever knows the image service.
pub trait Bitstreams: Send + Sync + 'static {
    /// The image of that id.
    ///
    /// # Errors
    /// The store's.
    fn by_id(
        &self,
        tx: &mut Tx<'_>,
        image: ImageId,
    ) -> Result<Option<Bitstream>, kilonova_store::Error>;

    /// The images whose property `accel:function_id` is this, of those that only administrators can
    /// have put there: a tenant's image must not end up in a card because of its properties.
    ///
    /// # Errors
    /// The store's.
    fn by_function(
        &self,
        tx: &mut Tx<'_>,
        function: &str,
    ) -> Result<Vec<Bitstream>, kilonova_store::Error>;
}

/// Tells the nodes of all orders of which they have not been told.
///
/// # Errors
/// Only the store's.
pub fn announce(tx: &mut Tx<'_>, nodes: &dyn Nodes) -> Result<(), Error> {
    for host in orders::untold(tx)? {
        if let Some(generation) = nodes.next(tx, &host)? {
            tx.execute(orders::TELL, params![host, generation])?;
        }
    }
    Ok(())
}

/// What a host is to do to its devices, of which it was told after a generation.
///
/// # Errors
/// Only the store's.
pub fn since(tx: &mut Tx<'_>, host: &str, since: i64) -> Result<Vec<Order>, Error> {
    let read = |row: &Row| {
        let task = serde_json::from_str(row.text(4)?)
            .map_err(|error| kilonova_store::Error::Shape(format!("device order: {error}")))?;
        Ok(Order {
            id: row.id(0)?,
            generation: row.int(1)?,
            server: row.id_opt(2)?,
            device: row.string(3)?,
            task,
        })
    };
    tx.rows(orders::SINCE, params![host, since])?.iter().map(read).collect()
}
