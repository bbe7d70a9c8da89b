//! Reads mixed cards and their handles, to explain why a server was not placed. Each statement has
//! a constant limit, so that its cost does not grow with the cloud.

use kilonova_ids::ResourceClass;
use kilonova_store::{Error, Row, Tx, params, statements};

use super::handles::{MixedCard, mixed_card};
use crate::states::{AttachType, HandleState};

/// A handle of a mixed card.
pub(crate) struct CardHandle {
    pub id: i64,
    pub attach_type: AttachType,
    pub address: String,
    pub mdev_type: String,
    pub one_type: bool,
    pub state: HandleState,
    pub present: bool,
    pub resource_class: ResourceClass,
}

impl CardHandle {
    /// True if one of two handles of a mixed card is unavailable while the other is in use. The
    /// choice of free handles follows the same rule (`withheld::is_excluded!`).
    pub fn excludes(&self, card: &str, other: &Self) -> bool {
        let is_test = |one: &Self| one.attach_type == AttachType::TestPci;
        let is_mdev = |one: &Self| one.attach_type == AttachType::Mdev;
        let is_typed = |one: &Self| !one.mdev_type.is_empty();
        !is_test(self)
            && !is_test(other)
            && ((self.address == card) != (other.address == card)
                || (self.address == other.address && !(is_mdev(self) && is_mdev(other)))
                || ((self.one_type || other.one_type)
                    && is_typed(self)
                    && is_typed(other)
                    && self.mdev_type != other.mdev_type))
    }
}

statements! {
    /// Mixed cards with a free handle of a class, each with a flag for MIG mode. Only a limited
    /// number of the devices of mixed cards is searched. `CROSS JOIN` fixes SQLite's order of
    /// tables.
    MIXED_CARDS = "SELECT c.host, c.card, CASE WHEN EXISTS (SELECT 1 FROM devices m
            WHERE m.host = c.host AND m.card = c.card AND m.mig IS NOT NULL) THEN 1 ELSE 0 END AS is_mig
        FROM (SELECT d.host, d.card FROM (SELECT id, host, card FROM devices WHERE mixed = 1 ORDER BY host, card LIMIT ?2) d
        CROSS JOIN deployables p
        WHERE p.device_id = d.id AND p.resource_class = ?1
          AND EXISTS (SELECT 1 FROM attach_handles h
            WHERE h.deployable_id = p.id AND h.state = 'free' AND h.present = 1)
        GROUP BY d.host, d.card ORDER BY d.host, d.card LIMIT ?3) c
        ORDER BY c.host, c.card";
    /// The handles of one card.
    ON_CARD = "SELECT o.id, o.attach_type, o.address, o.mdev_type, e.one_type, o.state, o.present,
        q.resource_class FROM devices e CROSS JOIN deployables q CROSS JOIN attach_handles o
        WHERE e.host = ?1 AND e.card = ?2 AND q.device_id = e.id AND o.deployable_id = q.id
        LIMIT ?3";
    /// A deployable of a class.
    OF_CLASS = "SELECT id FROM deployables WHERE resource_class = ?1 LIMIT 1";
}

/// True if any device offers a class.
pub(crate) fn is_offered(tx: &mut Tx<'_>, class: &ResourceClass) -> Result<bool, Error> {
    Ok(tx.row(OF_CLASS, params![class])?.is_some())
}

/// The first `limit` mixed cards with a free handle of a class, each with a flag for MIG mode. Only
/// the first `devices` devices of mixed cards are searched.
pub(crate) fn mixed_cards(
    tx: &mut Tx<'_>,
    class: &ResourceClass,
    devices: i64,
    limit: i64,
) -> Result<Vec<(MixedCard, bool)>, Error> {
    let read = |row: &Row| Ok((mixed_card(row)?, row.bool("is_mig")?));
    tx.rows(MIXED_CARDS, params![class, devices, limit])?.iter().map(read).collect()
}

/// The handles of a card, at most `limit`.
pub(crate) fn on_card(
    tx: &mut Tx<'_>,
    card: &MixedCard,
    limit: i64,
) -> Result<Vec<CardHandle>, Error> {
    let read = |row: &Row| {
        Ok(CardHandle {
            id: row.int("id")?,
            attach_type: AttachType::read(row, "attach_type")?,
            address: row.string("address")?,
            mdev_type: row.string("mdev_type")?,
            one_type: row.bool("one_type")?,
            state: HandleState::read(row, "state")?,
            present: row.bool("present")?,
            resource_class: row.class("resource_class")?,
        })
    };
    tx.rows(ON_CARD, params![&card.host, &card.card, limit])?.iter().map(read).collect()
}
