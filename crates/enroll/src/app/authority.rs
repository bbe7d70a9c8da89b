//! The cloud's authority: the creation of the first one, and rotations.
//!
//! A rotation has three steps, each one transaction. Hosts first learn to trust the staged
//! authority, because hosts whose libvirt does not trust each other's authority cannot migrate
//! guests over TLS. Then the staged one signs, and hosts renew their certificates. Then the trust
//! in the outgoing one ends. Unless it is forced, a step refuses while hosts are not ready, and names
//! them.

use jiff::{SignedDuration, Timestamp};
use kilonova_changes::Topic;
use kilonova_ids::HostName;
use kilonova_pki::{Authority, Fingerprint};
use kilonova_seal::Vault;
use kilonova_store::Tx;
use kilonova_wire::refusal::Kind;
use kilonova_wire::time::{self, zulu};

use crate::authorities::{self, AuthorityPem, KIND};
use crate::db::authorities::{self as rows, AuthorityState, KnownAuthority};
use crate::db::{authority, certificates, trust};
use crate::{Authorities, Error};

/// The subject of a change of the authorities in the change log. A revocation of a host of this name
/// only makes controllers read more.
pub(crate) const SUBJECT: &str = "authorities";
/// The number of a cloud's first authority.
const FIRST: i64 = 1;

