//! What a start finds on the host that no document names.
//!
//! A domain that no document names may be somebody's: it is reported and left, with its devices. A
//! mediated device or a type that we noted, that no document names and no domain uses, is taken back.

use std::collections::HashSet;

use kilonova_devices::Made;
use kilonova_ids::ServerId;
use kilonova_node_api::Batch;

use super::work::Work;
use crate::Error;

pub(super) async fn recover(work: &Work, batch: &Batch) -> Result<(), Error> {
    if !batch.complete {
        return Ok(());
    }
    let hypervisor = |source| Error::Hypervisor { host: work.host().to_owned(), source };
    let named: HashSet<ServerId> = batch.documents.iter().map(|document| document.server).collect();
    let domains: HashSet<ServerId> =
        work.hypervisor.servers().await.map_err(hypervisor)?.into_iter().collect();
    for server in domains.difference(&named) {
        tracing::warn!(host = work.host(), %server, "a domain that no document names is left as it is");
    }
    let unnamed: Vec<ServerId> =
        work.notes.servers().into_iter().filter(|server| !named.contains(server)).collect();
    if unnamed.is_empty() {
        return Ok(());
    }
    let used = used(work, &domains).await.map_err(hypervisor)?;
    for server in unnamed {
        work.disown(server);
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
    Ok(())
}

async fn used(
    work: &Work,
    domains: &HashSet<ServerId>,
) -> Result<HashSet<Made>, kilonova_hypervisor::Error> {
    let mut used = HashSet::new();
    for server in domains {
        if let Some(found) = work.hypervisor.domain(*server).await? {
            used.extend(found.definition()?.devices.iter().filter_map(Made::of));
        }
    }
    Ok(used)
}
