//! The libvirt driver: carries out each step of the [`Hypervisor`] trait.

mod console;
mod inspect;
mod locks;
pub(crate) mod mark;
mod mdevs;
mod plug;
mod power;
mod save;
mod snapshot;
mod volumes;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kilonova_devices::Sysfs;
use kilonova_disks::Disks;
use kilonova_hypervisor::{
    ConsoleFuture, DefinedDomain, Definition, DomainState, DriverFuture, Error, FoundDisks,
    Hypervisor, HypervisorInfo, Mdevs, MigrationState, PluggedVolumes, Step,
};
use kilonova_ids::ServerId;
use kilonova_node_api::{
    ConsoleKind, DiskFormat, GuestVerb, OutgoingMigration, Peer, Usage, Volume, VolumeSource,
};
use tokio::sync::broadcast;
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::{Error as VirtError, ErrorNumber};

use crate::config::LibvirtConfig;
use crate::connection::{LONG, Link, QUICK, has_code};
use crate::files::layout;
use crate::migrate_out::OutgoingMigrations;
use crate::numa::numa_placement;
use crate::probe::{self, Versions};
use crate::state::{DomainStatus, Mark};
use crate::sys::Event;
use crate::tls;
use crate::xml::{self, HostProfile, Kept};

/// The libvirt driver of a host.
pub struct Driver {
    pub(crate) link: Link,
    pub(crate) host: Arc<HostProfile>,
    pub(crate) outgoing: OutgoingMigrations,
    /// Domain events, for `changed`.
    events: tokio::sync::Mutex<broadcast::Receiver<Event>>,
    disks: Disks,
    sysfs: Arc<dyn Sysfs>,
    versions: Mutex<Versions>,
    /// Servers whose disks come from another host, until their domain is defined here.
    fetched: Mutex<BTreeSet<ServerId>>,
    /// A server's is held while its domain is read and redefined, so that no newer definition is lost.
    defining: locks::Locks,
    mdevs: Option<mdevs::NodeDevices>,
}

impl Driver {
    /// Connects to libvirt and reads its capabilities. Fails if libvirt is unreachable or too old,
    /// or cannot satisfy the options.
    pub async fn open(
        config: LibvirtConfig,
        disks: Disks,
        sysfs: Arc<dyn Sysfs>,
    ) -> Result<Self, Error> {
        config.check().map_err(|why| Error::new(Step::Inspect, why))?;
        let link = Link::new(&config.connection_uri);
        let asked = config.clone();
        let (versions, host) = link
            .call(Step::Inspect, QUICK, move |connect| probe::probe(connect, &asked))
            .await?
            .map_err(|why| Error::new(Step::Inspect, why))?;
        tracing::info!(
            libvirt = %versions.dotted(versions.libvirt),
            hypervisor = %versions.dotted(versions.hypervisor),
            "connected to libvirt"
        );
        for why in tls::missing_certificates(&config, std::path::Path::new("/etc")) {
            tracing::warn!(%why, "live migration disabled: TLS files missing");
        }
        let mdevs = match versions.supports_mdevs() {
            Ok(()) => Some(mdevs::NodeDevices::new(link.clone())),
            Err(why) => {
                tracing::info!(%why, "mediated devices are created in sysfs, not by libvirt");
                None
            }
        };
        let (host, versions) = (Arc::new(host), Mutex::new(versions));
        let outgoing = OutgoingMigrations::default();
        let events = tokio::sync::Mutex::new(link.events());
        let (fetched, defining) = (Mutex::default(), locks::Locks::default());
        Ok(Self { link, host, outgoing, events, disks, sysfs, versions, fetched, defining, mdevs })
    }

    /// The current connection error to libvirt, for the operator; `None` while libvirt answers.
    pub fn connection_error(&self) -> Option<String> {
        self.link.connection_error()
    }

    /// The versions of the host's programs.
    pub fn versions(&self) -> Versions {
        self.lock_versions().clone()
    }

