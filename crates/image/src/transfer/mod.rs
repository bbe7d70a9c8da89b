//! Transfers of image data: limits, pace, hashes and formats. This module uses streams and stores, but no rows.

mod deliver;
pub(crate) mod format;
mod gate;
mod pace;
mod receiver;
mod stream;

pub(crate) use deliver::deliver;
pub use gate::TransferLimit;
pub(crate) use gate::{Gate, Pass};
pub use pace::Rate;
pub(crate) use pace::{Pace, TooSlow};
pub(crate) use receiver::Receiver;
pub use stream::ImageData;
