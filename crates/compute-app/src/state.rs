//! The state that every handler of the compute API receives: handles that are cheap to clone.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use kilonova_accelerator::HostNotifier;
use kilonova_access::Enforcer;
use kilonova_changes::{Progress, Topic};
use kilonova_compute_db::documents::{self, Wake};
use kilonova_compute_db::silence;
use kilonova_compute_scheduler::fleet::{DOWN_AFTER, Fleet};
use kilonova_compute_scheduler::packer::Packer;
use kilonova_compute_scheduler::{Intended, Reasons, Scope};
use kilonova_ids::{HostName, ServerId};
use kilonova_image::Images;
use kilonova_node_api::Desired;
use kilonova_placement::World;
use kilonova_store::{Store, Tx};
use kilonova_wire::{Dialect, time};
use tokio::sync::Notify;

use crate::attention::report::Examiner;
use crate::boot::Tally;
use crate::consoles::Consoles;
use crate::image_numbers::SeenImageNumbers;
use crate::images::ImageService;
use crate::images::glance::CloudGlance;
use crate::ports::external::CloudNeutron;
use crate::ports::{Networks, Own};
use crate::vendordata::DynamicVendordata;
use crate::volumes::Volumes;
use crate::{Error, Options, follow, volumes};

/// The compute service.
#[derive(Clone)]
pub struct Compute {
    /// The database.
    pub store: Store,
    /// The in-memory copy of providers.
    pub world: World,
    /// The in-memory copy of hosts.
    pub fleet: Fleet,
    /// The hosts by the cost of their states, and the learned demand.
    pub packer: Packer,
    /// The places that boots have chosen and not yet claimed.
    pub intended: Intended,
    /// Counters of plans and claims.
    pub tally: Tally,
    /// The operator's settings.
    pub options: Arc<Options>,
    /// The image service.
    pub images: ImageService,
    /// The networks that servers are connected to.
    pub networks: Arc<dyn Networks>,
    /// The Cinder of the cloud; servers have no volumes without one.
    pub volumes: Option<Arc<Volumes>>,
    /// The Neutron of the cloud, if it is the network service; `networks` is then the same object.
    pub neutron: Option<Arc<CloudNeutron>>,
    /// The policy.
    pub policy: Enforcer,
    /// The image service's policy, for boots: a server starts from images that its caller may read.
    pub image_policy: Enforcer,
    /// Catches up with other controllers, if there can be any.
    pub others: Option<Progress>,
    /// Signalled when networks change, so that the hosts are notified immediately.
    pub network_news: Arc<Notify>,
    /// The consoles that are open or being opened at this controller.
    pub consoles: Consoles,
    /// The operator's services that provide vendor data to guests, if any.
    pub vendordata: Option<Arc<DynamicVendordata>>,
    /// The EC2 numbers of images.
    pub seen_image_numbers: SeenImageNumbers,
    /// The id of this controller: a UUID that belongs to one state directory, and so to at most one process at a time.
    pub controller: Arc<str>,
    /// The last examination of the cloud.
    pub examiner: Examiner,
    /// The reasons why servers have no place, for a transaction that runs again to record them.
    pub reasons: Reasons,
}

impl Compute {
    /// Creates the service over a migrated database and a loaded world.
    ///
    /// # Errors
    /// Store errors only.
    pub async fn open(store: Store, world: World) -> Result<Self, Error> {
        let policy = Enforcer::of(crate::RULES, Dialect::Compute);
        let image_policy = Enforcer::of(kilonova_image::RULES, Dialect::Image);
        let (fleet, packer, options, network_news, consoles, reasons) = Default::default();
        let (intended, tally) = Default::default();
        let examiner = Examiner::default();
        let compute = Self {
            store,
            world,
            fleet,
            packer,
            intended,
            tally,
            options,
            images: ImageService::Elsewhere,
            networks: Arc::new(Own),
            volumes: None,
            neutron: None,
            policy,
            image_policy,
            others: None,
            network_news,
            consoles,
            vendordata: None,
            seen_image_numbers: SeenImageNumbers::default(),
            controller: ServerId::new_v4().to_string().into(),
            examiner,
            reasons,
        };
        follow::read_hosts(&compute).await?;
        follow::request_reports_at_start(&compute).await;
        Ok(compute)
    }

    /// Sets the operator's options.
    #[must_use]
    pub fn with_options(mut self, options: Options) -> Self {
        self.options = Arc::new(options);
        self
    }