    fn lock_versions(&self) -> MutexGuard<'_, Versions> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call with the domain of a server. Fails if the domain does not exist.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        step: Step,
        limit: std::time::Duration,
        server: ServerId,
        call: impl Fn(&Connect, &Domain) -> Result<T, VirtError> + Send + 'static,
    ) -> Result<T, Error> {
        let found = self
            .link
            .call(step, limit, move |connect| match lookup(connect, server)? {
                None => Ok(None),
                Some(domain) => call(connect, &domain).map(Some),
            })
            .await?;
        found.ok_or_else(|| no_domain(step, server))
    }

    async fn find(&self, server: ServerId) -> Result<Option<DefinedDomain>, Error> {
        let Some((found, has_arrived)) = self.read(server).await? else { return Ok(None) };
        if has_arrived {
            self.receive_arrived(server).await?;
        }
        Ok(Some(found))
    }

    /// Reads a server's domain. True if the guest has arrived and still has its mark.
    async fn read(&self, server: ServerId) -> Result<Option<(DefinedDomain, bool)>, Error> {
        self.link
            .call(Step::Inspect, QUICK, move |connect| {
                let Some(domain) = lookup(connect, server)? else { return Ok(None) };
                let (status, xml) = status(&domain)?;
                let state = status.domain_state();
                let found = DefinedDomain { server, state, xml: xml.into() };
                Ok(Some((found, status.has_arrived())))
            })
            .await
    }

    /// Records the hardware of a guest that has arrived, and then removes its mark. If the agent crashes in between, the
    /// next look at the guest does both again. If the record fails, each later look tries again while the guest runs.
    async fn receive_arrived(&self, server: ServerId) -> Result<(), Error> {
        if let Err(error) = self.keep_hardware(server).await {
            // The guest runs, so that this must not fail the migration.
            tracing::warn!(%server, %error, "could not record the hardware of a migrated guest; retrying later");
            return self.mark_arrived(server, Some(Mark::Arrived)).await;
        }
        self.mark_arrived(server, None).await
    }

    /// Replaces the mark of a guest that has arrived.
    async fn mark_arrived(&self, server: ServerId, next: Option<Mark>) -> Result<(), Error> {
        let unmark = move |_: &Connect, domain: &Domain| {
            let is = status(domain)?.0;
            if is.has_arrived() && is.mark != next { mark::set(domain, next) } else { Ok(()) }
        };
        self.with(Step::Inspect, QUICK, server, unmark).await
    }

    async fn define_domain(&self, definition: &Definition) -> Result<(), Error> {
        let _alone = self.defining.take(definition.server).await;
        self.define_alone(definition).await
    }

    fn lock_fetched(&self) -> MutexGuard<'_, BTreeSet<ServerId>> {
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Defines a domain. The caller holds the server's lock of `defining`.
    async fn define_alone(&self, definition: &Definition) -> Result<(), Error> {
        let layout = layout(definition, self.disks.volumes(definition.server));
        let shared = self.host.config.guest_cpus.as_ref();
        let numa_placement = numa_placement(&*self.sysfs, definition, shared);
        let (server, not_rescued) = (definition.server, definition.config.rescue.is_none());
        let (host, definition) = (Arc::clone(&self.host), definition.clone());
        let fetched = self.lock_fetched().contains(&server);
        self.link
            .call(Step::Define, QUICK, move |connect| {
                let old = lookup(connect, definition.server)?;
                let old = old
                    .map(|domain| {
                        let (status, xml) = status(&domain)?;
                        let running = running_xml(&domain, status)?;
                        Ok::<_, VirtError>((status, xml, running))
                    })
                    .transpose()?;
                let kept = old.as_ref().map(|(_, xml, running)| {
                    // A guest that runs has its hardware from an earlier definition, or from another host.
                    kept(&host, running.as_ref().unwrap_or(xml), &definition, &layout)
                });
                let kept = kept.unwrap_or_else(|| {
                    let machine_type = definition.kept_machine_type.as_deref();
                    let kept = Kept::of_new(&host, machine_type, fetched);
                    if let (Some(had), None) = (machine_type, &kept.machine_type) {
                        tracing::warn!(
                            server = %definition.server,
                            "QEMU does not have the machine type {had} of the guest; it gets that of this host"
                        );
                    }
                    kept
                });
                let mark = old.as_ref().and_then(|(status, ..)| status.mark);
                let had_login = old.as_ref().is_some_and(|(_, xml, _)| volumes::has_login_in(xml));
                let has_some = had_login || volumes::has_login(&definition);
                let xml = xml::domain(&host, &definition, &layout, &numa_placement, mark, &kept);
                let domain = Domain::define_xml(connect, &xml)?;
                if old.is_some_and(|(status, ..)| status.domain_state().is_up()) {
                    plug::plug(&domain, &definition)?;
                }
                volumes::keep_secrets(connect, definition.server, Some(&definition), has_some)
            })
            .await?;
        self.lock_fetched().remove(&server);
        if not_rescued && let Err(error) = self.disks.end_rescue(server) {
            tracing::warn!(%server, %error, "could not remove the rescue disk");
        }
        Ok(())
    }

    /// Redefines the domain of a guest that has arrived with hardware that its definition here would not give it at its next
    /// start: with the machine type or the firmware of the host it came from.
    async fn keep_hardware(&self, server: ServerId) -> Result<(), Error> {
        let _alone = self.defining.take(server).await;
        let volumes = self.disks.volumes(server);
        let host = Arc::clone(&self.host);
        let changed = move |_: &Connect, domain: &Domain| {
            let (status, xml) = status(domain)?;
            let Some(running) = running_xml(domain, status)? else { return Ok(None) };
            let definition = Definition::from_xml(&xml).ok().filter(|definition| {
                let layout = layout(definition, volumes.clone());
                kept(&host, &running, definition, &layout) != kept(&host, &xml, definition, &layout)
            });
            Ok(definition)
        };
        match self.with(Step::Receive, QUICK, server, changed).await? {
            Some(definition) => self.define_alone(&definition).await,
            None => Ok(()),
        }
    }

    async fn machine_type_of(&self, server: ServerId) -> Result<Option<String>, Error> {
        let volumes = self.disks.volumes(server);
        let host = Arc::clone(&self.host);
        self.link
            .call(Step::Inspect, QUICK, move |connect| {
                let Some(domain) = lookup(connect, server)? else { return Ok(None) };
                let (status, xml) = status(&domain)?;
                let running = running_xml(&domain, status)?;
                let definition = Definition::from_xml(&xml).ok();
                let unnamed = definition.filter(|one| one.config.machine.machine_type.is_none());
                Ok(unnamed.and_then(|definition| {
                    let layout = layout(&definition, volumes.clone());
                    kept(&host, running.as_ref().unwrap_or(&xml), &definition, &layout).machine_type
                }))
            })
            .await
    }

    async fn undefine_with_disks(&self, server: ServerId) -> Result<(), Error> {
        let _alone = self.defining.take(server).await;
        self.lock_fetched().remove(&server);
        self.link
            .call(Step::Destroy, QUICK, move |connect| match lookup(connect, server)? {
                None => volumes::keep_secrets(connect, server, None, false),
                Some(domain) => {
                    let has_some =
                        status(&domain).map_or(true, |(_, xml)| volumes::has_login_in(&xml));
                    ignore_missing(power::undefine(&domain))?;
                    volumes::keep_secrets(connect, server, None, has_some)
                }
            })
            .await?;
        self.disks.remove(server).map_err(disks_error(Step::Destroy))
    }
}

