//! The volumes of servers, which are in the external Cinder.
//!
//! ```text
//!   plan       the next call for a server, from its rows and documents (pure)
//!   work       makes the calls for one server at a time, and stores their results
//!   scene      reads what the plan needs
//!   documents  the volumes of a document, and whether it has to wait for some
//!   report     a host's report on a guest's volumes
//!   attach     requests to attach a volume, detach it, and change it
//!   request    the requested volumes of a new server
//!   resolve    looks these volumes up in Cinder, and reserves those that exist
//!   failed     a volume that cannot be attached or detached
//!   root       the root volume of a server that is rebuilt or rescued
//!   image      `createImage` of a volume-backed server
//! ```
//!
//! No call is part of a transaction. Rows list the volumes of a server (`compute_db::volumes`),
//! documents determine the hosts of its guest, and the worker makes Cinder match both, so the flows
//! need not know about volumes. Connection data is secret, and is kept only in the host's document.
//! A user's token must never reach a row or a log.

mod actions;
mod attach;
mod documents;
mod failed;
pub(crate) mod image;
mod plan;
#[cfg(test)]
mod plan_tests;
mod report;
pub mod request;
pub mod resolve;
mod root;
mod scene;
mod work;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kilonova_cinder::{Call, Cinder, Error as CallError};
use kilonova_compute_db::servers::Server;
use kilonova_compute_db::volumes::{self as rows, BlockDevice, Phase};
use kilonova_ids::{AttachmentId, ServerId};
use kilonova_keystone::Caller;
use kilonova_store::{Asked, Tx};
use kilonova_wire::{Context, Refusal, UserToken, time};
use tokio::runtime::Handle;
use tokio::sync::Notify;

pub use attach::{AttachRequest, Change, attach, change, detach, extend_soon, extended};
pub(crate) use documents::{complete, forget_connections, placeholders};
pub(crate) use failed::release_failed;
pub use image::{create_image, sweep as sweep_snapshots};
pub(crate) use report::observed;
pub(crate) use root::end_reimage;
pub use root::{RootVolume, begin_reimage, check_in_use, root_to_rebuild};
pub use work::{run, work};

use crate::tokens::Tokens;
use crate::{Compute, Error};

/// How long a worker leases a server. No call takes longer than [`LONGEST_CALL`].
const LEASE: SignedDuration = SignedDuration::from_secs(180);
/// Upper bound on the time of one call, regardless of the settings, so that its answer is stored
/// within the lease.
pub const LONGEST_CALL: Duration = Duration::from_secs(120);

/// The operator's settings for volumes.
#[derive(Debug, Clone)]
pub struct VolumeOptions {
    /// True if a server may have volumes from another zone (`[cinder] cross_az_attach`).
    pub cross_az_attach: bool,
    /// How many times a new volume is polled until it is available (`[DEFAULT]
    /// block_device_allocate_retries`).
    pub allocate_retries: u32,
    /// The pause between two polls (`[DEFAULT] block_device_allocate_retries_interval`).
    pub allocate_interval: Duration,
    /// How long Cinder may take to replace the data of a volume, per GiB (`[DEFAULT]
    /// reimage_timeout_per_gb`).
    pub reimage_per_gb: Duration,
    /// Maximum number of disks of a server (`[compute] max_disk_devices_to_attach`); negative for
    /// no limit.
    pub max_disk_devices: i64,
    /// Maximum number of local disks of a new server (`[DEFAULT] max_local_block_devices`);
    /// negative for no limit.
    pub max_local_devices: i64,
    /// Number of failed attempts of a call after which an operation that waits for it fails.
    pub attempts: i64,
    /// The pause after the first failed attempt; it doubles after each further one.
    pub pause: Duration,
    /// Maximum time of one call, up to [`LONGEST_CALL`].
    pub timeout: Duration,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            cross_az_attach: true,
            allocate_retries: 60,
            allocate_interval: Duration::from_secs(3),
            reimage_per_gb: Duration::from_secs(20),
            max_disk_devices: -1,
            max_local_devices: 3,
            attempts: 6,
            pause: Duration::from_secs(1),
            timeout: LONGEST_CALL,
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
    /// Signalled when snapshots have become unwanted.
    pub(crate) unwanted: Arc<Notify>,
    /// Signalled when Cinder reports that it has replaced the data of a volume.
    reimaged: Notify,
}

