//! The connection to the controller: the epoch, retries, and the queue of observations.
//!
//! A new registration by this process must not look like fencing by another process: calls with the
//! old epoch end before the new registration is sent.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use kilonova_ids::{HostName, ImageId};
use kilonova_node_api::{
    Attempt, Batch, Chunk, ConsoleAnswer, ConsoleRequest, ControlPlane, DiskFormat, Observation,
    OrderResult, PasswordAnswer, PasswordRequest, Refusal, Registration, Reply, Session,
    VendordataAnswer, VendordataRequest,
};
use tokio::sync::{RwLock, mpsc};
use uuid::Uuid;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const MOST_OBSERVATIONS: usize = 256;

/// Why the agent must stop or restart its session.
#[derive(Debug)]
pub(super) enum Stop {
    Fenced,
    Rejected(String),
}

pub(super) struct Link {
    control: Arc<dyn ControlPlane>,
    host: HostName,
    epoch: RwLock<i64>,
    pauses: AtomicU64,
    /// Identifies this agent in its attempts to register.
    agent: Uuid,
    attempts: AtomicI64,
}

impl Link {
    pub(super) fn new(control: Arc<dyn ControlPlane>, host: HostName) -> Self {
        let (epoch, agent) = (RwLock::new(0), Uuid::new_v4());
        Self { control, host, epoch, pauses: AtomicU64::new(0), agent, attempts: AtomicI64::new(0) }
    }

    pub(super) fn host(&self) -> &HostName {
        &self.host
    }

    /// Registers, retrying until the controller answers.
    pub(super) async fn register(&self, registration: Registration) -> Result<Session, Stop> {
        let mut epoch = self.epoch.write().await;
        loop {
            let number = self.attempts.fetch_add(1, Ordering::Relaxed);
            let attempt = Some(Attempt { agent: self.agent, number });
            let registration = Registration { attempt, ..registration.clone() };
            let devices = registration.devices.len();
            let refusal = match self.control.register(registration).await {
                Ok(session) => {
                    *epoch = session.epoch;
                    self.pauses.store(0, Ordering::Relaxed);
                    tracing::info!(host = %self.host, epoch = session.epoch, devices, "registered");
                    return Ok(session);
                }
                Err(refusal) => refusal,
            };
            self.wait_or_stop(refusal).await?;
        }
    }

    /// Waits for documents newer than `since`. The result is boxed to keep the agent's idle state
    /// small.
    pub(super) async fn desired(&self, since: i64) -> Result<Box<Batch>, Stop> {
        let epoch = *self.epoch.read().await;
        loop {
            let refusal = match self.control.desired(&self.host, epoch, since).await {
                Ok(batch) => {
                    self.pauses.store(0, Ordering::Relaxed);
                    return Ok(Box::new(batch));
                }
                Err(refusal) => refusal,
            };
            Box::pin(self.wait_or_stop(refusal)).await?;
        }
    }

    /// Reports the workers' observations in order. Returns only when the agent must stop.
    pub(super) async fn report(&self, mut reports: mpsc::Receiver<Box<Observation>>) -> Stop {
        let mut batch = Vec::new();
        while reports.recv_many(&mut batch, MOST_OBSERVATIONS).await > 0 {
            let observations = batch.drain(..).map(|one| *one).collect();
            match Box::pin(self.observed(observations)).await {
                Ok(()) => {}
                Err(stop) => return stop,
            }
        }
        std::future::pending().await
    }

    async fn observed(&self, observations: Vec<Observation>) -> Result<(), Stop> {
        loop {
            let epoch = self.epoch.read().await;
            let answer = self.control.observed(&self.host, *epoch, observations.clone()).await;
            drop(epoch);
            match answer {
                Ok(()) => return Ok(()),
                Err(Refusal::Rejected(why)) => {
                    tracing::warn!(host = %self.host, %why, count = observations.len(), "the controller refused observations; dropping them");
                    return Ok(());
                }
                Err(refusal) => self.wait_or_stop(refusal).await?,
            }
        }
    }

