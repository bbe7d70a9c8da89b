//! Follows the list of revoked certificates.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use kilonova_node_api::{Revocations, RevokedHost};

use super::Remote;

/// Polls at this interval. Calls `changed`, with the list and the newly revoked certificates, when
/// the certificates on the list change and before the last list expires. If `changed` returns
/// false, calls it again at the next poll.
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
                let is_known = known.as_ref().is_some_and(|known| {
                    known.mark == list.mark && Timestamp::now() < known.renew_at
                });
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
                tracing::warn!(%error, "could not fetch the list of revoked certificates");
            }
            Err(_) => {}
        }
        tokio::time::sleep(every).await;
    }
}
