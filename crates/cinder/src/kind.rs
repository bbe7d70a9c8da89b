//! Volume types.

use serde::Deserialize;

use crate::client::Microversion;
use crate::{Call, Cinder, Error};

/// A volume type.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct VolumeType {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
}

impl Cinder {
    /// The types that the caller may use.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn types(&self, call: Call<'_>) -> Result<Vec<VolumeType>, Error> {
        self.list(call, Microversion::BASE, "/types", "", "volume_types").await
    }
}
