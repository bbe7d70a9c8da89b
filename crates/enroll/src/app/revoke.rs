//! Revocation: invalidates all certificates and tokens of a host.

use kilonova_changes::Topic;
use kilonova_ids::HostName;
use kilonova_wire::time;

use crate::db::{certificates, tokens};
use crate::{Enrollment, Error};

/// The numbers of what a revocation has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Revoked {
    /// Certificates that were valid.
    pub certificates: usize,
    /// Join tokens that were usable.
    pub tokens: usize,
}

/// Revokes a host's certificates and join tokens.
pub(crate) async fn revoke(enrollment: &Enrollment, host: &HostName) -> Result<Revoked, Error> {
    let (name, now) = (host.to_owned(), time::now());
    let revoked = enrollment.revoked.clone();
    let count = enrollment
        .store
        .write(move |tx| {
            let ended = tokens::delete_unused(tx, Some(&name), now)?;
            let serials = certificates::revoke(tx, &name, now)?;
            kilonova_changes::append(tx, Topic::Revoked, &name, 0)?;
            let counts = Revoked { certificates: serials.len(), tokens: ended };
            let revoked = revoked.clone();
            tx.on_commit(move || revoked.add(serials));
            Ok::<_, Error>(counts)
        })
        .await?;
    let Revoked { certificates, tokens } = count;
    tracing::info!(%host, certificates, tokens, "revoked the certificates and join tokens of a host");
    Ok(count)
}

/// Revokes the join tokens that name no host. Returns how many were usable.
pub(crate) async fn revoke_open_tokens(enrollment: &Enrollment) -> Result<usize, Error> {
    let now = time::now();
    let work = enrollment.store.write(move |tx| tokens::delete_unused(tx, None, now));
    let count = work.await?;
    tracing::info!(tokens = count, "revoked the join tokens that name no host");
    Ok(count)
}

/// Reads the revoked certificates from the database.
pub(crate) async fn refresh(enrollment: &Enrollment) -> Result<(), Error> {
    let now = time::now();
    let serials = enrollment.store.read(move |tx| certificates::revoked(tx, now)).await?;
    enrollment.revoked.add(serials);
    Ok(())
}
