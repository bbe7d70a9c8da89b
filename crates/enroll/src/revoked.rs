//! The revoked certificates in memory: checked on each request, and signalled to requests in
//! progress.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use kilonova_ids::HostName;
use kilonova_pki::Revocation;
use tokio::sync::watch;

/// A revoked certificate.
#[derive(Debug, Clone)]
pub(crate) struct RevokedCertificate {
    pub serial: String,
    /// The host that it was issued to.
    pub host: HostName,
    pub revoked_at: Timestamp,
    pub expires_at: Timestamp,
}

/// Revoked certificates by serial number; cheap to clone.
#[derive(Debug, Clone)]
pub struct Revoked {
    all: Arc<RwLock<HashMap<String, RevokedCertificate>>>,
    count: Arc<watch::Sender<usize>>,
}

impl Default for Revoked {
    fn default() -> Self {
        Self { all: Arc::default(), count: Arc::new(watch::Sender::new(0)) }
    }
}

impl Revoked {
    /// True if a certificate is revoked.
    pub fn has(&self, serial: &str) -> bool {
        self.all.read().unwrap_or_else(PoisonError::into_inner).contains_key(serial)
    }

    /// Returns when the certificate is revoked; otherwise never.
    pub async fn wait_until_revoked(&self, serial: &str) {
        let mut count = self.count.subscribe();
        // `self` owns the sender, so this ends only with a revocation.
        while !self.has(serial) {
            if count.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Adds revoked certificates. A revocation is permanent: data read later may be older.
    pub(crate) fn add(&self, revoked: impl IntoIterator<Item = RevokedCertificate>) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.extend(revoked.into_iter().map(|one| (one.serial.clone(), one)));
        let count = all.len();
        drop(all);
        self.count.send_if_modified(|before| std::mem::replace(before, count) != count);
    }

    /// The revoked certificates that have not expired, by serial number.
    pub(crate) fn live(&self, now: Timestamp) -> Vec<RevokedCertificate> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        let mut live: Vec<RevokedCertificate> =
            all.values().filter(|one| one.expires_at > now).cloned().collect();
        drop(all);
        live.sort_by(|a, b| a.serial.cmp(&b.serial));
        live
    }
}

impl From<&RevokedCertificate> for Revocation {
    fn from(one: &RevokedCertificate) -> Self {
        Self { serial: one.serial.clone(), at: one.revoked_at }
    }
}
