//! What a start finds on the host that no document names.
//!
//! A domain that no document names may be somebody's: it is reported and left, with its devices; the
//! control plane says by a document if it has to go. A mediated device or a type that we noted, that
//! no document names and no domain uses, is taken back. So is the copy of a disk that was to become an
//! image when the last process ended, unless a document still asks for that image.

use std::collections::HashSet;

use kilonova_devices::Made;
use kilonova_hypervisor::list_whole;
use kilonova_ids::ServerId;
use kilonova_node_api::{Batch, Desired, Observation, Verb};

use super::once::COPIES;
use super::work::Work;
use crate::Error;

/// Clears what nothing names; returns what is to be reported of domains that no document names.
pub(super) async fn recover(work: &Work, batch: &Batch) -> Result<Vec<Observation>, Error> {
    let mut strays = Vec::new();
    if !batch.complete {
        return Ok(strays);
    }
    clear_copies(work, batch)
        .map_err(|source| Error::State { folder: work.state.clone(), source })?;
    let hypervisor = |source| Error::Hypervisor { host: work.host().to_owned(), source };
    let named: HashSet<ServerId> = batch.documents.iter().map(|document| document.server).collect();
    let domains: HashSet<ServerId> =
        work.hypervisor.servers().await.map_err(hypervisor)?.into_iter().collect();
    for server in domains.difference(&named) {
        tracing::warn!(host = work.host(), %server, "a domain that no document names is left as it is");
        if let Some(found) = work.hypervisor.domain(*server).await.map_err(hypervisor)? {
            let outcome = super::make::outcome(found.life);
            if let Ok(definition) = found.definition() {
                work.connections.keep(*server, &definition.interfaces);
            }
            strays.push(Observation::new(*server, 0, outcome));
        }
    }
    work.strangers_are(&strays);
    let unnamed: Vec<ServerId> =
        work.notes.servers().into_iter().filter(|server| !named.contains(server)).collect();
    if unnamed.is_empty() {
        return Ok(strays);
    }
    unnamed.iter().for_each(|server| work.disown(*server));
    let Some(used) = used(work, &domains).await.map_err(hypervisor)? else { return Ok(strays) };
    for server in unnamed {
        let noted = work.notes.get(server).unwrap_or_default().made;
        if domains.contains(&server) || noted.iter().any(|made| used.contains(made)) {
            continue;
        }
        let mut gone = true;
        for made in noted {
            tracing::warn!(host = work.host(), %server, %made, "what we made and nothing names is taken back");
            if let Err(error) = work.unmake(server, made).await {
                tracing::warn!(host = work.host(), %error, "it stays");
                gone = false;
            }
        }
        if gone {
            work.notes
                .remove(server)
                .map_err(|source| Error::State { folder: work.state.clone(), source })?;
        }
    }
    Ok(strays)
}

/// Removes copies of disks that nobody will send any more.
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
            tracing::info!(host = work.host(), file = %file.display(), "a copy of a disk is removed that nobody waits for");
            match std::fs::remove_file(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// What the domains use; `None` if one of them cannot be read, so that it may be anything.
async fn used(
    work: &Work,
    domains: &HashSet<ServerId>,
) -> Result<Option<HashSet<Made>>, kilonova_hypervisor::Error> {
    let mut used = HashSet::new();
    for server in domains {
        match work.hypervisor.domain(*server).await?.map(|found| found.definition()) {
            None => {}
            Some(Ok(definition)) => used.extend(definition.devices.iter().filter_map(Made::of)),
            Some(Err(error)) => {
                tracing::warn!(host = work.host(), %server, %error, "nothing is taken back, as this domain may use it");
                return Ok(None);
            }
        }
    }
    Ok(Some(used))
}
