//! Leases: work that one controller of the cloud does at a time.
//!
//! A lease is a row with its holder, an epoch and an expiry by the database's clock. The holder renews it;
//! after its expiry another controller takes it over with the next epoch. A controller that was stopped
//! meanwhile may still believe that it holds the lease, so each transaction of leased work checks the
//! epoch ([`Lease::fence`]). On PostgreSQL the check locks the row against a takeover until the commit.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use kilonova_store::{Error, Store, Tx, params};

kilonova_store::statements! {
    /// A lease.
    LEASE = "SELECT holder, epoch, expires_at FROM leases WHERE name = ?1";
    /// Creates the row with the first holder.
    CREATE = "INSERT INTO leases (name, holder, epoch, expires_at) VALUES (?1, ?2, 1, ?3)";
    /// Extends the lease.
    RENEW = "UPDATE leases SET expires_at = ?3 WHERE name = ?1 AND epoch = ?2";
    /// Takes over an expired lease.
    TAKE = "UPDATE leases SET holder = ?3, epoch = epoch + 1, expires_at = ?4
        WHERE name = ?1 AND epoch = ?2";
    /// Ends the lease.
    RELEASE = "UPDATE leases SET expires_at = 0 WHERE name = ?1 AND epoch = ?2 AND holder = ?3";
    /// The present epoch and holder.
    EPOCH = "SELECT epoch, holder FROM leases WHERE name = ?1";
}

/// The tables of leases. Their rows belong to one database and are not copied to another.
pub const TABLES: &[&str] = &["leases"];

/// The epoch and the holder of the lease, locked against a takeover until the end of the transaction.
const PG_EPOCH: &str = "SELECT epoch, holder FROM leases WHERE name = ?1 FOR SHARE";

/// Statements for PostgreSQL only.
pub const POSTGRES_STATEMENTS: &[(&str, &str)] = &[("PG_EPOCH", PG_EPOCH)];

/// A lease as one controller sees it; cheap to clone.
#[derive(Debug, Clone)]
pub struct Lease(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: &'static str,
    holder: String,
    period: Duration,
    held: Mutex<Option<Held>>,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    epoch: i64,
    /// The expiry by this process's clock, which is not after the one in the database.
    until: Instant,
}

impl Lease {
    /// A lease that this process may take; it lasts for a period after each renewal.
    pub fn new(name: &'static str, holder: impl Into<String>, period: Duration) -> Self {
        let held = Mutex::default();
        Self(Arc::new(Inner { name, holder: holder.into(), period, held }))
    }

    /// True if this process holds the lease, as far as it knows. Another controller may have taken
    /// it over since; only [`Lease::fence`] is certain.
    pub fn is_held(&self) -> bool {
        self.held().is_some_and(|held| Instant::now() < held.until)
    }

    /// Takes the lease if it is free, or renews it. Returns whether this process holds it.
    ///
    /// # Errors
    /// Store errors only; the lease then lasts as long as before.
    pub async fn renew(&self, store: &Store) -> Result<bool, Error> {
        let begun = Instant::now();
        let inner = Arc::clone(&self.0);
        let epoch = store.write(move |tx| hold(tx, &inner)).await?;
        let held = epoch.map(|epoch| Held { epoch, until: begun + self.0.period });
        *self.0.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
        Ok(held.is_some())
    }

    /// Releases the lease, so that another controller need not wait for its expiry.
    ///
    /// # Errors
    /// Store errors only.
    pub async fn release(&self, store: &Store) -> Result<(), Error> {
        let held = self.0.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(held) = held else { return Ok(()) };
        let inner = Arc::clone(&self.0);
        let release = move |tx: &mut Tx<'_>| {
            let holder = inner.holder.as_str();
            tx.execute(RELEASE, params![inner.name, held.epoch, holder]).map(drop)
        };
        store.write(release).await
    }

    /// Refuses a transaction unless this process holds the lease. It cannot be taken over before the
    /// transaction ends.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the lease is lost, and store errors.
    pub fn fence(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        let sql = if tx.is_postgres() { PG_EPOCH } else { EPOCH };
        // A database that lost a takeover may give its epoch to another holder.
        let now = match tx.row(sql, params![self.0.name])? {
            Some(row) if row.text("holder")? == self.0.holder => Some(row.int("epoch")?),
            Some(_) | None => None,
        };
        match self.held() {
            Some(held) if now == Some(held.epoch) => Ok(()),
            Some(_) | None => Err(Error::Unavailable(format!(
                "another controller holds the lease {}",
                self.0.name
            ))),
        }
    }

    fn held(&self) -> Option<Held> {
        *self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The epoch under which this process holds the lease; `None` while another one holds it.
fn hold(tx: &mut Tx<'_>, lease: &Inner) -> Result<Option<i64>, Error> {
    let now = tx.database_time()?;
    let until = after(now, lease.period);
    let Some(row) = tx.row(LEASE, params![lease.name])? else {
        tx.execute(CREATE, params![lease.name, lease.holder.as_str(), until])?;
        return Ok(Some(1));
    };
    let epoch = row.int("epoch")?;
    if row.text("holder")? == lease.holder {
        // A released lease keeps its holder until another process takes it.
        tx.execute(RENEW, params![lease.name, epoch, until])?;
        return Ok(Some(epoch));
    }
    // With SQLite there is one controller, so a holder of another name has ended.
    if tx.is_postgres() && row.time("expires_at")? > now {
        return Ok(None);
    }
    tx.execute(TAKE, params![lease.name, epoch, lease.holder.as_str(), until])?;
    Ok(Some(epoch + 1))
}

/// The expiry of a lease and the present time, both by the database's clock. `None` if it was never
/// held.
///
/// # Errors
/// Store errors only.
pub async fn expiry(
    store: &Store,
    name: &'static str,
) -> Result<Option<(Timestamp, Timestamp)>, Error> {
    store
        .read(move |tx| {
            let now = tx.database_time()?;
            let row = tx.row(LEASE, params![name])?;
            row.map(|row| Ok((row.time("expires_at")?, now))).transpose()
        })
        .await
}

fn after(now: Timestamp, period: Duration) -> Timestamp {
    let period = SignedDuration::try_from(period).unwrap_or(SignedDuration::MAX);
    now.checked_add(period).unwrap_or(Timestamp::MAX)
}
