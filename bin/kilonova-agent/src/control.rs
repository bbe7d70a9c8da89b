//! The controller, shared by the parts of the agent.
//!
//! Each registration starts a session; reads of images and of vendor data use the newest one.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use kilonova_disks::{Answers, Images, Reading};
use kilonova_ids::{HostName, ImageId, ServerId};
use kilonova_node_api::{
    Batch, Chunk, ConsoleAnswer, ConsoleRequest, ControlFuture, ControlPlane, DiskFormat,
    Observation, OrderResult, PasswordAnswer, PasswordRequest, Refusal, Registration, Reply,
    Session, VendordataAnswer, VendordataRequest,
};
use serde_json::{Map, Value};

/// Delay between attempts to read an image.
const PAUSE: Duration = Duration::from_secs(2);
/// Number of attempts.
const ATTEMPTS: u32 = 90;

/// A controller with its newest session.
pub struct Shared<C> {
    control: C,
    host: HostName,
    epoch: AtomicI64,
}

impl<C> Shared<C> {
    /// Wraps a controller for a host.
    pub fn new(control: C, host: HostName) -> Self {
        Self { control, host, epoch: AtomicI64::new(0) }
    }
}

impl<C: ControlPlane> Shared<C> {
    async fn chunk(&self, image: ImageId, offset: u64) -> Result<Chunk, String> {
        let mut attempts = 0;
        loop {
            let epoch = self.epoch.load(Ordering::Acquire);
            let refusal = match self.control.image(&self.host, epoch, image, offset).await {
                Ok(chunk) => return Ok(chunk),
                Err(refusal) => refusal,
            };
            attempts += 1;
            match refusal {
                Refusal::Fenced if epoch != self.epoch.load(Ordering::Acquire) => {}
                Refusal::Unavailable(why) if attempts < ATTEMPTS => {
                    tracing::warn!(%image, offset, %why, "could not read an image; retrying");
                    tokio::time::sleep(PAUSE).await;
                }
                refusal => return Err(refusal.to_string()),
            }
        }
    }

    /// The answers of the operator's vendor data services. Waits for an unavailable controller,
    /// because a config drive is created only once.
    async fn answers(&self, server: ServerId) -> Result<Map<String, Value>, String> {
        let mut attempts = 0;
        loop {
            let epoch = self.epoch.load(Ordering::Acquire);
            let request = VendordataRequest { server };
            let refusal = match self.control.vendordata(&self.host, epoch, request).await {
                Ok(VendordataAnswer::Are { answers }) => return Ok(answers),
                Ok(VendordataAnswer::Failed) => {
                    return Err("a service of [api] vendordata_dynamic_targets failed".to_owned());
                }
                Ok(VendordataAnswer::NoServer) => {
                    return Err("the server is no longer on this host".to_owned());
                }
                Err(refusal) => refusal,
            };
            attempts += 1;
            match refusal {
                Refusal::Fenced if epoch != self.epoch.load(Ordering::Acquire) => {}
                Refusal::Unavailable(why) if attempts < ATTEMPTS => {
                    tracing::warn!(%server, %why, "could not get vendor data; retrying");
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

    fn vendordata(&self, server: ServerId) -> Answers<'_> {
        Box::pin(self.answers(server))
    }
}

impl<C: ControlPlane> ControlPlane for Shared<C> {
    fn register(&self, registration: Registration) -> ControlFuture<'_, Session> {
        Box::pin(async move {
            let session = self.control.register(registration).await?;
            self.epoch.store(session.epoch, Ordering::Release);
            Ok(session)
        })
    }

    fn desired<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        since: i64,
    ) -> ControlFuture<'a, Batch> {
        self.control.desired(host, epoch, since)
    }

    fn observed<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        observations: Vec<Observation>,
    ) -> ControlFuture<'a, ()> {
        self.control.observed(host, epoch, observations)
    }

    fn report_orders<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        carried: Vec<OrderResult>,
    ) -> ControlFuture<'a, ()> {
        self.control.report_orders(host, epoch, carried)
    }

    fn image<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        image: ImageId,
        offset: u64,
    ) -> ControlFuture<'a, Chunk> {
        self.control.image(host, epoch, image, offset)
    }

    fn upload_image<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        image: ImageId,
        format: DiskFormat,
        file: PathBuf,
    ) -> ControlFuture<'a, ()> {
        self.control.upload_image(host, epoch, image, format, file)
    }

    fn answer_console<'a>(
        &'a self,
        host: &'a HostName,
        request: &'a ConsoleRequest,
        answer: ConsoleAnswer,
    ) -> ControlFuture<'a, ()> {
        self.control.answer_console(host, request, answer)
    }

    fn report_replies<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        replies: Vec<Reply>,
    ) -> ControlFuture<'a, ()> {
        self.control.report_replies(host, epoch, replies)
    }

    fn guest_password<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        request: PasswordRequest,
    ) -> ControlFuture<'a, PasswordAnswer> {
        self.control.guest_password(host, epoch, request)
    }

    fn vendordata<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        request: VendordataRequest,
    ) -> ControlFuture<'a, VendordataAnswer> {
        self.control.vendordata(host, epoch, request)
    }
}