/// The domain of a server, if it is defined.
pub(crate) fn lookup(connect: &Connect, server: ServerId) -> Result<Option<Domain>, VirtError> {
    match Domain::lookup_by_uuid_string(connect, &server.to_string()) {
        Ok(domain) => Ok(Some(domain)),
        Err(error) if has_code(&error, ErrorNumber::NoDomain) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Treats "no such domain" as success.
fn ignore_missing(result: Result<(), VirtError>) -> Result<(), VirtError> {
    match result {
        Err(error) if has_code(&error, ErrorNumber::NoDomain) => Ok(()),
        result => result,
    }
}

/// A domain's status and its persistent XML.
pub(crate) fn status(domain: &Domain) -> Result<(DomainStatus, String), VirtError> {
    let (state, reason) = domain.get_state()?;
    let xml = domain.get_xml_desc(virt_sys::VIR_DOMAIN_XML_INACTIVE)?;
    let saved = state == virt_sys::VIR_DOMAIN_SHUTOFF && domain.has_managed_save(0)?;
    let mark = Mark::of(&xml);
    Ok((
        DomainStatus {
            code: state,
            reason: u32::try_from(reason).unwrap_or_default(),
            saved,
            mark,
        },
        xml,
    ))
}

/// The XML of a guest that runs.
fn running_xml(domain: &Domain, status: DomainStatus) -> Result<Option<String>, VirtError> {
    status.domain_state().is_up().then(|| domain.get_xml_desc(0)).transpose()
}

/// The properties of a domain that its next definition keeps.
fn kept(host: &HostProfile, xml: &str, next: &Definition, layout: &xml::Layout) -> Kept {
    Kept::of(host, xml, next, layout, std::path::Path::exists)
}

pub(crate) fn domain_state(domain: &Domain) -> Result<DomainState, VirtError> {
    Ok(status(domain)?.0.domain_state())
}

pub(crate) fn no_domain(step: Step, server: ServerId) -> Error {
    Error::new(step, format!("server {server} has no domain on this host"))
}

fn disks_error(step: Step) -> impl Fn(kilonova_disks::Error) -> Error {
    move |error| Error::new(step, error.to_string())
}

fn state_name(state: DomainState) -> &'static str {
    match state {
        DomainState::Shutoff => "shut off",
        DomainState::Running => "running",
        DomainState::Paused => "paused",
        DomainState::Saved => "suspended to disk",
        DomainState::MigratedOut => "on another host",
        DomainState::Incoming => "waiting for an incoming migration",
    }
}

impl Hypervisor for Driver {
    fn info(&self) -> HypervisorInfo {
        self.lock_versions().info()
    }

    fn mdevs(&self) -> Option<&dyn Mdevs> {
        self.mdevs.as_ref().map(|mdevs| mdevs as &dyn Mdevs)
    }

    fn changed(&self) -> DriverFuture<'_, ServerId> {
        Box::pin(async {
            let mut events = self.events.lock().await;
            loop {
                match events.recv().await {
                    Ok(event) => {
                        if let Ok(server) = event.domain.to_string().parse() {
                            return Ok(server);
                        }
                    }
                    // Events were dropped: callers also poll all guests.
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                }
            }
        })
    }

    fn servers(&self) -> DriverFuture<'_, Vec<ServerId>> {
        Box::pin(self.link.call(Step::Inspect, QUICK, inspect::servers))
    }

    fn running(&self) -> DriverFuture<'_, Vec<ServerId>> {
        Box::pin(self.link.call(Step::Inspect, QUICK, inspect::running))
    }

    fn domain(&self, server: ServerId) -> DriverFuture<'_, Option<DefinedDomain>> {
        Box::pin(self.find(server))
    }

    fn find_disks<'a>(&'a self, definition: &'a Definition) -> DriverFuture<'a, FoundDisks> {
        Box::pin(async { Ok(self.disks.find(definition)) })
    }

    fn prepare<'a>(&'a self, definition: &'a Definition) -> DriverFuture<'a, ()> {
        Box::pin(async {
            self.lock_fetched().remove(&definition.server);
            self.disks.prepare(definition).await.map_err(disks_error(Step::Image))
        })
    }

    fn fetch<'a>(&'a self, definition: &'a Definition, from: &'a Peer) -> DriverFuture<'a, ()> {
        Box::pin(async {
            self.lock_fetched().insert(definition.server);
            self.disks.fetch(definition, from).await.map_err(disks_error(Step::Image))
        })
    }

    fn prepare_incoming_disks<'a>(
        &'a self,
        definition: &'a Definition,
        from: &'a Peer,
    ) -> DriverFuture<'a, ()> {
        Box::pin(async {
            self.lock_fetched().insert(definition.server);
            self.disks.prepare_incoming(definition, from).await.map_err(disks_error(Step::Image))
        })
    }

    fn prepare_rescue_disk<'a>(&'a self, definition: &'a Definition) -> DriverFuture<'a, ()> {
        Box::pin(async {
            self.disks.prepare_rescue_disk(definition).await.map_err(disks_error(Step::Image))
        })
    }

    fn give_secret<'a>(
        &'a self,
        server: ServerId,
        volume: &'a Volume,
        source: &'a VolumeSource,
    ) -> DriverFuture<'a, ()> {
        Box::pin(self.give_volume_secret(server, volume, source))
    }

    fn plug_volumes<'a>(&'a self, definition: &'a Definition) -> DriverFuture<'a, PluggedVolumes> {
        Box::pin(self.plug_guest_volumes(definition))
    }

    fn define<'a>(&'a self, definition: &'a Definition) -> DriverFuture<'a, ()> {
        Box::pin(self.define_domain(definition))
    }

    fn start(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            self.give_display(server).await?;
            self.power_on(Step::Start, server, virt_sys::VIR_DOMAIN_NONE).await
        })
    }

    fn start_paused(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            self.give_display(server).await?;
            self.power_on(Step::Start, server, virt_sys::VIR_DOMAIN_START_PAUSED).await
        })
    }

    fn stop(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.power_off(server))
    }

    fn reboot(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.restart(server))
    }

    fn pause(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.pause_guest(server))
    }

    fn unpause(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.unpause_guest(server))
    }

    fn suspend(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.save(server))
    }

    fn resume(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.restore(server))
    }

    fn prepare_incoming(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.await_incoming(server))
    }

    fn finish_incoming(&self, server: ServerId, state: DomainState) -> DriverFuture<'_, ()> {
        Box::pin(self.wait_until_arrived(server, state))
    }

    fn migrate_out<'a>(
        &'a self,
        server: ServerId,
        migration: &'a OutgoingMigration,
    ) -> DriverFuture<'a, MigrationState> {
        Box::pin(self.migrate_guest(server, migration))
    }

    fn abort_migration(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.abort_outgoing(server))
    }

    fn carry_out(&self, server: ServerId, verb: GuestVerb) -> DriverFuture<'_, ()> {
        Box::pin(self.carry_out_verb(server, verb))
    }

    fn snapshot(&self, server: ServerId, file: PathBuf) -> DriverFuture<'_, DiskFormat> {
        Box::pin(self.copy_disk(server, file))
    }

    fn open_console(
        &self,
        server: ServerId,
        kind: ConsoleKind,
        connect: bool,
    ) -> ConsoleFuture<'_> {
        Box::pin(self.console_of(server, kind, connect))
    }

    fn console(&self, server: ServerId) -> DriverFuture<'_, String> {
        Box::pin(self.console_log(server))
    }

    fn usage(&self, server: ServerId) -> DriverFuture<'_, Usage> {
        Box::pin(self.usage_of(server))
    }

    fn destroy(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            self.link
                .call(Step::Destroy, LONG, move |connect| match lookup(connect, server)? {
                    None => Ok(()),
                    Some(domain) => ignore_missing(power::destroy(&domain)),
                })
                .await?;
            self.outgoing.remove(server);
            Ok(())
        })
    }

    fn kept_machine_type(&self, server: ServerId) -> DriverFuture<'_, Option<String>> {
        Box::pin(self.machine_type_of(server))
    }

    fn undefine(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.undefine_with_disks(server))
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
