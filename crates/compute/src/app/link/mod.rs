//! The controller's side of the node API, in this process.
//!
//! Every call contains the host's epoch. A call of an older session is refused, so that a replaced
//! node cannot act on devices that it does not own any more.

mod desired;
mod image;
pub(crate) mod keep;
mod machine;
mod observed;
mod orders;
mod register;
mod replied;
mod sane;

use std::path::PathBuf;

use kilonova_ids::ImageId;
use kilonova_node_api::{
    Batch, Chunk, ControlFuture, ControlPlane, DiskFormat, Observation, OrderResult, Refusal,
    Registration, Reply, Session,
};

use crate::{Compute, Error};

/// The implementation for nodes in this process.
#[derive(Clone)]
pub struct Link(pub Compute);

impl ControlPlane for Link {
    fn register(&self, registration: Registration) -> ControlFuture<'_, Session> {
        Box::pin(register::register(&self.0, registration))
    }

    fn desired<'a>(&'a self, host: &'a str, epoch: i64, since: i64) -> ControlFuture<'a, Batch> {
        Box::pin(desired::desired(&self.0, host, epoch, since))
    }

    fn observed<'a>(
        &'a self,
        host: &'a str,
        epoch: i64,
        observations: Vec<Observation>,
    ) -> ControlFuture<'a, ()> {
        Box::pin(observed::observed(&self.0, host, epoch, observations))
    }

    fn report_orders<'a>(
        &'a self,
        host: &'a str,
        epoch: i64,
        carried: Vec<OrderResult>,
    ) -> ControlFuture<'a, ()> {
        Box::pin(orders::carried_out(&self.0, host, epoch, carried))
    }

    fn image<'a>(
        &'a self,
        host: &'a str,
        epoch: i64,
        image: ImageId,
        offset: u64,
    ) -> ControlFuture<'a, Chunk> {
        Box::pin(image::image(&self.0, host, epoch, image, offset))
    }

    fn upload_image<'a>(
        &'a self,
        host: &'a str,
        epoch: i64,
        image: ImageId,
        format: DiskFormat,
        file: PathBuf,
    ) -> ControlFuture<'a, ()> {
        Box::pin(keep::file(&self.0, host, epoch, image, format, file))
    }

    fn report_replies<'a>(
        &'a self,
        host: &'a str,
        epoch: i64,
        replies: Vec<Reply>,
    ) -> ControlFuture<'a, ()> {
        Box::pin(replied::replied(&self.0, host, epoch, replies))
    }
}

fn unavailable(error: Error) -> Refusal {
    match error {
        Error::Fenced => Refusal::Fenced,
        Error::Refused(fault) => Refusal::Rejected(fault.message),
        // The host's device report is invalid; repeating it would not help.
        Error::Accelerator(report @ kilonova_accelerator::Error::Report { .. }) => {
            Refusal::Rejected(report.to_string())
        }
        other => Refusal::Unavailable(other.to_string()),
    }
}