impl Volumes {
    /// Creates the service over a client, without sending anything. Call it within the runtime of the process.
    pub fn new(client: Cinder, options: VolumeOptions) -> Self {
        let (tokens, news, unwanted, reimaged) = Default::default();
        let timeout = options.timeout.min(LONGEST_CALL);
        let options = VolumeOptions { timeout, ..options };
        let runtime = Handle::current();
        Self { client, options, tokens, runtime, news, unwanted, reimaged }
    }

    /// Logs in and requests one volume, as a test of the settings.
    ///
    /// # Errors
    /// The failure, for the operator to read.
    pub async fn check(&self) -> Result<(), CallError> {
        self.client.check().await
    }

    /// The settings.
    pub fn options(&self) -> &VolumeOptions {
        &self.options
    }

    /// Handles Cinder's event that it has replaced the data of a volume: workers that wait for this check their
    /// volumes. An event that is lost, or reaches another controller, only causes a short delay.
    pub fn look_at_reimaged(&self) {
        self.reimaged.notify_waiters();
    }

    /// Bounds the time of a call.
    async fn bounded<T>(
        &self,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        match tokio::time::timeout(self.options.timeout, call).await {
            Ok(ended) => ended,
            Err(_) => Err(CallError::NoAnswer(kilonova_keystone::Error::Unreachable {
                url: "Cinder".into(),
                connected: true,
                cause: format!("no answer within {} s", self.options.timeout.as_secs()),
            })),
        }
    }

    /// Makes a call with the user's token for the server. Uses the service login if no token is known, and repeats the
    /// call with it if Cinder answers the token with 401, 403 or 404.
    async fn for_user<'a, T, R>(
        &self,
        token: Option<&'a UserToken>,
        project: &'a str,
        call: impl Fn(Call<'a>) -> R,
    ) -> Result<T, CallError>
    where
        R: Future<Output = Result<T, CallError>>,
    {
        let is_repeated = |error: &CallError| error.is_not_found() || is_refused_token(error);
        self.as_user(token, project, call, is_repeated).await
    }

    /// Makes a call that Cinder's policy may deny to the user. The service login replaces a token that is unknown or
    /// no longer valid, but never does what Cinder denies to the user.
    async fn as_allowed<'a, T, R>(
        &self,
        token: Option<&'a UserToken>,
        project: &'a str,
        call: impl Fn(Call<'a>) -> R,
    ) -> Result<T, CallError>
    where
        R: Future<Output = Result<T, CallError>>,
    {
        let is_repeated =
            |error: &CallError| error.status().is_some_and(|status| status.as_u16() == 401);
        self.as_user(token, project, call, is_repeated).await
    }

    /// Makes a call with the user's token, and repeats it with the service login after the errors that `is_repeated`
    /// accepts.
    async fn as_user<'a, T, R>(
        &self,
        token: Option<&'a UserToken>,
        project: &'a str,
        call: impl Fn(Call<'a>) -> R,
        is_repeated: impl Fn(&CallError) -> bool,
    ) -> Result<T, CallError>
    where
        R: Future<Output = Result<T, CallError>>,
    {
        self.bounded(async {
            if let Some(token) = token {
                let caller = Caller::Vouched(token);
                let by = Call { caller, project: Some(project), request_id: None };
                match call(by).await {
                    Err(error) if is_repeated(&error) => {}
                    ended => return ended,
                }
            }
            call(Call::OWN).await
        })
        .await
    }

