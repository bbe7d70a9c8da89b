//! The driver: each step of a hypervisor, carried out by libvirt.

mod look;
pub(crate) mod mark;
mod mdevs;
mod plug;
mod power;
mod save;
mod snapshot;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kilonova_devices::Sysfs;
use kilonova_disks::Disks;
use kilonova_hypervisor::{
    About, Answer, Definition, Error, Found, Hypervisor, Life, Mdevs, Step, Transfer,
};
use kilonova_ids::ServerId;
use kilonova_node_api::{Departure, DiskFormat, Peer, Usage};
use tokio::sync::broadcast;
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::{Error as VirtError, ErrorNumber};

use crate::config::Config;
use crate::connection::{LONG, Link, QUICK, is};
use crate::files::layout;
use crate::leave::Leaving;
use crate::life::{Mark, Seen};
use crate::place::place;
use crate::probe::{self, Versions};
use crate::sys::Event;
use crate::tls;
use crate::xml::{self, Host};

/// Guests by libvirt.
pub struct Driver {
    pub(crate) link: Link,
    pub(crate) host: Arc<Host>,
    pub(crate) leaving: Leaving,
    /// What happens to domains, for whoever asks what has changed.
    events: tokio::sync::Mutex<broadcast::Receiver<Event>>,
    disks: Disks,
    sysfs: Arc<dyn Sysfs>,
    versions: Mutex<Versions>,
    mdevs: Option<mdevs::NodeDevices>,
}

impl Driver {
    /// Connects to libvirt and asks what it can. It fails where libvirt is not there, or too old, or
    /// cannot be as the options want it.
    pub async fn open(config: Config, disks: Disks, sysfs: Arc<dyn Sysfs>) -> Result<Self, Error> {
        config.check().map_err(|why| Error::new(Step::Look, why))?;
        let link = Link::new(&config.connection_uri);
        let asked = config.clone();
        let (versions, host) = link
            .call(Step::Look, QUICK, move |connect| probe::probe(connect, &asked))
            .await?
            .map_err(|why| Error::new(Step::Look, why))?;
        tracing::info!(
            libvirt = %versions.text(versions.libvirt),
            hypervisor = %versions.text(versions.hypervisor),
            "libvirt is there"
        );
        for why in tls::lacking(&config, std::path::Path::new("/etc")) {
            tracing::warn!(%why, "no guest can leave or come until it is there");
        }
        let mdevs = match versions.keeps_mdevs() {
            Ok(()) => Some(mdevs::NodeDevices::new(link.clone())),
            Err(why) => {
                tracing::info!(%why, "mediated devices are made in sysfs and not by libvirt");
                None
            }
        };
        let (host, versions) = (Arc::new(host), Mutex::new(versions));
        let leaving = Leaving::default();
        let events = tokio::sync::Mutex::new(link.events());
        Ok(Self { link, host, leaving, events, disks, sysfs, versions, mdevs })
    }

    /// What is wrong with libvirt now, in words for an operator; nothing where it answers.
    pub fn trouble(&self) -> Option<String> {
        self.link.trouble()
    }

    /// What the host's programs are, and what follows from it.
    pub fn versions(&self) -> Versions {
        self.known().clone()
    }

    fn known(&self) -> MutexGuard<'_, Versions> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call with the domain of a server, which must be there.
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
        found.ok_or_else(|| unknown(step, server))
    }

    async fn find(&self, server: ServerId) -> Result<Option<Found>, Error> {
        self.link
            .call(Step::Look, QUICK, move |connect| {
                let Some(domain) = lookup(connect, server)? else { return Ok(None) };
                let (seen, xml) = seen(&domain)?;
                if seen.has_arrived() {
                    mark::set(&domain, None)?;
                }
                Ok(Some(Found { server, life: seen.life(), xml: xml.into() }))
            })
            .await
    }

    async fn make_known(&self, definition: &Definition) -> Result<(), Error> {
        let layout = layout(definition, self.disks.volumes(definition.server));
        let place = place(&*self.sysfs, definition);
        let (server, mended) = (definition.server, definition.rescue.is_none());
        let (host, definition) = (Arc::clone(&self.host), definition.clone());
        self.link
            .call(Step::Define, QUICK, move |connect| {
                let old = lookup(connect, definition.server)?;
                let old = old.map(|domain| seen(&domain)).transpose()?;
                let mark = old.as_ref().and_then(|(seen, _)| seen.mark);
                let xml = xml::domain(&host, &definition, &layout, &place, mark);
                let domain = Domain::define_xml(connect, &xml)?;
                if old.is_some_and(|(seen, _)| seen.life().is_up()) {
                    plug::plug(&domain, &definition)?;
                }
                Ok(())
            })
            .await?;
        if mended && let Err(error) = self.disks.end_rescue(server) {
            tracing::warn!(%server, %error, "what a guest was mended from is left over");
        }
        Ok(())
    }

    async fn forget(&self, server: ServerId) -> Result<(), Error> {
        self.link
            .call(Step::Destroy, QUICK, move |connect| match lookup(connect, server)? {
                None => Ok(()),
                Some(domain) => unless_gone(power::undefine(&domain)),
            })
            .await?;
        self.disks.remove(server).map_err(wrong(Step::Destroy))
    }
}