/// Stores the first authority of the cloud, unless another controller has done so.
pub(crate) async fn store_first(vault: &Vault, earlier: Option<AuthorityPem>) -> Result<(), Error> {
    let now = time::now();
    let imported = earlier.is_some();
    let (certificate, key) = match earlier {
        Some(AuthorityPem { certificate, key }) => (certificate, key),
        None => Authority::make(now)?,
    };
    let fingerprint = Authority::load(&certificate, &key)?.fingerprint();
    let (sealing, key) = (vault.clone(), zeroize::Zeroizing::new(key));
    let stored = vault.store().write(move |tx| {
        if !rows::all(tx)?.is_empty() {
            return Ok(false);
        }
        let ours = fingerprint.to_string();
        match authority::read(tx)? {
            Some(known) if known != ours && imported => {
                return Err(Error::Authority(format!(
                    "the folder ca of this state directory has authority {ours}, but the cloud's is \
                     {known}: start this version first on the controller that has that one"
                )));
            }
            Some(known) if known != ours => {
                return Err(Error::Authority(format!(
                    "the authority of this cloud ({known}) is in the folder ca of the controller that \
                     created it, and not yet in the database: start this version first there, or \
                     copy that folder to this state directory"
                )));
            }
            Some(_) | None => authority::set(tx, &ours)?,
        }
        add(tx, &sealing, FIRST, AuthorityState::Signing, (&certificate, &key), now)?;
        Ok(true)
    });
    match stored.await {
        Ok(true) if imported => tracing::info!(
            %fingerprint,
            "imported the cloud's authority into the database; the folder ca is not read any more"
        ),
        Ok(true) => tracing::info!(%fingerprint, "created the cloud's authority in the database"),
        // Another controller was first.
        Ok(false) | Err(Error::Store(kilonova_store::Error::Unique(_))) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

fn add(
    tx: &mut Tx<'_>,
    vault: &Vault,
    number: i64,
    state: AuthorityState,
    (certificate, key): (&str, &str),
    now: Timestamp,
) -> Result<(), Error> {
    let known = KnownAuthority {
        number,
        fingerprint: kilonova_pki::fingerprint(certificate)?.to_string(),
        certificate: certificate.to_owned(),
        state,
        made_at: now,
        trusted_until: None,
    };
    rows::add(tx, &known)?;
    Ok(vault.add(tx, KIND, number, key.as_bytes(), now)?)
}

fn refused(why: impl Into<String>) -> Error {
    Error::Refused(Kind::Conflict, why.into())
}

pub(crate) fn in_state(all: &[KnownAuthority], state: AuthorityState) -> Option<&KnownAuthority> {
    all.iter().find(|one| one.state == state)
}

/// The authorities, for a transaction that changes them.
fn locked(tx: &mut Tx<'_>) -> Result<Vec<KnownAuthority>, Error> {
    authority::touch(tx)?;
    kilonova_changes::append(tx, Topic::Revoked, SUBJECT, 0)?;
    Ok(rows::all(tx)?)
}

/// Begins a change of the authorities, and checks that they are as examined.
///
/// # Errors
/// [`Error::Refused`] if they have changed since.
fn lock_unchanged(tx: &mut Tx<'_>, examined: &[KnownAuthority]) -> Result<(), Error> {
    if locked(tx)? == examined {
        return Ok(());
    }
    Err(refused("the authorities were changed concurrently: list them, and try again"))
}

/// Ends the trust in the outgoing authority, deletes its key, and records that controllers present
/// certificates of the signing one.
fn replace(
    tx: &mut Tx<'_>,
    outgoing: &KnownAuthority,
    signing: &KnownAuthority,
) -> Result<(), Error> {
    end(tx, outgoing.number)?;
    Ok(authority::replace(tx, &signing.fingerprint)?)
}

/// Ends the trust in an authority, and deletes its key.
fn end(tx: &mut Tx<'_>, number: i64) -> Result<(), Error> {
    rows::set(tx, number, AuthorityState::Retired, None)?;
    Ok(Vault::delete(tx, KIND, number)?)
}

/// A host with a valid certificate, and the data of its newest one.
pub(crate) struct Certified {
    pub host: HostName,
    authority: i64,
    pub made_at: Timestamp,
    pub expires_at: Timestamp,
    /// The digest of the authorities that it trusts, if it has reported one.
    trusts: Option<String>,
}

impl Certified {
    /// True if the host trusts these authorities.
    pub(crate) fn trusts(&self, mark: &str) -> bool {
        self.trusts.as_deref() == Some(mark)
    }

    /// True if the host needs the outgoing authority: its certificate is not from the signing one, or
    /// it does not trust these authorities.
    pub(crate) fn needs_outgoing(&self, signing: &KnownAuthority, mark: &str) -> bool {
        self.authority != signing.number || !self.trusts(mark)
    }
}

/// The digest by which hosts report the authorities that they trust.
pub(crate) fn mark(all: &[KnownAuthority], now: Timestamp) -> String {
    authorities::mark(&authorities::bundle(&authorities::in_order(all, now)))
}

/// The hosts with a valid certificate, by name.
pub(crate) fn certified(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<Certified>, Error> {
    let mut trusts = trust::all(tx)?;
    let mut hosts: Vec<Certified> = Vec::new();
    // By host, the newest certificate last.
    for one in certificates::live(tx, now)?.into_iter().filter(|one| one.revoked_at.is_none()) {
        match hosts.last_mut().filter(|last| last.host == one.host) {
            Some(last) => {
                (last.authority, last.made_at) = (one.authority, one.made_at);
                last.expires_at = one.expires_at;
            }
            None => hosts.push(Certified {
                trusts: trusts.remove(&one.host),
                authority: one.authority,
                made_at: one.made_at,
                expires_at: one.expires_at,
                host: one.host,
            }),
        }
    }
    Ok(hosts)
}

pub(crate) fn names(hosts: &[HostName]) -> String {
    const SHOWN: usize = 20;
    let mut text: Vec<&str> = hosts.iter().take(SHOWN).map(HostName::as_str).collect();
    let more = format!("and {} more", hosts.len().saturating_sub(SHOWN));
    if hosts.len() > SHOWN {
        text.push(&more);
    }
    text.join(", ")
}

impl Authorities {
    /// The authorities that the cloud has had, the oldest first.
    ///
    /// # Errors
    /// A database error.
    pub async fn list(vault: &Vault) -> Result<Vec<KnownAuthority>, Error> {
        Ok(vault.store().read(rows::all).await?)
    }

    /// Begins a rotation: creates an authority that hosts learn to trust.
    ///
    /// # Errors
    /// [`Error::Refused`] during another rotation, or without an authority.
    pub async fn rotate(vault: &Vault) -> Result<Fingerprint, Error> {
        let now = time::now();
        let (certificate, key) = Authority::make(now)?;
        let fingerprint = kilonova_pki::fingerprint(&certificate)?;
        let (sealing, key) = (vault.clone(), zeroize::Zeroizing::new(key));
        vault
            .store()
            .write(move |tx| {
                let all = locked(tx)?;
                if let Some(staged) = in_state(&all, AuthorityState::Staged) {
                    return Err(refused(format!(
                        "a rotation is in progress: authority {} is staged; continue with `kilonova ca \
                         activate`, or end it with `kilonova ca cancel`",
                        staged.fingerprint
                    )));
                }
                let signing = in_state(&all, AuthorityState::Signing);
                if let (Some(old), Some(signing)) =
                    (in_state(&all, AuthorityState::Outgoing), signing)
                {
                    if authorities::is_trusted(old, now) {
                        return Err(refused(format!(
                            "a rotation is in progress: authority {} is still trusted; end that with \
                             `kilonova ca retire`",
                            old.fingerprint
                        )));
                    }
                    replace(tx, old, signing)?;
                }
                let Some(last) = all.last() else {
                    return Err(refused(
                        "this cloud has no authority yet: it gets one when kilonova serve starts with \
                         [node] listen",
                    ));
                };
                let pair = (certificate.as_str(), key.as_str());
                add(tx, &sealing, last.number + 1, AuthorityState::Staged, pair, now)
            })
            .await?;
        Ok(fingerprint)
    }

    /// Cancels a rotation whose authority does not sign yet.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none.
    pub async fn cancel(vault: &Vault) -> Result<(), Error> {
        vault
            .store()
            .write(|tx| {
                let all = locked(tx)?;
                let staged = in_state(&all, AuthorityState::Staged);
                let staged = staged.ok_or_else(|| refused("no authority is staged"))?;
                end(tx, staged.number)
            })
            .await
    }

    /// Makes the staged authority sign. The previous one stays trusted for `overlap`. Returns the end
    /// of that trust, and the hosts that do not trust the new authority yet.
    ///
    /// # Errors
    /// [`Error::Refused`] if none is staged; unless `forced`, also if there are such hosts.
    pub async fn activate(
        vault: &Vault,
        overlap: SignedDuration,
        forced: bool,
    ) -> Result<(Timestamp, Vec<HostName>), Error> {
        let now = time::now();
        let until = time::after(now, overlap);
        let (all, hosts) = Self::examine(vault, now).await?;
        let (Some(staged), Some(signing)) =
            (in_state(&all, AuthorityState::Staged), in_state(&all, AuthorityState::Signing))
        else {
            return Err(refused(
                "no authority is staged: begin a rotation with `kilonova ca rotate`",
            ));
        };
        let mark = mark(&all, now);
        let late = hosts.into_iter().filter(|host| !host.trusts(&mark));
        let late: Vec<HostName> = late.map(|host| host.host).collect();
        if !forced && !late.is_empty() {
            return Err(refused(format!(
                "{} host(s) do not trust the new authority yet: {}. Agents request it every five minutes; \
                 start those that are off, and upgrade those of an earlier version. With --force \
                 these hosts cannot migrate guests over TLS until they have received it",
                late.len(),
                names(&late)
            )));
        }
        let (staged, signing) = (staged.number, signing.number);
        let change = move |tx: &mut Tx<'_>| {
            lock_unchanged(tx, &all)?;
            rows::set(tx, signing, AuthorityState::Outgoing, Some(until))?;
            Ok::<_, Error>(rows::set(tx, staged, AuthorityState::Signing, None)?)
        };
        vault.store().write(change).await?;
        Ok((until, late))
    }

    /// Ends the trust in the outgoing authority. Returns the hosts that still need it.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none; unless `forced`, also if there are such hosts.
    pub async fn retire(vault: &Vault, forced: bool) -> Result<Vec<HostName>, Error> {
        let now = time::now();
        let (all, hosts) = Self::examine(vault, now).await?;
        let (Some(old), Some(signing)) =
            (in_state(&all, AuthorityState::Outgoing), in_state(&all, AuthorityState::Signing))
        else {
            return Err(refused("no authority is outgoing"));
        };
        let mark = mark(&all, now);
        let late = hosts.into_iter().filter(|host| host.needs_outgoing(signing, &mark));
        let late: Vec<HostName> = late.map(|host| host.host).collect();
        // No host accepts it after its expiry.
        let still = authorities::is_trusted(old, now);
        if still && !forced && !late.is_empty() {
            let until = old.trusted_until.map(zulu).unwrap_or_default();
            return Err(refused(format!(
                "{} host(s) still use the old authority, which is trusted until {until}: {}. \
                 Agents renew within a few minutes; with --force these hosts have to join again",
                late.len(),
                names(&late)
            )));
        }
        let (old, signing) = (old.clone(), signing.clone());
        let change = move |tx: &mut Tx<'_>| {
            lock_unchanged(tx, &all)?;
            replace(tx, &old, &signing)
        };
        vault.store().write(change).await?;
        Ok(late)
    }

    /// The authorities, and the hosts with a valid certificate: read before a step changes anything,
    /// because a cloud may have many.
    async fn examine(
        vault: &Vault,
        now: Timestamp,
    ) -> Result<(Vec<KnownAuthority>, Vec<Certified>), Error> {
        vault.store().read(move |tx| Ok((rows::all(tx)?, certified(tx, now)?))).await
    }

    /// The certificate and the key of the signing authority, for the operator's backup.
    ///
    /// # Errors
    /// [`Error::Seal`] without the sealing key.
    pub async fn export(vault: &Vault) -> Result<AuthorityPem, Error> {
        let authorities = Self::list(vault).await?;
        let signing = in_state(&authorities, AuthorityState::Signing);
        let signing = signing.ok_or_else(|| refused("this cloud has no authority yet"))?;
        let sealed = vault.store().read(|tx| Vault::sealed(tx, KIND)).await?;
        let sealed: Vec<_> = sealed.into_iter().filter(|o| o.number == signing.number).collect();
        let secret = vault.open_all(&sealed).await?;
        let key = secret.first().and_then(|one| one.text());
        let key = key.ok_or_else(|| refused("the key of the authority is missing"))?.to_owned();
        Ok(AuthorityPem { certificate: signing.certificate.clone(), key })
    }
}
