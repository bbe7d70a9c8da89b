//! The secrets that all controllers of a cloud share: their import from the files of an earlier
//! version, and the loop that notices changes.
//!
//! A token file in the state directory is a copy for programs on this machine; the token itself is
//! in the database.

use std::path::Path;
use std::time::Duration;

use kilonova_enroll::{Authorities, AuthorityPem};
use kilonova_identity::TokenKeys;
use kilonova_seal::{Error, SealKey, Vault};
use kilonova_wire::time;
use tokio::time::{MissedTickBehavior, interval};

use crate::config::Settings;
use crate::failure::Failure;
use crate::state::{StateDir, write_secret};

/// The interval of reading the keys again, which other controllers and commands change too.
const REFRESH: Duration = Duration::from_secs(5);
/// The number of a secret that is the only one of its kind.
const ONLY: i64 = 1;

/// Opens the sealed secrets over a migrated database.
///
/// # Errors
/// Without the sealing key of the cloud.
pub async fn open(settings: &Settings, store: kilonova_store::Store) -> Result<Vault, Failure> {
    let source = settings.seal.source(&settings.state_dir);
    Vault::open(store, source).await.map_err(failure)
}

/// Opens the sealed secrets of a cloud that has been started, for an operator's command.
///
/// # Errors
/// Before the first start of the cloud, and without its sealing key.
pub async fn open_existing(
    settings: &Settings,
    store: kilonova_store::Store,
) -> Result<Vault, Failure> {
    let source = settings.seal.source(&settings.state_dir);
    Vault::open_existing(store, source).await.map_err(failure)
}

/// Converts an error. A missing or wrong sealing key, and a damaged database, become refusals with advice.
pub fn failure(error: Error) -> Failure {
    match error {
        Error::Store(error @ kilonova_store::Error::Damaged(_)) => Failure::Refused(format!(
            "cannot read the secrets: {error}; keep a copy, and restore the last good backup"
        )),
        Error::Store(error) => Failure::failed("cannot read the secrets", error),
        refusal @ (Error::Key(_) | Error::Unknown { .. } | Error::Damaged(_)) => {
            Failure::Refused(refusal.to_string())
        }
    }
}

/// The token `name` of the cloud. The first controller stores the token from its file, or a new one.
/// Every controller keeps a copy in its own file.
pub(super) async fn token(
    vault: &Vault,
    directory: &StateDir,
    name: &'static str,
) -> Result<String, Failure> {
    let stored = async || {
        let sealed = vault.store().read(move |tx| Vault::sealed(tx, name)).await?;
        let opened = vault.open_all(&sealed).await?;
        Ok::<_, Error>(opened.first().and_then(|one| one.text()).map(str::to_owned))
    };
    let token = match stored().await.map_err(failure)? {
        Some(token) => token,
        None => {
            let (ours, sealing, now) = (directory.secret(name)?, vault.clone(), time::now());
            let added = vault.store().write(move |tx| {
                if Vault::sealed(tx, name)?.is_empty() {
                    sealing.add(tx, name, ONLY, ours.as_bytes(), now)?;
                }
                Ok::<_, Error>(())
            });
            match added.await {
                // Another controller was first.
                Ok(()) | Err(Error::Store(kilonova_store::Error::Unique(_))) => {}
                Err(error) => return Err(failure(error)),
            }
            let missing = || Failure::Failed(format!("the database did not store {name}"));
            stored().await.map_err(failure)?.ok_or_else(missing)?
        }
    };
    let path = directory.join(name);
    if std::fs::read_to_string(&path).map(|text| text.trim() != token).unwrap_or(true) {
        write_secret(&path, &token)
            .map_err(|e| Failure::failed(&format!("cannot write {}", path.display()), e))?;
    }
    Ok(token)
}

/// The key that seals the sessions of the dashboard. The first controller creates it.
pub(super) async fn dashboard_key(vault: &Vault) -> Result<SealKey, Failure> {
    const KIND: &str = "dashboard.key";
    let stored = async || {
        let sealed = vault.store().read(|tx| Vault::sealed(tx, KIND)).await?;
        let opened = vault.open_all(&sealed).await?;
        Ok::<_, Error>(opened.first().and_then(|one| one.text()?.parse().ok()))
    };
    if let Some(key) = stored().await.map_err(failure)? {
        return Ok(key);
    }
    let (line, sealing) = (SealKey::generate().map_err(failure)?.line(), vault.clone());
    let added = vault.store().write(move |tx| {
        if Vault::sealed(tx, KIND)?.is_empty() {
            sealing.add(tx, KIND, ONLY, line.as_bytes(), time::now())?;
        }
        Ok::<_, Error>(())
    });
    match added.await {
        // Another controller was first.
        Ok(()) | Err(Error::Store(kilonova_store::Error::Unique(_))) => {}
        Err(error) => return Err(failure(error)),
    }
    let missing = || Failure::Failed(format!("the database did not store {KIND}"));
    stored().await.map_err(failure)?.ok_or_else(missing)
}

/// The cloud's authorities. The first controller imports the folder `ca` of an earlier version.
pub(super) async fn authorities(
    vault: &Vault,
    directory: &StateDir,
) -> Result<Authorities, Failure> {
    let refused = |error: kilonova_enroll::Error| Failure::Refused(error.to_string());
    let folder = directory.join("ca");
    let earlier = if Authorities::are_stored(vault).await.map_err(refused)? {
        if folder.is_dir() {
            tracing::info!(
                "the cloud's authority is in the database; {} is not read any more",
                folder.display()
            );
        }
        None
    } else {
        read_authority(&folder)?
    };
    Authorities::open(vault.clone(), earlier).await.map_err(|error| match error {
        kilonova_enroll::Error::Pki(error) => {
            Failure::Refused(format!("{}: {error}", folder.display()))
        }
        error => refused(error),
    })
}

fn read_authority(folder: &Path) -> Result<Option<AuthorityPem>, Failure> {
    let (certificate, key) = (folder.join("ca.crt"), folder.join("ca.key"));
    if !certificate.exists() && !key.exists() {
        return Ok(None);
    }
    let read = |path: &Path| {
        std::fs::read_to_string(path)
            .map_err(|e| Failure::failed(&format!("cannot read {}", path.display()), e))
    };
    Ok(Some(AuthorityPem { certificate: read(&certificate)?, key: read(&key)? }))
}

/// Keeps the token keys current; ends with the runtime.
pub(super) fn follow(keys: TokenKeys) {
    tokio::spawn(async move {
        let mut ticks = interval(REFRESH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            keys.try_reload().await;
        }
    });
}