    /// Reports the result of an order. A refused result is dropped.
    pub(super) async fn report_orders(&self, carried: OrderResult) -> Result<(), Stop> {
        loop {
            let epoch = self.epoch.read().await;
            let carried = vec![carried.clone()];
            let answer = self.control.report_orders(&self.host, *epoch, carried).await;
            drop(epoch);
            match answer {
                Ok(()) => return Ok(()),
                Err(Refusal::Rejected(why)) => {
                    tracing::warn!(host = %self.host, %why, "the controller refused the result of an order; dropping it");
                    return Ok(());
                }
                Err(refusal) => self.wait_or_stop(refusal).await?,
            }
        }
    }

    /// Reads a chunk of an image.
    pub(super) async fn image(&self, image: ImageId, offset: u64) -> Result<Chunk, Stop> {
        loop {
            let epoch = self.epoch.read().await;
            let answer = self.control.image(&self.host, *epoch, image, offset).await;
            drop(epoch);
            match answer {
                Ok(chunk) => return Ok(chunk),
                Err(refusal) => self.wait_or_stop(refusal).await?,
            }
        }
    }

    /// Uploads an image, retrying until the controller answers; an error is final.
    pub(super) async fn upload_image(
        &self,
        image: ImageId,
        format: DiskFormat,
        file: &Path,
    ) -> Result<(), String> {
        loop {
            let epoch = *self.epoch.read().await;
            match self.control.upload_image(&self.host, epoch, image, format, file.to_owned()).await
            {
                Ok(()) => return Ok(()),
                Err(Refusal::Unavailable(why)) => {
                    tracing::warn!(host = %self.host, %image, %why, "could not upload an image; retrying");
                    self.pause().await;
                }
                Err(Refusal::Rejected(why)) => return Err(why),
                Err(Refusal::Fenced) if epoch != *self.epoch.read().await => {}
                Err(Refusal::Fenced) => return Err(Refusal::Fenced.to_string()),
            }
        }
    }

    /// Forwards a guest's password request without retrying, because the guest repeats it.
    pub(super) async fn guest_password(
        &self,
        request: PasswordRequest,
    ) -> Result<PasswordAnswer, Refusal> {
        let epoch = *self.epoch.read().await;
        self.control.guest_password(&self.host, epoch, request).await
    }

    /// Requests the vendor data of a guest without retrying, because the guest repeats its request.
    pub(super) async fn vendordata(
        &self,
        request: VendordataRequest,
    ) -> Result<VendordataAnswer, Refusal> {
        let epoch = *self.epoch.read().await;
        self.control.vendordata(&self.host, epoch, request).await
    }

    /// Sends a reply. Errors are only logged, because the requester times out.
    pub(super) async fn reply(&self, reply: Reply) {
        let epoch = *self.epoch.read().await;
        if let Err(why) = self.control.report_replies(&self.host, epoch, vec![reply]).await {
            tracing::info!(host = %self.host, %why, "could not send the answer to a question of the controller");
        }
    }

    /// Answers a request for a console, for as long as the console is open. Errors are only logged,
    /// because the client times out.
    pub(super) async fn answer_console(&self, request: &ConsoleRequest, answer: ConsoleAnswer) {
        if let Err(why) = self.control.answer_console(&self.host, request, answer).await {
            tracing::info!(host = %self.host, server = %request.server, %why, "could not answer a request for a console");
        }
    }

    async fn wait_or_stop(&self, refusal: Refusal) -> Result<(), Stop> {
        match refusal {
            Refusal::Fenced => Err(Stop::Fenced),
            Refusal::Rejected(why) => Err(Stop::Rejected(why)),
            Refusal::Unavailable(why) => {
                tracing::warn!(host = %self.host, %why, "the controller is unavailable; retrying");
                self.pause().await;
                Ok(())
            }
        }
    }

    /// Waits before a retry, with exponential backoff until a call succeeds. The delay depends on
    /// the host, so that hosts spread out.
    pub(super) async fn pause(&self) {
        let count = self.pauses.fetch_add(1, Ordering::Relaxed);
        let most = FIRST_PAUSE.saturating_mul(1 << count.min(10)).min(LONGEST_PAUSE);
        let mut hasher = DefaultHasher::new();
        (&self.host, count).hash(&mut hasher);
        let part = (hasher.finish() % 512) as u32;
        tokio::time::sleep(most / 2 + most / 1024 * part).await;
    }
}
