//! The volumes of servers, which the cloud's Cinder has.
//!
//! ```text
//!   plan       the next call for a server, from its rows and documents (pure)
//!   work       makes the calls for one server at a time, and stores their results
//!   scene      reads what the plan needs
//!   documents  the volumes of a document, and whether it has to wait for some
//!   report     what a host says of a guest's volumes
//!   attach     requests to attach a volume, detach it, and change it
//!   request    the volumes that a new server asks for
//!   resolve    the same, with what Cinder says of them, and their reservation
//!   failed     a server that does not get a volume
//! ```
//!
//! No call is part of a transaction. Rows say which volumes a server has (`compute_db::volumes`), the documents
//! of hosts say where its guest is, and the worker makes Cinder agree. So the flows need not know that there
//! are volumes. How a host reaches a volume is secret, and only in the document of that host. A user's
//! token must never reach a row or a log.

mod attach;
mod documents;
mod failed;
mod plan;
#[cfg(test)]
mod plan_tests;
mod report;
pub mod request;
pub mod resolve;
mod scene;
mod work;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kilonova_cinder::{Call, Cinder, Error as CallError};
use kilonova_compute_db::volumes::{self as rows, BlockDevice, Phase};
use kilonova_ids::{AttachmentId, ServerId};
use kilonova_keystone::Caller;
use kilonova_store::{Asked, Tx};
use kilonova_wire::{Context, Refusal, UserToken, time};
use newtype_uuid::GenericUuid;
use tokio::runtime::Handle;
use tokio::sync::Notify;

pub use attach::{AttachRequest, Change, attach, change, detach, extend_soon, extended};
pub(crate) use documents::{complete, forget_connections, placeholders};
pub(crate) use report::observed;
pub use work::{run, work};

use crate::tokens::Tokens;
use crate::{Compute, Error};

/// How long a worker has a server for itself. No call takes longer than [`LONGEST_CALL`].
const LEASE: SignedDuration = SignedDuration::from_secs(180);
/// The longest time that one call may take, whatever the settings: the answer is stored within the lease.
pub const LONGEST_CALL: Duration = Duration::from_secs(120);

/// The operator's settings of volumes.
#[derive(Debug, Clone)]
pub struct VolumeOptions {
    /// True if a server may have volumes of another zone (`[cinder] cross_az_attach`).
    pub cross_az_attach: bool,
    /// How often a new volume is looked at until it is available (`[DEFAULT] block_device_allocate_retries`).
    pub allocate_retries: u32,
    /// The pause between two looks (`[DEFAULT] block_device_allocate_retries_interval`).
    pub allocate_interval: Duration,
    /// The most disks of a server (`[compute] max_disk_devices_to_attach`); negative for no limit.
    pub max_disk_devices: i64,
    /// The most local disks of a new server (`[DEFAULT] max_local_block_devices`); negative for no limit.
    pub max_local_devices: i64,
    /// Failed attempts of a call after which an operation that waits for it fails.
    pub attempts: i64,
    /// The pause after the first failed attempt; it doubles.
    pub pause: Duration,
    /// The longest time that one call may take, up to [`LONGEST_CALL`].
    pub patience: Duration,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            cross_az_attach: true,
            allocate_retries: 60,
            allocate_interval: Duration::from_secs(3),
            max_disk_devices: -1,
            max_local_devices: 3,
            attempts: 6,
            pause: Duration::from_secs(1),
            patience: LONGEST_CALL,
        }
    }
}

/// The Cinder of the cloud.
pub struct Volumes {
    client: Cinder,
    options: VolumeOptions,
    tokens: Tokens<ServerId>,
    runtime: Handle,
    /// Signalled when the loop has work.
    pub(crate) news: Arc<Notify>,
}

impl Volumes {
    /// Volumes over a client; nothing is sent. Call it within the runtime of the process.
    pub fn new(client: Cinder, options: VolumeOptions) -> Self {
        let (tokens, news) = Default::default();
        let patience = options.patience.min(LONGEST_CALL);
        let options = VolumeOptions { patience, ..options };
        Self { client, options, tokens, runtime: Handle::current(), news }
    }

    /// Logs in and asks for one volume, as a test of the settings.
    ///
    /// # Errors
    /// A text for the operator.
    pub async fn check(&self) -> Result<(), CallError> {
        self.client.check().await
    }

    /// The settings.
    pub fn options(&self) -> &VolumeOptions {
        &self.options
    }

    /// Bounds the time of a call.
    async fn bounded<T>(
        &self,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        match tokio::time::timeout(self.options.patience, call).await {
            Ok(ended) => ended,
            Err(_) => Err(CallError::NoAnswer(kilonova_keystone::Error::Unreachable {
                url: "Cinder".into(),
                connected: true,
                cause: format!("no answer within {} s", self.options.patience.as_secs()),
            })),
        }
    }

