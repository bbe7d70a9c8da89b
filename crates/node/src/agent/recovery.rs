//! Handles state on the host for which a starting agent has no document.
//!
//! A domain without a document may still be in use: it is reported and keeps its devices until a
//! document removes it. If a server has neither a document nor a domain, its noted devices are
//! removed and its volumes are disconnected. The disk copy of a snapshot is removed unless a
//! document still names its image. A server whose document is held back stays completely unchanged.

use std::collections::HashSet;

use kilonova_devices::KernelObject;
use kilonova_hypervisor::list_whole;
use kilonova_ids::ServerId;
use kilonova_node_api::{Batch, Desired, Observation, Verb};

use super::verbs::COPIES;
use super::work::Work;
use crate::Error;

/// Removes unreferenced devices and disk copies, and disconnects unreferenced volumes. Returns
/// observations of the domains without a document. Does nothing if the batch is incomplete.
pub(super) async fn recover(work: &Work, batch: &Batch) -> Result<Vec<Observation>, Error> {
    let mut undocumented_domains = Vec::new();
    if !batch.complete {
        return Ok(undocumented_domains);
    }
    clear_copies(work, batch)
        .map_err(|source| Error::State { folder: work.state.clone(), source })?;
    let hypervisor = |source| Error::Hypervisor { host: work.host().clone(), source };
    let held: HashSet<ServerId> = batch.held.iter().copied().collect();
    let named: HashSet<ServerId> = batch.documents.iter().map(|document| document.server).collect();
    let domains: HashSet<ServerId> =
        work.hypervisor.servers().await.map_err(hypervisor)?.into_iter().collect();
    for server in domains.difference(&named) {
        let is_held = held.contains(server);
        if !is_held {
            tracing::warn!(host = %work.host(), %server, "this domain has no document; it stays unchanged. kilonova doctor lists it");
        }
        if let Some(found) = work.hypervisor.domain(*server).await.map_err(hypervisor)? {
            let outcome = super::reconcile::outcome(found.state);
            if let Ok(definition) = found.definition() {
                work.connections.keep_interfaces(*server, &definition.config.interfaces);
            }
            if !is_held {
                undocumented_domains.push(Observation::new(*server, 0, outcome));
            }
        }
    }
    work.set_undocumented_domains(&undocumented_domains);
    let named: HashSet<ServerId> = named.union(&held).copied().collect();
    for server in work.volumes.servers() {
        if !named.contains(&server) && !domains.contains(&server) {
            tracing::warn!(host = %work.host(), %server, "disconnecting the volumes of a server without a document");
            if let Err(error) = work.release_volumes(server).await {
                tracing::warn!(host = %work.host(), %server, ?error, "could not disconnect a volume; it stays connected until the agent restarts");
            }
        }
    }
    let unnamed: Vec<ServerId> =
        work.notes.servers().into_iter().filter(|server| !named.contains(server)).collect();
    if unnamed.is_empty() {
        return Ok(undocumented_domains);
    }
    unnamed.iter().for_each(|server| work.mark_undocumented(*server));
    let Some(used) = used(work, &domains).await.map_err(hypervisor)? else {
        return Ok(undocumented_domains);
    };
    for server in unnamed {
        let mut noted = work.notes.get(server).unwrap_or_default().made;
        noted.sort_unstable();
        if domains.contains(&server) || noted.iter().any(|made| used.contains(made)) {
            continue;
        }
        let mut gone = true;
        for made in noted {
            tracing::warn!(host = %work.host(), %server, %made, "removing an unused device that this agent created");
            if let Err(error) = work.unmake(server, made).await {
                tracing::warn!(host = %work.host(), %server, %error, "could not remove an unused device");
                gone = false;
            }
        }
        if gone {
            work.notes
                .remove(server)
                .map_err(|source| Error::State { folder: work.state.clone(), source })?;
        }
    }
    Ok(undocumented_domains)
}

/// Removes disk copies that no document needs any more.
fn clear_copies(work: &Work, batch: &Batch) -> std::io::Result<()> {
    let wanted: HashSet<String> = batch
        .documents
        .iter()
        .filter_map(|document| match &document.desired {
            Desired::Present(domain) => domain.verb,
            Desired::Absent => None,
        })
        .filter_map(|(_, verb)| match verb {
            Verb::Snapshot { image } => Some(image.to_string()),
            _ => None,
        })
        .collect();
    for file in list_whole(&work.state.join(COPIES))? {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !wanted.contains(name) {
            tracing::info!(host = %work.host(), file = %file.display(), "removing the disk copy of an abandoned snapshot");
            match std::fs::remove_file(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// The devices that domains use; `None` if a domain cannot be parsed, as it may use any device.
async fn used(
    work: &Work,
    domains: &HashSet<ServerId>,
) -> Result<Option<HashSet<KernelObject>>, kilonova_hypervisor::Error> {
    let mut used = HashSet::new();
    for server in domains {
        match work.hypervisor.domain(*server).await?.map(|found| found.definition()) {
            None => {}
            Some(Ok(definition)) => {
                used.extend(definition.config.devices.iter().flat_map(KernelObject::of))
            }
            Some(Err(error)) => {
                tracing::warn!(host = %work.host(), %server, %error, "keeping all devices, as this domain may use them");
                return Ok(None);
            }
        }
    }
    Ok(Some(used))
}
