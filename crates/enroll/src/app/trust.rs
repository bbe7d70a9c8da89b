//! The trust of hosts: they request the authorities, and report those that they trust.

use kilonova_ids::HostName;
use kilonova_node_api::Authorities;
use kilonova_wire::time;

use crate::db::trust;
use crate::{Enrollment, Error};

/// The authorities that a host must trust. `has` is the digest of those that it trusts; it is
/// recorded when it has changed.
pub(crate) async fn current(
    enrollment: &Enrollment,
    host: HostName,
    has: Option<String>,
) -> Result<Authorities, Error> {
    if let Some(has) = has {
        let (name, mark) = (host.clone(), has.clone());
        let known = enrollment.store.read(move |tx| trust::read(tx, &name)).await?;
        if known.as_deref() != Some(&has) {
            let now = time::now();
            enrollment.store.write(move |tx| trust::set(tx, &host, &mark, now)).await?;
        }
    }
    let held = enrollment.authorities.held();
    let signing = held.signing.1.fingerprint().to_string();
    Ok(Authorities { authorities: held.bundle.clone(), signing })
}