    /// Makes a call for the user whose token is known for the server; otherwise, and if the token does
    /// not suffice any more, with the service login.
    async fn for_user<'a, T, R>(
        &self,
        token: Option<&'a UserToken>,
        project: &'a str,
        call: impl Fn(Call<'a>) -> R,
    ) -> Result<T, CallError>
    where
        R: Future<Output = Result<T, CallError>>,
    {
        self.bounded(async {
            if let Some(token) = token {
                let caller = Caller::Vouched(token);
                let by = Call { caller, project: Some(project), request_id: None };
                match call(by).await {
                    Err(error) if error.is_not_found() || is_refused_token(&error) => {}
                    ended => return ended,
                }
            }
            call(Call::OWN).await
        })
        .await
    }

    /// Ends an attachment that no row has, because the lease of its request ended before the answer came.
    async fn withdraw(&self, by: Call<'_>, server: ServerId, attachment: AttachmentId) -> Error {
        if let Err(error) = self.bounded(self.client.delete_attachment(by, attachment)).await {
            tracing::error!(
                %server, %attachment, %error,
                "cannot end an attachment that came too late; delete it in Cinder"
            );
        }
        Refusal::conflict(format!(
            "Volumes of instance {server} were not reserved in time. Try again."
        ))
        .into()
    }
}

/// True if another login may be accepted.
fn is_refused_token(error: &CallError) -> bool {
    error.status().is_some_and(|status| matches!(status.as_u16(), 401 | 403))
}

/// The token of a request for the calls that follow it. None of an administrator of another project: those
/// calls name the server's project, and Cinder refuses a URL whose project is not the token's.
fn token_of<'a>(context: &'a Context, project: &str) -> Option<&'a UserToken> {
    context.token.as_ref().filter(|_| context.project_id == project)
}

/// The call of a user's request.
fn by<'a>(context: &'a Context, request_id: &'a str) -> Call<'a> {
    let caller = context.token.as_ref().map_or(Caller::Own, Caller::Vouched);
    let project = context.token.as_ref().map(|_| context.project_id.as_str());
    Call { caller, project, request_id: Some(request_id) }
}

/// A text that no other worker has.
fn new_token() -> String {
    ServerId::new_v4().into_untyped_uuid().to_string()
}

fn until(now: Timestamp) -> Timestamp {
    time::after(now, LEASE)
}

/// The volumes of servers, as their users see them.
pub type ServerVolumes = HashMap<ServerId, Vec<BlockDevice>>;

/// The volumes of servers.
///
/// # Errors
/// Store errors only.
pub fn of_servers(
    tx: &mut Tx<'_>,
    compute: &Compute,
    servers: &[ServerId],
) -> Result<ServerVolumes, Error> {
    if compute.volumes.is_none() || servers.is_empty() {
        return Ok(HashMap::new());
    }
    let found = rows::of_servers(tx, servers)?;
    Ok(found.into_iter().map(|(server, devices)| (server, shown(devices))).collect())
}

/// The devices that a server has or gets.
pub fn shown(devices: Vec<BlockDevice>) -> Vec<BlockDevice> {
    let is_shown = |device: &BlockDevice| match device.phase {
        Phase::Attaching
        | Phase::Attached
        | Phase::BeginDetaching
        | Phase::Detaching
        | Phase::RollDetaching => device.volume.is_some(),
        Phase::Requested | Phase::Failed => false,
    };
    devices.into_iter().filter(is_shown).collect()
}

/// Something changed for a server: the worker looks at it after the commit. Costs no round trip.
///
/// # Errors
/// Store errors only; also for the functions below.
pub(crate) fn nudge(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    if compute.volumes.is_none() {
        return Ok(());
    }
    let asked = rows::ask_nudge(tx, server, now)?;
    work_after(tx, compute, server, asked);
    Ok(())
}

/// The server is gone: its attachments end, and the volumes that end with it.
pub(crate) fn end(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    if compute.volumes.is_none() {
        return Ok(());
    }
    let asked = rows::ask_end(tx, server, now)?;
    work_after(tx, compute, server, asked);
    Ok(())
}

/// Starts a worker after the commit if the answer has a row.
fn work_after(tx: &mut Tx<'_>, compute: &Compute, server: ServerId, asked: Asked) {
    let compute = compute.clone();
    tx.on_commit_with(asked, move |rows| {
        if !rows.is_empty() {
            start(&compute, server);
        }
    });
}

/// Starts a worker for a server.
fn start(compute: &Compute, server: ServerId) {
    let Some(volumes) = &compute.volumes else { return };
    let compute = compute.clone();
    volumes.runtime.spawn(async move {
        if let Err(error) = work(&compute, server).await {
            tracing::warn!(%server, %error, "cannot work on the volumes of a server; the loop tries again");
        }
    });
}
