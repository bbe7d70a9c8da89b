//! The connection of the agents to the services. Services can be replaced while the agents run:
//! calls to the old services then fail like broken connections.

use std::path::PathBuf;
use std::sync::Arc;

use kilonova_ids::{HostName, ImageId};
use kilonova_node_api::{
    Batch, Chunk, ConsoleAnswer, ConsoleRequest, ControlFuture, ControlPlane, DiskFormat,
    Observation, OrderResult, PasswordAnswer, PasswordRequest, Refusal, Registration, Reply,
    Session, VendordataAnswer, VendordataRequest,
};
use tokio::sync::watch;

type Services = Arc<dyn ControlPlane>;

pub struct SwitchableLink(watch::Sender<Services>);

impl SwitchableLink {
    pub fn new(services: Services) -> Self {
        Self(watch::Sender::new(services))
    }

    /// Sends calls to other services from now on.
    pub fn switch(&self, services: Services) {
        self.0.send_replace(services);
    }

    fn current(&self) -> (Services, watch::Receiver<Services>) {
        let mut end = self.0.subscribe();
        let services = Arc::clone(&end.borrow_and_update());
        (services, end)
    }
}

async fn or_disconnected<T>(
    mut end: watch::Receiver<Services>,
    answer: ControlFuture<'_, T>,
) -> Result<T, Refusal> {
    tokio::select! {
        biased;
        _ = end.changed() => Err(Refusal::Unavailable("the connection is gone".into())),
        answer = answer => answer,
    }
}

impl ControlPlane for SwitchableLink {
    fn register(&self, registration: Registration) -> ControlFuture<'_, Session> {
        let (services, end) = self.current();
        Box::pin(async move { or_disconnected(end, services.register(registration)).await })
    }

    fn desired<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        since: i64,
    ) -> ControlFuture<'a, Batch> {
        let (services, end) = self.current();
        Box::pin(async move { or_disconnected(end, services.desired(host, epoch, since)).await })
    }

    fn observed<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        observations: Vec<Observation>,
    ) -> ControlFuture<'a, ()> {
        let (services, end) = self.current();
        Box::pin(
            async move { or_disconnected(end, services.observed(host, epoch, observations)).await },
        )
    }

    fn report_orders<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        carried: Vec<OrderResult>,
    ) -> ControlFuture<'a, ()> {
        let (services, end) = self.current();
        Box::pin(
            async move { or_disconnected(end, services.report_orders(host, epoch, carried)).await },
        )
    }

    fn image<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        image: ImageId,
        offset: u64,
    ) -> ControlFuture<'a, Chunk> {
        let (services, end) = self.current();
        Box::pin(
            async move { or_disconnected(end, services.image(host, epoch, image, offset)).await },
        )
    }

    fn upload_image<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        image: ImageId,
        format: DiskFormat,
        file: PathBuf,
    ) -> ControlFuture<'a, ()> {
        let (services, end) = self.current();
        Box::pin(async move {
            or_disconnected(end, services.upload_image(host, epoch, image, format, file)).await
        })
    }

    fn guest_password<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        request: PasswordRequest,
    ) -> ControlFuture<'a, PasswordAnswer> {
        let (services, end) = self.current();
        Box::pin(async move {
            or_disconnected(end, services.guest_password(host, epoch, request)).await
        })
    }

    fn vendordata<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        request: VendordataRequest,
    ) -> ControlFuture<'a, VendordataAnswer> {
        let (services, end) = self.current();
        Box::pin(
            async move { or_disconnected(end, services.vendordata(host, epoch, request)).await },
        )
    }

    fn answer_console<'a>(
        &'a self,
        host: &'a HostName,
        request: &'a ConsoleRequest,
        answer: ConsoleAnswer,
    ) -> ControlFuture<'a, ()> {
        let (services, end) = self.current();
        Box::pin(async move {
            or_disconnected(end, services.answer_console(host, request, answer)).await
        })
    }

    fn report_replies<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        replies: Vec<Reply>,
    ) -> ControlFuture<'a, ()> {
        let (services, end) = self.current();
        Box::pin(async move {
            or_disconnected(end, services.report_replies(host, epoch, replies)).await
        })
    }
}
