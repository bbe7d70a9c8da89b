//! Follows the list of certificates that count no more.

use std::collections::HashSet;
use std::time::Duration;

use kilonova_node_api::{Revocations, RevokedHost};

use super::{Remote, now};

/// Asks so often. `changed` is told of every list that lists other certificates than the one before, and
/// of one in time before the last one ends, with the certificates that are new in it; what it cannot
/// do, it is told again.
pub async fn follow_revocations(
    remote: Remote,
    every: Duration,
    mut changed: impl FnMut(&Revocations, &[RevokedHost]) -> bool + Send,
) -> std::convert::Infallible {
    let mut known: Option<Revocations> = None;
    let mut serials: HashSet<String> = HashSet::new();
    let mut silent = false;
    loop {
        match remote.revocations().await {
            Ok(list) => {
                silent = false;
                let is_known = known
                    .as_ref()
                    .is_some_and(|known| known.mark == list.mark && now() < known.renew_at);
                if !is_known {
                    let new: Vec<RevokedHost> = list
                        .revoked
                        .iter()
                        .filter(|one| !serials.contains(&one.serial))
                        .cloned()
                        .collect();
                    if changed(&list, &new) {
                        serials = list.revoked.iter().map(|one| one.serial.clone()).collect();
                        known = Some(list);
                    }
                }
            }
            Err(error) if !silent => {
                silent = true;
                tracing::warn!(%error, "the list of revoked certificates cannot be fetched");
            }
            Err(_) => {}
        }
        tokio::time::sleep(every).await;
    }
}
