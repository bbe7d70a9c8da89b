//! The Glance of the cloud as the image service.
//!
//! ```text
//!   requests   images are read with the user's token, before the transaction
//!   making     a snapshot's image: journaled, created, adopted by the operation, filled by the host
//!   streams    downloads of image data by hosts
//!   sweep      deletes unneeded images and rotates backups, even after a crash
//! ```
//!
//! No call is part of a transaction. Each call that changes something is recorded in a row before it is sent
//! (`compute_db::glance_images`), may be sent twice, and is undone by the sweep if no operation adopts its result. A
//! user's token must never reach a row or a log.

mod making;
mod requests;
mod streams;
mod sweep;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use kilonova_glance::{Error as CallError, Glance};
use kilonova_ids::ImageId;
use kilonova_keystone::Caller;
use kilonova_threads::Pool;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Refusal, UserToken};
use tokio::sync::{Notify, Semaphore};

pub(super) use requests::record;
use streams::Streams;

use crate::Error;
use crate::tokens::Tokens;

/// Number of threads that send local files to Glance: the disks of simulated hosts.
const THREADS: usize = 4;

/// The operator's settings for the service.
#[derive(Debug, Clone)]
pub struct CloudGlanceOptions {
    /// Properties that a snapshot does not inherit from the server's image
    /// (`[DEFAULT] non_inheritable_image_properties`).
    pub non_inheritable: Vec<String>,
    /// Maximum number of concurrent uploads by hosts.
    pub snapshots: usize,
}

impl Default for CloudGlanceOptions {
    fn default() -> Self {
        Self {
            non_inheritable: ["cache_in_nova", "bittorrent"].map(str::to_owned).to_vec(),
            snapshots: 16,
        }
    }
}

/// The Glance of the cloud.
pub struct CloudGlance {
    pub(super) client: Glance,
    options: CloudGlanceOptions,
    tokens: Tokens<ImageId>,
    streams: Streams,
    snapshots: Semaphore,
    /// Number of failed uploads of each image since its last success.
    failures: Mutex<HashMap<ImageId, u32>>,
    threads: Pool,
    /// Signalled when the sweep has work.
    pub(crate) work: Arc<Notify>,
}

impl CloudGlance {
    /// Creates the service over a client, without sending anything.
    ///
    /// # Errors
    /// If threads cannot be started.
    pub fn new(client: Glance, options: CloudGlanceOptions) -> std::io::Result<Self> {
        Ok(Self {
            client,
            tokens: Tokens::default(),
            streams: Streams::default(),
            snapshots: Semaphore::new(options.snapshots.max(1)),
            failures: Mutex::default(),
            threads: Pool::new("glance-files", THREADS)?,
            work: Arc::default(),
            options,
        })
    }

    /// Properties that a snapshot does not inherit.
    pub(super) fn non_inheritable(&self) -> &[String] {
        &self.options.non_inheritable
    }

    /// Logs in and requests one image, as a test of the settings.
    ///
    /// # Errors
    /// [`CallError`], with a message for the operator.
    pub async fn check(&self) -> Result<(), CallError> {
        self.client.list((Caller::Own, None), &[("limit", "1")], 1).await.map(drop)
    }

    /// Makes a call with the user's token for the image. Uses the service login if no token is known, and repeats the
    /// call with it if Glance does not accept the token, or does not show the image to the user.
    async fn for_user<'a, T, R>(
        token: Option<&'a UserToken>,
        call: impl Fn(Caller<'a>) -> R,
    ) -> Result<T, CallError>
    where
        R: Future<Output = Result<T, CallError>>,
    {
        if let Some(token) = token {
            match call(Caller::Vouched(token)).await {
                Err(CallError::NotFound(_) | CallError::NotAuthorized(_)) => {}
                ended => return ended,
            }
        }
        call(Caller::Own).await
    }
}

/// The answer to a user whose request failed because of Glance.
pub(super) fn refusal(error: CallError) -> Error {
    let refusal = match &error {
        CallError::NotFound(_) => Refusal::not_found(error.to_string()),
        CallError::NotAuthorized(_) | CallError::TooLarge(_) => {
            Refusal::forbidden(error.to_string())
        }
        CallError::Refused { why, .. } => Refusal::bad_request(why.clone()),
        CallError::Conflict { why, .. } => Refusal::conflict(why.clone()),
        CallError::Unavailable { .. }
        | CallError::Damaged { .. }
        | CallError::Interrupted { .. }
        | CallError::Unexpected { .. } => Refusal::new(
            Kind::Unavailable,
            "The image service is temporarily unavailable. Try again.",
        )
        .with_retry_after(1)
        .with_internal(error),
    };
    refusal.into()
}