    /// Sets the id of the controller that this process continues.
    #[must_use]
    pub fn with_controller(mut self, id: &str) -> Self {
        self.controller = id.into();
        self
    }

    /// Sets the operator's services that provide vendor data to guests.
    #[must_use]
    pub fn with_vendordata(mut self, vendordata: Option<Arc<DynamicVendordata>>) -> Self {
        self.vendordata = vendordata;
        self
    }

    /// Sets the operator's policy, in place of upstream's defaults.
    #[must_use]
    pub fn with_policy(mut self, policy: Enforcer) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the image service's policy, if that service runs in another process.
    #[must_use]
    pub fn with_image_policy(mut self, policy: Enforcer) -> Self {
        self.image_policy = policy;
        self
    }

    /// Sets the images that hosts may fetch, and their policy.
    #[must_use]
    pub fn with_images(mut self, images: Images) -> Self {
        self.image_policy = images.policy().clone();
        self.images = ImageService::Own(images);
        self
    }

    /// Sets the Glance of the cloud as the image service.
    #[must_use]
    pub fn with_glance(mut self, glance: CloudGlance) -> Self {
        self.images = ImageService::Glance(Arc::new(glance));
        self
    }

    /// Sets the Cinder of the cloud.
    #[must_use]
    pub fn with_cinder(mut self, volumes: Volumes) -> Self {
        self.volumes = Some(Arc::new(volumes));
        self
    }

    /// A handle for one transaction in which servers are placed: [`Compute::write`] runs the transaction
    /// again with the reasons for servers that found no place.
    pub fn explaining(&self) -> Self {
        Self { reasons: Reasons::to_determine(), ..self.clone() }
    }

    /// Sets the Neutron of the cloud as the network service.
    #[must_use]
    pub fn with_neutron(mut self, neutron: CloudNeutron) -> Self {
        let neutron = Arc::new(neutron);
        self.networks = Arc::clone(&neutron) as _;
        self.neutron = Some(neutron);
        self
    }

    /// Sets the progress of the process's follower of other controllers.
    #[must_use]
    pub fn following(mut self, others: Option<Progress>) -> Self {
        self.others = others;
        self
    }

    /// Brings memory up to date with every commit that is visible now: those of this controller, whose
    /// hooks may not have run, and those of others.
    pub async fn catch_up(&self) {
        self.store.settled().await;
        if let Some(others) = &self.others {
            others.catch_up().await;
        }
    }

