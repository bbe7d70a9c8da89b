//! The control plane, as the parts of the agent share it.
//!
//! The node tells by its registrations which session it has; whoever reads images goes by the newest.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use kilonova_disks::{Images, Reading};
use kilonova_ids::ImageId;
use kilonova_node_api::{
    Answer, Batch, Carried, Chunk, ControlPlane, DiskFormat, Observation, Refusal, Registration,
    Reply, Session,
};

/// Between two tries to read of an image.
const PAUSE: Duration = Duration::from_secs(2);
/// Tries.
const TRIES: u32 = 90;

/// A control plane whose newest session is known.
pub struct Shared<C> {
    control: C,
    host: String,
    epoch: AtomicI64,
}

impl<C> Shared<C> {
    /// For the node of a host.
    pub fn new(control: C, host: String) -> Self {
        Self { control, host, epoch: AtomicI64::new(0) }
    }
}

impl<C: ControlPlane> Shared<C> {
    async fn chunk(&self, image: ImageId, offset: u64) -> Result<Chunk, String> {
        let mut tries = 0;
        loop {
            let epoch = self.epoch.load(Ordering::Acquire);
            let refusal = match self.control.image(&self.host, epoch, image, offset).await {
                Ok(chunk) => return Ok(chunk),
                Err(refusal) => refusal,
            };
            tries += 1;
            match refusal {
                Refusal::Fenced if epoch != self.epoch.load(Ordering::Acquire) => {}
                Refusal::Unavailable(why) if tries < TRIES => {
                    tracing::warn!(%image, offset, %why, "an image cannot be read; trying again");
                    tokio::time::sleep(PAUSE).await;
                }
                refusal => return Err(refusal.to_string()),
            }
        }
    }
}

impl<C: ControlPlane> Images for Shared<C> {
    fn read(&self, image: ImageId, offset: u64) -> Reading<'_> {
        Box::pin(self.chunk(image, offset))
    }
}

impl<C: ControlPlane> ControlPlane for Shared<C> {
    fn register(&self, registration: Registration) -> Answer<'_, Session> {
        Box::pin(async move {
            let session = self.control.register(registration).await?;
            self.epoch.store(session.epoch, Ordering::Release);
            Ok(session)
        })
    }

    fn desired<'a>(&'a self, host: &'a str, epoch: i64, since: i64) -> Answer<'a, Batch> {
        self.control.desired(host, epoch, since)
    }

    fn observed<'a>(
        &'a self,
        host: &'a str,
        epoch: i64,
        observations: Vec<Observation>,
    ) -> Answer<'a, ()> {
        self.control.observed(host, epoch, observations)
    }

    fn carried_out<'a>(
        &'a self,
        host: &'a str,
        epoch: i64,
        carried: Vec<Carried>,
    ) -> Answer<'a, ()> {
        self.control.carried_out(host, epoch, carried)
    }

    fn image<'a>(
        &'a self,
        host: &'a str,
        epoch: i64,
        image: ImageId,
        offset: u64,
    ) -> Answer<'a, Chunk> {
        self.control.image(host, epoch, image, offset)
    }

    fn keep_image<'a>(
        &'a self,
        host: &'a str,
        epoch: i64,
        image: ImageId,
        format: DiskFormat,
        file: PathBuf,
    ) -> Answer<'a, ()> {
        self.control.keep_image(host, epoch, image, format, file)
    }

    fn replied<'a>(&'a self, host: &'a str, epoch: i64, replies: Vec<Reply>) -> Answer<'a, ()> {
        self.control.replied(host, epoch, replies)
    }
}
