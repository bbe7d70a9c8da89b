//! The part of a provider that cannot be assigned: dirty handles, handles that an assigned one
//! excludes, free handles of a device that is being programmed or is in a closed island, and all
//! handles of a device that is absent or has failed.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_ids::{HostName, ProviderId};
use kilonova_store::{Asked, Error, Row, Tx, params, statements};

use super::handles::{MixedCard, mixed_card};
use super::islands::{Island, closed_of_host, is_closed};
use super::mig;
use crate::states::HealthState;

/// True for a handle `h` of device `d` while a handle that excludes it is assigned or dirty: the
/// card's own function excludes its virtual functions and vice versa, a function that is passed
/// through excludes everything else on it, and on a card with one vGPU type at a time a type excludes
/// the others. [`super::excluded::CardHandle`] has the same rule.
macro_rules! is_excluded {
    () => {
        "EXISTS (
            SELECT 1 FROM attach_handles o JOIN deployables q ON q.id = o.deployable_id
            JOIN devices e ON e.id = q.device_id
            WHERE e.host = d.host AND e.card = d.card AND o.id <> h.id AND o.state <> 'free'
              AND h.attach_type <> 'TEST_PCI' AND o.attach_type <> 'TEST_PCI'
              AND ((h.address = d.card) <> (o.address = d.card) OR (h.address = o.address
                AND (h.attach_type <> 'MDEV' OR o.attach_type <> 'MDEV'))
                OR ((d.one_type = 1 OR e.one_type = 1) AND h.mdev_type <> o.mdev_type
                  AND h.mdev_type <> '' AND o.mdev_type <> '')))"
    };
}
pub(super) use is_excluded;

/// True for a handle `h` of device `d` that is dirty or excluded, or free while an order programs the device or its
/// island is closed. The argument is the condition for a closed island. It should be computed once for each device, for
/// example as a column from [`is_closed!`], because evaluating it for each handle would read all handles of the island
/// each time.
macro_rules! is_withheld {
    ($is_closed:expr) => {
        concat!(
            "(h.state = 'dirty' OR (h.state = 'free' AND h.present = 1 AND (",
            $is_closed,
            " OR EXISTS (SELECT 1 FROM device_orders b WHERE b.open_key = d.uuid)
              OR (d.mixed = 1 AND ",
            is_excluded!(),
            "))))"
        )
    };
}

/// The unavailable part of each provider `p` of the devices that meet a condition: the health of the device, whether
/// the deployable is present, and the number of handles that cannot be assigned. The island is examined once for each
/// device.
macro_rules! on_devices {
    ($devices:expr, $providers:expr) => {
        concat!(
            "SELECT p.provider_id, d.health, p.present, d.host, d.card,
          CASE WHEN d.mig IS NULL OR d.is_closed = 1 THEN 0 ELSE 1 END AS is_mig,
          (SELECT COUNT(*) FROM attach_handles h WHERE h.deployable_id = p.id AND ",
            is_withheld!("d.is_closed = 1"),
            ") AS withheld FROM (WITH found AS MATERIALIZED (
            SELECT d.id, d.uuid, d.health, d.host, d.card, d.mixed, d.one_type, d.mig,
              CASE WHEN ",
            is_closed!(),
            " THEN 1 ELSE 0 END AS is_closed FROM devices d WHERE ",
            $devices,
            ") SELECT * FROM found) d JOIN deployables p ON p.device_id = d.id",
            $providers
        )
    };
}

statements! {
    /// The unavailable part of a provider.
    ON_PROVIDER = on_devices!(
        "d.id = (SELECT device_id FROM deployables WHERE provider_id = ?1)",
        " WHERE p.provider_id = ?1"
    );
    /// The unavailable part of each provider of a card.
    ON_CARD = on_devices!("d.host = ?1 AND d.card = ?2", "");
    /// The unavailable part of each provider of an island.
    ON_ISLAND = on_devices!("d.host = ?1 AND d.island = ?2", "");
    /// The number of handles that cannot be assigned, for each provider of a host that has such handles, and whether
    /// the provider's island is closed. The closed islands depend on the host alone, so the database reads them once.
    /// The statement is a `SELECT`, so that it can be sent ahead with others.
    OF_HOST = concat!(
        "SELECT p.provider_id, COUNT(*) AS withheld, MAX(CASE WHEN d.island IN (",
        closed_of_host!(),
        ") THEN 1 ELSE 0 END) AS is_closed
        FROM attach_handles h JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE d.host = ?1 AND ",
        is_withheld!(concat!("d.island IN (", closed_of_host!(), ")")),
        " GROUP BY p.provider_id"
    );
}

/// The whole provider, regardless of its size.
pub(crate) const ALL: i64 = i64::MAX;

/// The number of handles of a provider that cannot be assigned.
pub(crate) fn on_provider(tx: &mut Tx<'_>, provider: ProviderId) -> Result<i64, Error> {
    Ok(each(tx, [provider], [])?.remove(&provider).unwrap_or(0))
}

/// Like [`on_provider`], for several providers and for all providers of some cards. The number of round trips does not
/// depend on the number of providers or cards.
pub(crate) fn each<'a>(
    tx: &mut Tx<'_>,
    providers: impl IntoIterator<Item = ProviderId>,
    cards: impl IntoIterator<Item = &'a MixedCard>,
) -> Result<BTreeMap<ProviderId, i64>, Error> {
    let mut asked = Vec::new();
    for provider in providers {
        asked.push(tx.ask(ON_PROVIDER, params![provider])?);
    }
    for MixedCard { host, card } in cards {
        asked.push(tx.ask(ON_CARD, params![host, card])?);
    }
    found(tx, asked)
}

/// Like [`on_provider`], for all providers of islands.
pub(crate) fn of_islands<'a>(
    tx: &mut Tx<'_>,
    islands: impl IntoIterator<Item = &'a Island>,
) -> Result<BTreeMap<ProviderId, i64>, Error> {
    let mut asked = Vec::new();
    for Island { host, first } in islands {
        asked.push(tx.ask(ON_ISLAND, params![host, first])?);
    }
    found(tx, asked)
}

