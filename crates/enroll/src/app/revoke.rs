//! Revocation: invalidates all certificates and tokens of a host.

use kilonova_changes::Topic;
use kilonova_ids::HostName;
use kilonova_wire::time;

use crate::db::{certificates, tokens};
use crate::{Enrollment, Error};

/// Revokes a host. Returns the number of its valid certificates.
pub(crate) async fn revoke(enrollment: &Enrollment, host: &HostName) -> Result<usize, Error> {
    let (name, now) = (host.to_owned(), time::now());
    let revoked = enrollment.revoked.clone();
    let count = enrollment
        .store
        .write(move |tx| {
            tokens::delete_unused(tx, &name)?;
            let serials = certificates::revoke(tx, &name, now)?;
            kilonova_changes::append(tx, Topic::Revoked, &name, 0)?;
            let (revoked, count) = (revoked.clone(), serials.len());
            tx.on_commit(move || revoked.add(serials));
            Ok::<_, Error>(count)
        })
        .await?;
    tracing::info!(%host, certificates = count, "revoked the certificates of a host");
    Ok(count)
}

/// Reads the revoked certificates from the database.
pub(crate) async fn refresh(enrollment: &Enrollment) -> Result<(), Error> {
    let now = time::now();
    let serials = enrollment.store.read(move |tx| certificates::revoked(tx, now)).await?;
    enrollment.revoked.add(serials);
    Ok(())
}