    /// Runs `work`, which must use this handle, as one transaction. If a server in it finds no
    /// place, all of it is rolled back. A recent commit may have freed capacity that memory does
    /// not show yet, so `work` runs again after catching up. If there is still no place, the reason
    /// is determined, and `work` runs again to record it.
    pub async fn write<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnMut(&mut Tx<'_>) -> Result<T, Error> + Send + 'static,
    {
        self.write_on(&[], work).await
    }

    /// Like [`Compute::write`], for work that writes the rows with these keys ([`Store::write_on`]).
    ///
    /// [`Store::write_on`]: kilonova_store::Store::write_on
    pub async fn write_on<T, F>(&self, rows: &[&str], work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnMut(&mut Tx<'_>) -> Result<T, Error> + Send + 'static,
    {
        let work = Arc::new(Mutex::new(work));
        let mut has_caught_up = false;
        loop {
            let work = Arc::clone(&work);
            let run =
                move |tx: &mut Tx<'_>| (work.lock().unwrap_or_else(PoisonError::into_inner))(tx);
            match self.store.write_on(rows, run).await {
                Err(Error::Unexplained(_)) if !has_caught_up => {
                    has_caught_up = true;
                    self.catch_up().await;
                }
                Err(Error::Unexplained(unplaced)) => {
                    self.reasons.determine(&unplaced, self.scope())
                }
                ended => return ended,
            }
        }
    }

    /// The hosts and the rules of scheduling decisions.
    pub(crate) fn scope(&self) -> Scope<'_> {
        Scope { fleet: &self.fleet, packer: &self.packer, rules: &self.options.scheduler }
    }

    /// Records the result of a build on a host, for the weighers of every controller, on commit.
    pub(crate) fn note_build(
        &self,
        tx: &mut Tx<'_>,
        host: &HostName,
        succeeded: bool,
    ) -> Result<(), Error> {
        let Some(host) = self.fleet.by_name(host) else { return Ok(()) };
        let before = host.build_failures();
        let failures = if succeeded { 0 } else { before.saturating_add(1) };
        if failures != before {
            kilonova_changes::append(tx, Topic::Builds, &host.name, failures)?;
            tx.on_commit(move || host.record_build_failures(failures));
        }
        Ok(())
    }

    /// Like [`Compute::host_is_lost`], for a request that may follow an operator's change at another
    /// controller: the row also decides whether the host was forced down.
    pub(crate) fn row_is_lost(
        &self,
        tx: &mut Tx<'_>,
        host: &HostName,
        now: Timestamp,
    ) -> Result<bool, Error> {
        if silence::of(tx, host)?.is_some_and(|silence| silence.forced_down) {
            return Ok(true);
        }
        self.host_is_lost(tx, host, now)
    }

    /// True if a known host is down, so that operations no longer wait for it.
    ///
    /// The memory of a suspended process is stale, and so is that of a controller whose hosts poll another one. Memory
    /// alone can therefore only prove that a host is up; the row decides whether it is down.
    pub(crate) fn host_is_lost(
        &self,
        tx: &mut Tx<'_>,
        host: &HostName,
        now: Timestamp,
    ) -> Result<bool, Error> {
        if self.fleet.by_name(host).is_none_or(|host| host.is_up(now)) {
            return Ok(false);
        }
        Ok(match silence::of(tx, host)? {
            Some(silence) => silence.forced_down || silence.since >= DOWN_AFTER,
            None => false,
        })
    }

    /// True if an agent has reported this trait of its host. An unknown host is assumed to have it.
    pub(crate) fn host_has_trait(&self, host: &HostName, name: &str) -> bool {
        let Some(host) = self.fleet.by_name(host) else { return true };
        let snapshot = self.world.snapshot();
        let root =
            snapshot.tree(host.root).and_then(|tree| tree.providers().find(|p| p.id == host.root));
        root.is_some_and(|root| root.traits.iter().any(|has| **has == *name))
    }

    /// True if an operator has forced a host down: nothing runs there.
    pub(crate) fn host_is_declared_dead(&self, host: &HostName) -> bool {
        self.fleet.by_name(host).is_some_and(|host| host.is_forced_down())
    }

    /// The zone of a server's host; empty for a server without a host.
    pub fn zone_of(&self, host: Option<&HostName>) -> String {
        let host = host.and_then(|host| self.fleet.by_name(host));
        host.map(|host| host.zone()).unwrap_or_default()
    }

    /// The state of a server's host in Nova's terms (`HostStatus`): `DOWN` if an operator forced it
    /// down, `MAINTENANCE` if it is disabled, `UNKNOWN` if the host has not reported recently.
    pub fn host_status(&self, host: &HostName) -> &'static str {
        match self.fleet.by_name(host) {
            None => "",
            Some(host) if host.is_forced_down() => "DOWN",
            Some(host) if !host.is_enabled() => "MAINTENANCE",
            Some(host) if host.is_up(time::now()) => "UP",
            Some(_) => "UNKNOWN",
        }
    }

    /// True if a host has reported recently.
    pub fn host_is_up(&self, host: &HostName) -> bool {
        self.fleet.by_name(host).is_some_and(|host| host.is_up(time::now()))
    }
}

impl Wake for Compute {
    fn wake_on_commit(&self, tx: &mut Tx<'_>, host: &HostName, generation: i64) {
        if let Some(host) = self.fleet.by_name(host) {
            tx.on_commit(move || host.publish(generation));
        }
    }

    fn with_volumes(
        &self,
        tx: &mut Tx<'_>,
        host: &HostName,
        server: ServerId,
        desired: &Desired,
    ) -> Result<Option<(Desired, bool)>, kilonova_compute_db::Error> {
        match volumes::complete(tx, self, host, server, desired) {
            Ok(composed) => Ok(composed),
            Err(Error::Store(error)) => Err(error.into()),
            Err(other) => Err(kilonova_compute_db::servers::shape(other.to_string())),
        }
    }
}

impl HostNotifier for Compute {
    fn next(&self, tx: &mut Tx<'_>, host: &HostName) -> Result<Option<i64>, kilonova_store::Error> {
        let next = documents::next_of(tx, host)?;
        if let Some(generation) = next {
            self.wake_on_commit(tx, host, generation);
        }
        Ok(next)
    }
}