    /// Deletes an attachment that has no row because the lease of its request expired before the answer
    /// arrived.
    async fn withdraw(&self, by: Call<'_>, server: ServerId, attachment: AttachmentId) -> Error {
        if let Err(error) = self.bounded(self.client.delete_attachment(by, attachment)).await {
            tracing::error!(
                %server, %attachment, %error,
                "Cinder reserved a volume after the request had timed out, and its attachment cannot be deleted; delete it \
                 in Cinder"
            );
        }
        Refusal::conflict(format!(
            "Volumes of instance {server} were not reserved in time. Try again."
        ))
        .into()
    }
}

/// True if Cinder refuses the token, and may accept another login.
fn is_refused_token(error: &CallError) -> bool {
    error.status().is_some_and(|status| matches!(status.as_u16(), 401 | 403))
}

/// The token of a request, for the calls that follow it. `None` for an administrator of another
/// project: those calls name the server's project, and Cinder refuses a URL with a project other
/// than the token's.
fn token_of<'a>(context: &'a Context, project: &str) -> Option<&'a UserToken> {
    context.token.as_ref().filter(|_| context.project_id == project)
}

/// A call to Cinder on behalf of a user's request.
fn by<'a>(context: &'a Context, request_id: &'a str) -> Call<'a> {
    let caller = context.token.as_ref().map_or(Caller::Own, Caller::Vouched);
    let project = context.token.as_ref().map(|_| context.project_id.as_str());
    Call { caller, project, request_id: Some(request_id) }
}

/// A new token of a worker's lease. It begins with the id of the controller.
fn new_token(compute: &Compute) -> String {
    format!("{}/{}", compute.controller, ServerId::new_v4())
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

/// The devices that a server has or that are being attached to it.
pub fn shown(devices: Vec<BlockDevice>) -> Vec<BlockDevice> {
    let is_shown = |device: &BlockDevice| match device.phase {
        Phase::Attaching
        | Phase::Attached
        | Phase::BeginDetaching
        | Phase::Detaching
        | Phase::RollDetaching
        | Phase::Reimaging => device.volume.is_some(),
        Phase::Requested | Phase::Failed => false,
    };
    devices.into_iter().filter(is_shown).collect()
}

/// Records that something changed for a server, which the worker processes after the commit. Costs
/// no round trip.
///
/// # Errors
/// Store errors only; the same applies to the functions below.
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

/// Keeps the token of the user who deletes a server with volumes. Cinder decides by it which volumes are deleted with
/// the server (`_cleanup_volumes` in `nova/compute/manager.py`). The service login replaces the token of an
/// administrator of another project, which cannot be used for this project. A deletion by the service itself leaves the
/// kept token.
///
/// # Errors
/// Store errors only.
pub(crate) fn keep_deleter(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
) -> Result<(), Error> {
    let Some(volumes) = compute.volumes.as_ref().filter(|_| context.token.is_some()) else {
        return Ok(());
    };
    let (volumes, id) = (Arc::clone(volumes), server.id);
    let token = token_of(context, &server.project_id).cloned();
    let asked = rows::ask_has_any(tx, id)?;
    tx.on_commit_with(asked, move |rows| match token {
        _ if rows.is_empty() => {}
        Some(token) => volumes.tokens.keep(id, Some(&token)),
        None => volumes.tokens.forget(id),
    });
    Ok(())
}

/// Records that the server is gone. Its attachments are then deleted, and so are the volumes with
/// `delete_on_termination`.
pub(crate) fn end(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<bool, Error> {
    if compute.volumes.is_none() {
        return Ok(false);
    }
    let has_any = rows::end(tx, server, now)?;
    if has_any {
        let compute = compute.clone();
        tx.on_commit(move || start(&compute, server));
    }
    Ok(has_any)
}

/// Starts a worker after the commit if the statement has returned a row.
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
            tracing::warn!(%server, %error, "cannot process the volumes of a server; the loop \
                retries");
        }
    });
}
