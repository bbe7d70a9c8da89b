//! The connection of the agents to the services. Services can be replaced while the agents run:
//! calls to the old services then fail like broken connections.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kilonova_ids::{HostName, ImageId};
use kilonova_node_api::{
    Batch, Chunk, ConsoleAnswer, ConsoleRequest, ControlFuture, ControlPlane, DiskFormat,
    Observation, OrderResult, Outcome, PasswordAnswer, PasswordRequest, Refusal, Registration,
    Reply, Session, VendordataAnswer, VendordataRequest,
};
use tokio::sync::watch;

type Services = Arc<dyn ControlPlane>;

pub struct SwitchableLink {
    services: watch::Sender<Services>,
    loses_reports: AtomicBool,
    lost_reports: AtomicUsize,
}

impl SwitchableLink {
    pub fn new(services: Services) -> Self {
        let services = watch::Sender::new(services);
        Self { services, loses_reports: AtomicBool::new(false), lost_reports: AtomicUsize::new(0) }
    }

    /// Sends calls to other services from now on.
    pub fn switch(&self, services: Services) {
        self.services.send_replace(services);
    }

    /// From now on, accepts reports without forwarding them, as a database does that loses its last commits. Or forwards
    /// them again.
    pub fn lose_reports(&self, loses: bool) {
        self.loses_reports.store(loses, Ordering::SeqCst);
    }

    /// The number of lost reports of a document's or an order's result.
    pub fn lost_reports(&self) -> usize {
        self.lost_reports.load(Ordering::SeqCst)
    }

    fn loses(&self, results: usize) -> bool {
        let loses = self.loses_reports.load(Ordering::SeqCst);
        if loses {
            self.lost_reports.fetch_add(results, Ordering::SeqCst);
        }
        loses
    }

    fn current(&self) -> (Services, watch::Receiver<Services>) {
        let mut end = self.services.subscribe();
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
        let is_result = |one: &&Observation| !matches!(one.outcome, Outcome::Working { .. });
        if self.loses(observations.iter().filter(is_result).count()) {
            return Box::pin(async { Ok(()) });
        }
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
        if self.loses(carried.len()) {
            return Box::pin(async { Ok(()) });
        }
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
