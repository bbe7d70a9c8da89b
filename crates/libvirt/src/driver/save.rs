//! Memory to disk and back.
//!
//! What a device holds cannot be written, so a guest lets go of its host devices before and is given
//! them again after. It is asked to, as one is asked to before a card is pulled out.

use std::time::Duration;

use kilonova_hypervisor::{Definition, Error, Life, Step};
use kilonova_ids::ServerId;
use roxmltree::Document;
use tokio::time::{Instant, timeout};
use virt::domain::Domain;
use virt::error::{Error as VirtError, ErrorNumber};
use virt_sys as sys;

use super::{Driver, life, words};
use crate::connection::{LONG, QUICK, SLOW, is};
use crate::xml;

/// Between two looks whether a device has gone.
const LOOK: Duration = Duration::from_millis(500);

impl Driver {
    pub(super) async fn save(&self, server: ServerId) -> Result<(), Error> {
        let step = Step::Suspend;
        match self.with(step, QUICK, server, |_, domain| life(domain)).await? {
            Life::Saved => return Ok(()),
            Life::Running | Life::Paused => {}
            other => return Err(Error::new(step, format!("the guest is {}", words(other)))),
        }
        let taken = self.take_devices(step, server).await;
        let saved = match taken {
            Ok(()) => {
                self.with(step, LONG, server, |_, domain| match domain.managed_save(0) {
                    // The first try may have brought it about.
                    Err(error) if is(&error, ErrorNumber::OperationInvalid) => {
                        if domain.has_managed_save(0)? { Ok(()) } else { Err(error) }
                    }
                    result => result.map(drop),
                })
                .await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = &saved
            && let Err(lost) = self.give_devices(step, server).await
        {
            tracing::warn!(%server, %error, %lost, "a guest that stays up has lost a device");
        }
        saved
    }

    /// Goes on from the memory on disk. The guest stands still until it has all its devices; if it
    /// cannot get them, its memory goes back to disk.
    pub(super) async fn restore(&self, server: ServerId) -> Result<(), Error> {
        let step = Step::Resume;
        let begin = |_: &_, domain: &Domain| match life(domain)? {
            Life::Saved if wants_devices(domain)? => {
                domain.create_with_flags(sys::VIR_DOMAIN_START_PAUSED)?;
                Ok(None)
            }
            Life::Saved => {
                domain.create()?;
                Ok(Some(Life::Running))
            }
            Life::Paused => Ok(None),
            other => Ok(Some(other)),
        };
        match self.with(step, LONG, server, begin).await? {
            None => {}
            Some(Life::Running) => return Ok(()),
            Some(other) => {
                return Err(Error::new(step, format!("the guest is {}", words(other))));
            }
        }
        if let Err(error) = self.give_devices(step, server).await {
            let back = async {
                self.take_devices(step, server).await?;
                self.with(step, LONG, server, |_, domain| domain.managed_save(0).map(drop)).await
            };
            if let Err(lost) = back.await {
                tracing::error!(%server, %lost, "the guest stays paused, as it could not be suspended again");
            }
            return Err(error);
        }
        self.with(step, QUICK, server, |_, domain| domain.resume().map(drop)).await
    }

    /// Takes all host devices from a guest that is up.
    async fn take_devices(&self, step: Step, server: ServerId) -> Result<(), Error> {
        let config = &self.host.config;
        for _ in 0..config.detach_attempts.max(1) {
            let mut events = self.link.events();
            let ask = |_: &_, domain: &Domain| {
                let held = held(&domain.get_xml_desc(0)?);
                for xml in &held {
                    match domain.detach_device_flags(xml, sys::VIR_DOMAIN_AFFECT_LIVE) {
                        // It is on its way out already, or out.
                        Err(error)
                            if is(&error, ErrorNumber::DeviceMissing)
                                || error.message().contains("already in the process of unplug") => {
                        }
                        result => result.map(drop)?,
                    }
                }
                Ok(held.len())
            };
            if self.with(step, SLOW, server, ask).await? == 0 {
                return Ok(());
            }
            let end = Instant::now() + config.detach_timeout;
            while Instant::now() < end {
                let _ = timeout(LOOK, events.recv()).await;
                let left = |_: &_, domain: &Domain| Ok(held(&domain.get_xml_desc(0)?).len());
                if self.with(step, QUICK, server, left).await? == 0 {
                    return Ok(());
                }
            }
        }
        Err(Error::new(
            step,
            "Suspend is not supported for instances having attached mediated devices or PCI \
             devices that the guest does not let go of. Shut the server off instead",
        ))
    }

    /// Gives a guest that is up those devices of its definition that it lacks.
    async fn give_devices(&self, step: Step, server: ServerId) -> Result<(), Error> {
        let give = |_: &_, domain: &Domain| {
            let kept = domain.get_xml_desc(sys::VIR_DOMAIN_XML_INACTIVE)?;
            let definition = match Definition::from_xml(&kept) {
                Ok(definition) => definition,
                Err(error) => return Ok(Err(error.message)),
            };
            let held: Vec<String> =
                held(&domain.get_xml_desc(0)?).iter().filter_map(|xml| source(xml)).collect();
            for xml in xml::hostdevs(&definition) {
                if source(&xml).is_none_or(|source| !held.contains(&source)) {
                    attach(domain, &xml)?;
                }
            }
            Ok(Ok(()))
        };
        self.with(step, SLOW, server, give).await?.map_err(|why| Error::new(step, why))
    }
}

/// Whether there are host devices in what is kept of a domain.
fn wants_devices(domain: &Domain) -> Result<bool, VirtError> {
    Ok(!held(&domain.get_xml_desc(sys::VIR_DOMAIN_XML_INACTIVE)?).is_empty())
}

fn attach(domain: &Domain, xml: &str) -> Result<(), VirtError> {
    domain.attach_device_flags(xml, sys::VIR_DOMAIN_AFFECT_LIVE).map(drop)
}

/// The XML of each host device of a running domain.
fn held(xml: &str) -> Vec<String> {
    let Ok(document) = Document::parse(xml) else { return Vec::new() };
    document
        .descendants()
        .filter(|node| node.has_tag_name("hostdev"))
        .map(|node| xml[node.range()].to_owned())
        .collect()
}

/// Which device of the host it is: its uuid, or its address.
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
