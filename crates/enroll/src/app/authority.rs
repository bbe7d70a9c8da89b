//! A cloud has one authority, recorded in the database, however many controllers it has.

use kilonova_pki::Fingerprint;
use kilonova_store::Store;

use crate::Error;
use crate::db::authority;

/// Checks that a controller has the cloud's authority; `None` means that it has none yet. The first
/// controller's becomes the cloud's. Succeeds without one only if the cloud has none.
///
/// # Errors
/// If the cloud has another authority.
pub async fn record_authority(store: &Store, ours: Option<Fingerprint>) -> Result<(), Error> {
    let wanted = ours.map(|ours| ours.to_string());
    let known = store
        .write(move |tx| {
            if let Some(wanted) = &wanted {
                authority::set(tx, wanted)?;
            }
            Ok::<_, Error>(authority::read(tx)?)
        })
        .await?;
    let ours = ours.map(|ours| ours.to_string());
    match (known, ours) {
        (Some(known), None) => Err(Error::Authority(format!(
            "the authority of this cloud ({known}) is missing in this state directory; copy the folder ca \
             from the controller that has it"
        ))),
        (Some(known), Some(ours)) if known != ours => Err(Error::Authority(format!(
            "this state directory has authority {ours}, but the cloud's is {known}; copy the folder \
             ca from the controller that has that one"
        ))),
        _ => Ok(()),
    }
}
