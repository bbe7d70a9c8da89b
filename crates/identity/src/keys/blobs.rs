//! The key that encrypts the content of stored credentials, as in `keystone/credential/providers/fernet/core.py`. It is
//! a sealed row of the database like the token keys; the first use creates it.

use std::sync::Arc;

use fernet::{Fernet, MultiFernet};
use kilonova_seal::{Sealed, Vault};
use kilonova_wire::time;

use super::{TokenKeys, import};
use crate::Error;

/// The kind of the sealed row.
const KIND: &str = "credential";
/// Its number.
const NUMBER: i64 = 1;

impl TokenKeys {
    /// The key for the content of credentials.
    pub(crate) async fn of_blobs(&self) -> Result<Arc<MultiFernet>, Error> {
        // Tests without a vault have no other keys.
        let Some(vault) = &self.0.vault else { return Ok(self.current()) };
        let mut sealed = read(vault).await?;
        if sealed.is_empty() {
            create(vault).await?;
            sealed = read(vault).await?;
        }
        let opened = vault.open_all(&sealed).await?;
        let key = opened.first().and_then(|secret| secret.text()).and_then(Fernet::new);
        let key = key.ok_or_else(|| {
            Error::Keys("the key of the credentials is not a Fernet key".to_owned())
        })?;
        Ok(Arc::new(MultiFernet::new(vec![key])))
    }
}

async fn read(vault: &Vault) -> Result<Vec<Sealed>, Error> {
    Ok(vault.store().read(|tx| Vault::sealed(tx, KIND)).await?)
}

/// Stores the key, unless another controller has done so.
async fn create(vault: &Vault) -> Result<(), Error> {
    let (sealing, key, now) = (vault.clone(), import::new(), time::now());
    let stored = vault.store().write(move |tx| {
        if Vault::sealed(tx, KIND)?.is_empty() {
            sealing.add(tx, KIND, NUMBER, &key, now)?;
        }
        Ok::<_, Error>(())
    });
    match stored.await {
        Ok(()) | Err(Error::Store(kilonova_store::Error::Unique(_))) => Ok(()),
        Err(error) => Err(error),
    }
}
