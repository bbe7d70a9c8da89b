//! Two controllers over one PostgreSQL database, each of which follows the other's commits, and hosts
//! whose requests alternate between them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kilonova_changes::Follower;
use kilonova_compute_app::Compute;
use kilonova_compute_nodes::Link;
use kilonova_ids::{HostName, ImageId};
use kilonova_node::topology::Topology;
use kilonova_node_api::{
    Batch, Chunk, ConsoleAnswer, ConsoleRequest, ControlFuture, ControlPlane, DiskFormat,
    Observation, OrderResult, PasswordAnswer, PasswordRequest, Registration, Reply, Session,
    VendordataAnswer, VendordataRequest,
};
use kilonova_placement::Providers;
use kilonova_store::testing::CrashPlan;
use kilonova_testkit::glance::FakeGlance;
use tokio::task::JoinSet;

use super::cloud::client;
use super::{Client, Cloud, RunningCloud};

/// A controller in addition to that of [`RunningCloud`].
pub struct Controller {
    pub compute: Compute,
    pub client: Client,
}

impl Controller {
    pub async fn open(cloud: &Cloud) -> Self {
        let compute = cloud.services(CrashPlan::default()).await;
        Self { client: client(compute.clone()), compute }
    }

    pub fn link(&self) -> Link {
        Link(self.compute.clone())
    }
}

/// Two controllers that follow each other.
pub struct Controllers {
    pub cloud: Cloud,
    /// The first controller, and the hosts.
    pub running: RunningCloud,
    pub other: Controller,
    followers: JoinSet<()>,
}

impl Controllers {
    /// Two controllers that do not follow each other yet, without hosts; `None` without PostgreSQL.
    pub async fn apart(topology: Topology) -> Option<Self> {
        Self::of(Cloud::all(topology).await.pop()?).await
    }

    /// Two controllers of this cloud, as [`Controllers::apart`].
    async fn of(cloud: Cloud) -> Option<Self> {
        if cloud.name != "postgresql" {
            kilonova_testkit::skip("two controllers need PostgreSQL");
            return None;
        }
        let running = RunningCloud::new(&cloud, CrashPlan::default()).await;
        let other = Controller::open(&cloud).await;
        running.connect(Arc::new(Alternating {
            controllers: [Link(running.compute.clone()), other.link()],
            calls: AtomicUsize::new(0),
        }));
        Some(Self { cloud, running, other, followers: JoinSet::new() })
    }

    /// Two controllers that follow each other, and hosts whose requests alternate between them.
    pub async fn with_hosts(topology: Topology) -> Option<Self> {
        Self::apart(topology).await?.start_hosts().await
    }

    /// As [`Controllers::with_hosts`], with the images in a Glance.
    pub async fn with_glance(topology: Topology) -> Option<(Self, FakeGlance)> {
        let mut cloud = Cloud::all(topology).await.pop()?;
        let glance = cloud.start_glance().await;
        Some((Self::of(cloud).await?.start_hosts().await?, glance))
    }

    async fn start_hosts(self) -> Option<Self> {
        let mut both = self;
        both.follow().await;
        for host in &both.cloud.topology.hosts {
            both.running.nodes.start(host);
        }
        both.running.wait_for_hosts().await;
        Some(both)
    }

    /// Starts the followers.
    pub async fn follow(&mut self) {
        for compute in [&mut self.running.compute, &mut self.other.compute] {
            let mut follower = Follower::open(&self.cloud.store).await.expect("the log is read");
            compute.world.load(&self.cloud.store).await.expect("the providers are loaded");
            follower.subscribe(Arc::new(Providers::new(&compute.world, &self.cloud.store)));
            follower.subscribe(Arc::new(compute.clone()));
            compute.others = Some(follower.progress());
            self.followers.spawn(async move { match follower.run().await {} });
        }
        self.other.client = client(self.other.compute.clone());
        self.running.renew_client();
    }

    pub fn links(&self) -> [Link; 2] {
        [Link(self.running.compute.clone()), self.other.link()]
    }
}

/// A round-robin balancer: consecutive calls reach different controllers.
struct Alternating {
    controllers: [Link; 2],
    calls: AtomicUsize,
}

impl Alternating {
    fn next(&self) -> &Link {
        &self.controllers[self.calls.fetch_add(1, Ordering::Relaxed) % 2]
    }
}

impl ControlPlane for Alternating {
    fn register(&self, registration: Registration) -> ControlFuture<'_, Session> {
        self.next().register(registration)
    }

    fn desired<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        since: i64,
    ) -> ControlFuture<'a, Batch> {
        self.next().desired(host, epoch, since)
    }

    fn observed<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        observations: Vec<Observation>,
    ) -> ControlFuture<'a, ()> {
        self.next().observed(host, epoch, observations)
    }

    fn report_orders<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        results: Vec<OrderResult>,
    ) -> ControlFuture<'a, ()> {
        self.next().report_orders(host, epoch, results)
    }

    fn image<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        image: ImageId,
        offset: u64,
    ) -> ControlFuture<'a, Chunk> {
        self.next().image(host, epoch, image, offset)
    }

    fn upload_image<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        image: ImageId,
        format: DiskFormat,
        file: PathBuf,
    ) -> ControlFuture<'a, ()> {
        self.next().upload_image(host, epoch, image, format, file)
    }

    fn guest_password<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        request: PasswordRequest,
    ) -> ControlFuture<'a, PasswordAnswer> {
        self.next().guest_password(host, epoch, request)
    }

    fn vendordata<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        request: VendordataRequest,
    ) -> ControlFuture<'a, VendordataAnswer> {
        self.next().vendordata(host, epoch, request)
    }

    fn answer_console<'a>(
        &'a self,
        host: &'a HostName,
        request: &'a ConsoleRequest,
        answer: ConsoleAnswer,
    ) -> ControlFuture<'a, ()> {
        // The host bypasses the balancer.
        let consoles = |link: &&Link| link.0.consoles.expects(request.id);
        let asked = self.controllers.iter().find(consoles).unwrap_or(&self.controllers[0]);
        asked.answer_console(host, request, answer)
    }

    fn report_replies<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        replies: Vec<Reply>,
    ) -> ControlFuture<'a, ()> {
        self.next().report_replies(host, epoch, replies)
    }
}
