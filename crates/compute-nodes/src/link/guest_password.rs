//! The password that a guest sets through the metadata service of its host. A host may read and set it
//! only for guests that its documents request.

use kilonova_compute_app::{Compute, Error, batch};
use kilonova_compute_db::{documents, fleet, guest_metadata as rows};
use kilonova_ids::HostName;
use kilonova_node_api::{Desired, PasswordAnswer, PasswordRequest, Refusal};
use kilonova_store::Tx;

use super::unavailable;

/// Maximum length of a password in bytes, which is Nova's. The host's metadata service refuses a longer one, too.
const MAX_BYTES: usize = 1020;

pub(super) async fn guest_password(
    compute: &Compute,
    host: &HostName,
    epoch: i64,
    request: PasswordRequest,
) -> Result<PasswordAnswer, Refusal> {
    let fits = |text: &String| text.len() <= MAX_BYTES && !text.contains('\0');
    if !request.set.as_ref().is_none_or(fits) {
        return Err(Refusal::Rejected("the password is too long or not text".into()));
    }
    let host = host.to_owned();
    let PasswordRequest { server, set } = request;
    let is_here = move |tx: &mut Tx<'_>| {
        batch::check_session(&host, fleet::epoch(tx, &host)?, epoch)?;
        let document = documents::get(tx, &host, server)?;
        Ok::<_, Error>(document.is_some_and(|one| matches!(one.desired, Desired::Present(_))))
    };
    let answered = match set {
        None => {
            let read = move |tx: &mut Tx<'_>| {
                let is = if is_here(tx)? { rows::password(tx, server)? } else { None };
                Ok::<_, Error>(
                    is.map_or(PasswordAnswer::NoServer, |text| PasswordAnswer::Is { text }),
                )
            };
            compute.store.read(read).await
        }
        Some(password) => {
            let write = move |tx: &mut Tx<'_>| {
                if !is_here(tx)? || rows::password(tx, server)?.is_none() {
                    return Ok(PasswordAnswer::NoServer);
                }
                let stored = rows::set_password(tx, server, &password)?;
                Ok::<_, Error>(if stored { PasswordAnswer::Stored } else { PasswordAnswer::Exists })
            };
            compute.store.write(write).await
        }
    };
    answered.map_err(unavailable)
}
