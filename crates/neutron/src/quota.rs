//! The quota of ports.

use http::Method;
use serde::Deserialize;

use crate::{Call, Error, Neutron};

#[derive(Deserialize)]
struct Quota {
    #[serde(default = "unlimited")]
    port: i64,
}

fn unlimited() -> i64 {
    -1
}

impl Neutron {
    /// Maximum number of ports of a project; `None` without a limit.
    ///
    /// # Errors
    /// Neutron's errors.
    pub async fn port_quota(&self, call: Call<'_>, project: &str) -> Result<Option<i64>, Error> {
        let path = format!("/quotas/{project}");
        let quota: Quota = self.one(call, Method::GET, &path, None, "quota").await?;
        Ok((quota.port >= 0).then_some(quota.port))
    }
}