/// Like [`of_host`], for a host whose handles this transaction has inserted: only the MIG geometry can make them
/// unavailable.
pub(crate) fn of_new_host(
    tx: &mut Tx<'_>,
    in_mig_mode: impl IntoIterator<Item = MixedCard>,
) -> Result<BTreeMap<ProviderId, i64>, Error> {
    mig_of(tx, in_mig_mode)
}

fn found(tx: &mut Tx<'_>, asked: Vec<Asked>) -> Result<BTreeMap<ProviderId, i64>, Error> {
    let rows = tx.answers(asked)?;
    let (mut all, mut cards) = (BTreeMap::new(), BTreeSet::new());
    for row in &rows {
        let withheld = withheld(row)?;
        all.insert(row.id("provider_id")?, withheld);
        if withheld != ALL && row.bool("is_mig")? {
            cards.insert(mixed_card(row)?);
        }
    }
    let fitting = mig_of(tx, cards)?;
    for (provider, withheld) in all.iter_mut().filter(|(_, withheld)| **withheld != ALL) {
        *withheld = fitting.get(provider).copied().unwrap_or(*withheld);
    }
    Ok(all)
}

/// Like [`on_provider`], for the providers of cards in MIG mode, whose instances need free slices.
fn mig_of(
    tx: &mut Tx<'_>,
    cards: impl IntoIterator<Item = MixedCard>,
) -> Result<BTreeMap<ProviderId, i64>, Error> {
    let asked = cards.into_iter().map(|card| mig::ask(tx, &card)).collect::<Result<Vec<_>, _>>()?;
    let mut all = BTreeMap::new();
    for card in asked {
        all.extend(mig::found(tx, card)?.map(|card| card.withheld()).unwrap_or_default());
    }
    Ok(all)
}

fn withheld(row: &Row) -> Result<i64, Error> {
    match HealthState::read(row, "health")? {
        HealthState::Healthy | HealthState::Degraded if row.bool("present")? => row.int("withheld"),
        HealthState::Healthy | HealthState::Degraded | HealthState::Failed => Ok(ALL),
    }
}

/// Announces [`of_host`].
pub(crate) fn expect_of_host(tx: &mut Tx<'_>, host: &HostName) -> Result<(), Error> {
    tx.expect(OF_HOST, params![host])
}

/// The number of handles that cannot be assigned, by provider of a host. The caller passes its cards in MIG mode.
pub(crate) fn of_host(
    tx: &mut Tx<'_>,
    host: &HostName,
    in_mig_mode: impl IntoIterator<Item = MixedCard>,
) -> Result<BTreeMap<ProviderId, i64>, Error> {
    let rows = tx.rows(OF_HOST, params![host])?;
    let (mut all, mut closed) = (BTreeMap::new(), BTreeSet::new());
    for row in &rows {
        let provider: ProviderId = row.id("provider_id")?;
        all.insert(provider, row.int("withheld")?);
        if row.bool("is_closed")? {
            closed.insert(provider);
        }
    }
    let fitting = mig_of(tx, in_mig_mode)?;
    all.extend(fitting.into_iter().filter(|(provider, _)| !closed.contains(provider)));
    Ok(all)
}
