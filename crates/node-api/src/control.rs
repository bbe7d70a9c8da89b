//! The controller as an agent sees it: a call within one process, HTTP between machines.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use kilonova_ids::{HostName, ImageId};

use crate::{
    Batch, Chunk, ConsoleAnswer, ConsoleRequest, DiskFormat, Observation, OrderResult,
    PasswordAnswer, PasswordRequest, Registration, Reply, Session, VendordataAnswer,
    VendordataRequest,
};

/// The future that a call to the controller returns.
pub type ControlFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send + 'a>>;

/// The reason why the controller refused a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// A newer process registered for this host; this one must stop.
    Fenced,
    /// The registration is invalid; the text is for the host's operator.
    Rejected(String),
    /// The controller is unavailable; retry.
    Unavailable(String),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fenced => f.write_str("another process has registered for this host"),
            Self::Rejected(why) | Self::Unavailable(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Refusal {}

/// The calls that the controller offers to agents. Only agents open connections.
pub trait ControlPlane: Send + Sync + 'static {
    /// Registers the host with its inventory. Every later call carries the epoch of the answer.
    fn register(&self, registration: Registration) -> ControlFuture<'_, Session>;

    /// Returns the documents newer than `since`, waiting some seconds if there are none. `since =
    /// 0` returns every document of the host: the recovery path.
    fn desired<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        since: i64,
    ) -> ControlFuture<'a, Batch>;

    /// Reports observations. The controller has stored them when it answers.
    fn observed<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        observations: Vec<Observation>,
    ) -> ControlFuture<'a, ()>;

    /// Reports the results of orders. The controller has stored them when it answers.
    fn report_orders<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        carried: Vec<OrderResult>,
    ) -> ControlFuture<'a, ()>;

    /// Reads a chunk of an image from `offset` on. An image's bytes never change, so a file can be
    /// fetched in chunks.
    fn image<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        image: ImageId,
        offset: u64,
    ) -> ControlFuture<'a, Chunk>;

    /// Uploads the bytes of a snapshot's image from a file of this format. Idempotent.
    fn upload_image<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        image: ImageId,
        format: DiskFormat,
        file: PathBuf,
    ) -> ControlFuture<'a, ()>;

    /// Answers a console request at the controller that sent it, where the client may have given up. If that controller
    /// is another process, a call with a connection returns when the connection ends.
    fn answer_console<'a>(
        &'a self,
        host: &'a HostName,
        request: &'a ConsoleRequest,
        answer: ConsoleAnswer,
    ) -> ControlFuture<'a, ()>;

    /// Answers questions. The requester may have given up.
    fn report_replies<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        replies: Vec<Reply>,
    ) -> ControlFuture<'a, ()>;

    /// Stores the password of a guest, once, or reads it. The controller has stored it when it
    /// answers.
    fn guest_password<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        request: PasswordRequest,
    ) -> ControlFuture<'a, PasswordAnswer>;

    /// Requests the vendor data of a guest from the operator's services.
    fn vendordata<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        request: VendordataRequest,
    ) -> ControlFuture<'a, VendordataAnswer>;
}
