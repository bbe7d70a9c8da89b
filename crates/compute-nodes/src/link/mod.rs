//! The controller's side of the node API.
//!
//! A registration begins a session with a new epoch. Later calls carry the epoch, except answers to console requests. A
//! call of an older session is refused, so that a replaced agent cannot act on devices that it no longer owns.

mod consoles;
mod desired;
mod division;
mod guest_password;
mod image;
mod machine;
mod observed;
mod orders;
mod owner_traits;
mod register;
mod replied;
pub(crate) mod snapshot_data;
mod validate;
mod vendordata;

use std::path::PathBuf;

use kilonova_compute_app::images::Transfer;
use kilonova_compute_app::{Compute, Error};
use kilonova_ids::{HostName, ImageId};
use kilonova_node_api::{
    Batch, Chunk, ConsoleAnswer, ConsoleRequest, ControlFuture, ControlPlane, DiskFormat,
    Observation, OrderResult, PasswordAnswer, PasswordRequest, Refusal, Registration, Reply,
    Session, VendordataAnswer, VendordataRequest,
};

/// The node API of this controller: agents in its process call it directly, others through [`crate::api`].
#[derive(Clone)]
pub struct Link(pub Compute);

impl ControlPlane for Link {
    fn register(&self, registration: Registration) -> ControlFuture<'_, Session> {
        Box::pin(register::register(&self.0, registration))
    }

    fn desired<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        since: i64,
    ) -> ControlFuture<'a, Batch> {
        Box::pin(desired::desired(&self.0, host, epoch, since))
    }

    fn observed<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        observations: Vec<Observation>,
    ) -> ControlFuture<'a, ()> {
        Box::pin(observed::observed(&self.0, host, epoch, observations))
    }

    fn report_orders<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        results: Vec<OrderResult>,
    ) -> ControlFuture<'a, ()> {
        Box::pin(orders::report_results(&self.0, host, epoch, results))
    }

    fn image<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        image: ImageId,
        offset: u64,
    ) -> ControlFuture<'a, Chunk> {
        Box::pin(image::image(&self.0, host, epoch, image, offset))
    }

    fn upload_image<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        image: ImageId,
        format: DiskFormat,
        file: PathBuf,
    ) -> ControlFuture<'a, ()> {
        Box::pin(snapshot_data::store_file(&self.0, host, epoch, image, format, file))
    }

    fn answer_console<'a>(
        &'a self,
        host: &'a HostName,
        request: &'a ConsoleRequest,
        answer: ConsoleAnswer,
    ) -> ControlFuture<'a, ()> {
        Box::pin(consoles::answer(&self.0, host, request, answer))
    }

    fn report_replies<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        replies: Vec<Reply>,
    ) -> ControlFuture<'a, ()> {
        Box::pin(replied::replied(&self.0, host, epoch, replies))
    }

    fn guest_password<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        request: PasswordRequest,
    ) -> ControlFuture<'a, PasswordAnswer> {
        Box::pin(guest_password::guest_password(&self.0, host, epoch, request))
    }

    fn vendordata<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        request: VendordataRequest,
    ) -> ControlFuture<'a, VendordataAnswer> {
        Box::pin(vendordata::vendordata(&self.0, host, epoch, request))
    }
}

fn not_transferred(error: Transfer) -> Refusal {
    match error {
        Transfer::Refused(why) => Refusal::Rejected(why),
        Transfer::Unavailable(why) => Refusal::Unavailable(why),
    }
}

fn unavailable(error: impl Into<Error>) -> Refusal {
    match error.into() {
        Error::Fenced => Refusal::Fenced,
        Error::Refused(refusal) => Refusal::Rejected(refusal.message),
        // The host's device report is invalid, so a retry would not help.
        Error::Accelerator(report @ kilonova_accelerator::Error::Report { .. }) => {
            Refusal::Rejected(report.to_string())
        }
        other => Refusal::Unavailable(other.to_string()),
    }
}
