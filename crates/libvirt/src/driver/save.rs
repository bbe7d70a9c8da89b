//! Suspend to disk and resume.
//!
//! A device's state cannot be saved, so host devices are hot-unplugged before the save and plugged
//! in again after the restore. Hot-unplug needs the guest's cooperation.

use std::time::Duration;

use kilonova_hypervisor::{Definition, DomainState, Error, Step};
use kilonova_ids::ServerId;
use roxmltree::Document;
use tokio::time::{Instant, timeout};
use virt::domain::Domain;
use virt::error::{Error as VirtError, ErrorNumber};
use virt_sys as sys;

use super::volumes::is_unplugging;
use super::{Driver, domain_state, state_name};
use crate::connection::{LONG, QUICK, SLOW, has_code};
use crate::xml;

/// Polling interval while devices are detached.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(500);

impl Driver {
    pub(super) async fn save(&self, server: ServerId) -> Result<(), Error> {
        let step = Step::Suspend;
        match self.with(step, QUICK, server, |_, domain| domain_state(domain)).await? {
            DomainState::Saved => return Ok(()),
            DomainState::Running | DomainState::Paused => {}
            other => return Err(Error::new(step, format!("the guest is {}", state_name(other)))),
        }
        let taken = self.detach_devices(step, server).await;
        let saved = match taken {
            Ok(()) => {
                self.with(step, LONG, server, |_, domain| match domain.managed_save(0) {
                    // A first attempt may have succeeded.
                    Err(error) if has_code(&error, ErrorNumber::OperationInvalid) => {
                        if domain.has_managed_save(0)? { Ok(()) } else { Err(error) }
                    }
                    result => result.map(drop),
                })
                .await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = &saved
            && let Err(lost) = self.attach_devices(step, server).await
        {
            tracing::warn!(%server, %error, %lost, "could not reattach a device after a failed suspend; the guest runs without it");
        }
        saved
    }

    /// Restores the guest from its save image. The guest stays paused until all its devices are
    /// attached; if one cannot be attached, the guest is saved again.
    pub(super) async fn restore(&self, server: ServerId) -> Result<(), Error> {
        let step = Step::Resume;
        let begin = |_: &_, domain: &Domain| match domain_state(domain)? {
            DomainState::Saved if has_hostdevs(domain)? => {
                domain.create_with_flags(sys::VIR_DOMAIN_START_PAUSED)?;
                Ok(None)
            }
            DomainState::Saved => {
                domain.create()?;
                Ok(Some(DomainState::Running))
            }
            DomainState::Paused => Ok(None),
            other => Ok(Some(other)),
        };
        match self.with(step, LONG, server, begin).await? {
            None => {}
            Some(DomainState::Running) => return Ok(()),
            Some(other) => {
                return Err(Error::new(step, format!("the guest is {}", state_name(other))));
            }
        }
        if let Err(error) = self.attach_devices(step, server).await {
            let back = async {
                self.detach_devices(step, server).await?;
                self.with(step, LONG, server, |_, domain| domain.managed_save(0).map(drop)).await
            };
            if let Err(lost) = back.await {
                tracing::error!(%server, %lost, "could not save the guest again after a failed resume; it stays paused");
            }
            return Err(error);
        }
        self.with(step, QUICK, server, |_, domain| domain.resume().map(drop)).await
    }

    /// Detaches all host devices from an active guest.
    async fn detach_devices(&self, step: Step, server: ServerId) -> Result<(), Error> {
        let config = &self.host.config;
        for _ in 0..config.detach_attempts.max(1) {
            let mut events = self.link.events();
            let ask = |_: &_, domain: &Domain| {
                let attached = hostdevs_of(&domain.get_xml_desc(0)?);
                for xml in &attached {
                    match domain.detach_device_flags(xml, sys::VIR_DOMAIN_AFFECT_LIVE) {
                        Err(error) if is_unplugging(&error) => {}
                        result => result.map(drop)?,
                    }
                }
                Ok(attached.len())
            };
            if self.with(step, SLOW, server, ask).await? == 0 {
                return Ok(());
            }
            let end = Instant::now() + config.detach_timeout;
            while Instant::now() < end {
                let _ = timeout(POLL_INTERVAL, events.recv()).await;
                let left = |_: &_, domain: &Domain| Ok(hostdevs_of(&domain.get_xml_desc(0)?).len());
                if self.with(step, QUICK, server, left).await? == 0 {
                    return Ok(());
                }
            }
        }
        Err(Error::new(
            step,
            "Suspend is not supported for instances having attached mediated devices or PCI \
             devices that the guest does not release. Stop the server instead",
        ))
    }

    /// Attaches the missing devices of an active guest's definition.
    async fn attach_devices(&self, step: Step, server: ServerId) -> Result<(), Error> {
        let give = |_: &_, domain: &Domain| {
            let kept = domain.get_xml_desc(sys::VIR_DOMAIN_XML_INACTIVE)?;
            let definition = match Definition::from_xml(&kept) {
                Ok(definition) => definition,
                Err(error) => return Ok(Err(error.message)),
            };
            let running = domain.get_xml_desc(0)?;
            let attached: Vec<String> =
                hostdevs_of(&running).iter().filter_map(|xml| source(xml)).collect();
            let is_attached =
                |xml: &str| source(xml).is_some_and(|source| attached.contains(&source));
            for xml in xml::missing_hostdevs(&definition, &running, is_attached) {
                attach(domain, &xml)?;
            }
            Ok(Ok(()))
        };
        self.with(step, SLOW, server, give).await?.map_err(|why| Error::new(step, why))
    }
}

/// True if a domain's persistent XML has host devices.
fn has_hostdevs(domain: &Domain) -> Result<bool, VirtError> {
    Ok(!hostdevs_of(&domain.get_xml_desc(sys::VIR_DOMAIN_XML_INACTIVE)?).is_empty())
}

fn attach(domain: &Domain, xml: &str) -> Result<(), VirtError> {
    domain.attach_device_flags(xml, sys::VIR_DOMAIN_AFFECT_LIVE).map(drop)
}

/// The XML of each host device in a domain.
fn hostdevs_of(xml: &str) -> Vec<String> {
    let Ok(document) = Document::parse(xml) else { return Vec::new() };
    document
        .descendants()
        .filter(|node| node.has_tag_name("hostdev"))
        .map(|node| xml[node.range()].to_owned())
        .collect()
}

/// Identifies a host device: its UUID or its PCI address.
fn source(xml: &str) -> Option<String> {
    let document = Document::parse(xml).ok()?;
    let source = document.root_element().children().find(|node| node.has_tag_name("source"))?;
    let address = source.children().find(|node| node.has_tag_name("address"))?;
    match address.attribute("uuid") {
        Some(uuid) => Some(uuid.to_owned()),
        None => ["domain", "bus", "slot", "function"]
            .into_iter()
            .map(|name| address.attribute(name).map(|part| part.trim_start_matches("0x")))
            .collect::<Option<Vec<_>>>()
            .map(|parts| parts.join(":")),
    }
}