/// The domain of a server, if it is defined.
pub(crate) fn lookup(connect: &Connect, server: ServerId) -> Result<Option<Domain>, VirtError> {
    match Domain::lookup_by_uuid_string(connect, &server.to_string()) {
        Ok(domain) => Ok(Some(domain)),
        Err(error) if is(&error, ErrorNumber::NoDomain) => Ok(None),
        Err(error) => Err(error),
    }
}

/// It is well if what is to go is gone.
fn unless_gone(result: Result<(), VirtError>) -> Result<(), VirtError> {
    match result {
        Err(error) if is(&error, ErrorNumber::NoDomain) => Ok(()),
        result => result,
    }
}

/// What a domain is doing, and its XML as it is kept.
pub(crate) fn seen(domain: &Domain) -> Result<(Seen, String), VirtError> {
    let (state, reason) = domain.get_state()?;
    let xml = domain.get_xml_desc(virt_sys::VIR_DOMAIN_XML_INACTIVE)?;
    let saved = state == virt_sys::VIR_DOMAIN_SHUTOFF && domain.has_managed_save(0)?;
    let mark = Mark::of(&xml);
    Ok((Seen { state, reason: u32::try_from(reason).unwrap_or_default(), saved, mark }, xml))
}

pub(crate) fn life(domain: &Domain) -> Result<Life, VirtError> {
    Ok(seen(domain)?.0.life())
}

pub(crate) fn unknown(step: Step, server: ServerId) -> Error {
    Error::new(step, format!("server {server} has no domain on this host"))
}

fn wrong(step: Step) -> impl Fn(kilonova_disks::Error) -> Error {
    move |error| Error::new(step, error.to_string())
}

fn words(life: Life) -> &'static str {
    match life {
        Life::Off => "shut off",
        Life::Running => "running",
        Life::Paused => "paused",
        Life::Saved => "suspended to disk",
        Life::Left => "on another host",
        Life::Incoming => "awaited from another host",
    }
}

impl Hypervisor for Driver {
    fn about(&self) -> About {
        self.known().about()
    }

    fn mdevs(&self) -> Option<&dyn Mdevs> {
        self.mdevs.as_ref().map(|mdevs| mdevs as &dyn Mdevs)
    }

    fn changed(&self) -> Answer<'_, ServerId> {
        Box::pin(async {
            let mut events = self.events.lock().await;
            loop {
                match events.recv().await {
                    Ok(event) => {
                        if let Ok(server) = event.domain.to_string().parse() {
                            return Ok(server);
                        }
                    }
                    // More than can be told: whoever looks round finds out.
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                }
            }
        })
    }

    fn servers(&self) -> Answer<'_, Vec<ServerId>> {
        Box::pin(self.link.call(Step::Look, QUICK, look::servers))
    }

    fn running(&self) -> Answer<'_, Vec<ServerId>> {
        Box::pin(self.link.call(Step::Look, QUICK, look::running))
    }

    fn domain(&self, server: ServerId) -> Answer<'_, Option<Found>> {
        Box::pin(self.find(server))
    }

    fn prepare<'a>(&'a self, definition: &'a Definition) -> Answer<'a, ()> {
        Box::pin(async { self.disks.prepare(definition).await.map_err(wrong(Step::Image)) })
    }

    fn fetch<'a>(&'a self, definition: &'a Definition, from: &'a Peer) -> Answer<'a, ()> {
        Box::pin(async { self.disks.fetch(definition, from).await.map_err(wrong(Step::Image)) })
    }

    fn prepare_arrival<'a>(&'a self, definition: &'a Definition, from: &'a Peer) -> Answer<'a, ()> {
        Box::pin(async {
            self.disks.prepare_arrival(definition, from).await.map_err(wrong(Step::Image))
        })
    }

    fn prepare_rescue<'a>(&'a self, definition: &'a Definition) -> Answer<'a, ()> {
        Box::pin(async { self.disks.prepare_rescue(definition).await.map_err(wrong(Step::Image)) })
    }

    fn define<'a>(&'a self, definition: &'a Definition) -> Answer<'a, ()> {
        Box::pin(self.make_known(definition))
    }

    fn start(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.power_on(Step::Start, server))
    }

    fn stop(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.power_off(server))
    }

    fn reboot(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.restart(server))
    }

    fn pause(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.hold(server))
    }

    fn unpause(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.let_go(server))
    }

    fn suspend(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.save(server))
    }

    fn resume(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.restore(server))
    }

    fn receive(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.expect(server))
    }

    fn arrive(&self, server: ServerId, life: Life) -> Answer<'_, ()> {
        Box::pin(self.arrived(server, life))
    }

    fn depart<'a>(&'a self, server: ServerId, departure: &'a Departure) -> Answer<'a, Transfer> {
        Box::pin(self.send_away(server, departure))
    }

    fn stay(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.keep(server))
    }

    fn crash_dump(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.interrupt(server))
    }

    fn snapshot(&self, server: ServerId, file: PathBuf) -> Answer<'_, DiskFormat> {
        Box::pin(self.copy_disk(server, file))
    }

    fn console(&self, server: ServerId) -> Answer<'_, String> {
        Box::pin(self.said(server))
    }

    fn usage(&self, server: ServerId) -> Answer<'_, Usage> {
        Box::pin(self.used(server))
    }

    fn destroy(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(async move {
            self.link
                .call(Step::Destroy, LONG, move |connect| match lookup(connect, server)? {
                    None => Ok(()),
                    Some(domain) => unless_gone(power::destroy(&domain)),
                })
                .await?;
            self.leaving.forget(server);
            Ok(())
        })
    }

    fn undefine(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.forget(server))
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
