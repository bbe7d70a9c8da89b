//! Names the cards on which accelerators are free but excluded by assigned ones. Explains to people
//! why a server was not placed.
//!
//! The answer takes a few milliseconds, however large the cloud: each step has a constant limit, so
//! a cloud that exceeds one gets fewer cards named. It must not run in a write transaction.

use std::collections::BTreeSet;

use kilonova_store::{Tx, params, statements};

use crate::Error;

statements! {
    /// Mixed cards with a free handle of a class, among the first devices of mixed cards. `CROSS
    /// JOIN` fixes SQLite's order of tables.
    MIXED_CARDS = "SELECT d.host, d.card
        FROM (SELECT id, host, card FROM devices WHERE mixed = 1 ORDER BY host, card LIMIT ?2) d
        CROSS JOIN deployables p
        WHERE p.device_id = d.id AND p.resource_class = ?1
          AND EXISTS (SELECT 1 FROM attach_handles h
            WHERE h.deployable_id = p.id AND h.state = 'free' AND h.present = 1)
        GROUP BY d.host, d.card ORDER BY d.host, d.card LIMIT ?3";
    /// The handles of one card.
    ON_CARD = "SELECT o.id, o.attach_type, o.address, o.state, o.present, q.resource_class
        FROM devices e CROSS JOIN deployables q CROSS JOIN attach_handles o
        WHERE e.host = ?1 AND e.card = ?2 AND q.device_id = e.id AND o.deployable_id = q.id
        LIMIT ?3";
    /// True if any device offers a class.
    IS_OFFERED = "SELECT 1 FROM deployables WHERE resource_class = ?1 LIMIT 1";
}

/// Maximum number of devices of mixed cards examined.
const DEVICES: i64 = 4096;
/// Maximum number of cards compared.
const CARDS: i64 = 32;
/// Maximum number of handles of a card compared with each other.
const HANDLES: i64 = 512;
/// Maximum number of cards named, and of functions per card.
const NAMED: usize = 3;

/// A handle of a card.
struct Handle {
    id: i64,
    attach_type: String,
    address: String,
    is_free: bool,
    is_wanted: bool,
}

/// Sentences about the cards on which free accelerators of a class are excluded; the first few are
/// named. Empty if there are none.
///
/// # Errors
/// Store errors only.
pub fn excluded(tx: &mut Tx<'_>, class: &str) -> Result<String, Error> {
    if tx.row(IS_OFFERED, params![class])?.is_none() {
        return Ok(String::new());
    }
    let mut named: Vec<String> = Vec::new();
    for row in tx.rows(MIXED_CARDS, params![class, DEVICES, CARDS])? {
        let (host, card) = (row.text(0)?, row.text(1)?);
        let handles = handles(tx, host, card, class)?;
        let taken = taken(card, &handles);
        if taken.is_empty() {
            continue;
        }
        if named.len() == NAMED {
            named.push("The same goes for more cards.".into());
            break;
        }
        named.push(sentence(class, host, card, &taken));
    }
    Ok(named.join(" "))
}

fn handles(tx: &mut Tx<'_>, host: &str, card: &str, class: &str) -> Result<Vec<Handle>, Error> {
    let rows = tx.rows(ON_CARD, params![host, card, HANDLES])?;
    let handle = |row: &kilonova_store::Row| {
        let is_free = row.text(3)? == "free";
        Ok(Handle {
            id: row.int(0)?,
            attach_type: row.string(1)?,
            address: row.string(2)?,
            is_free,
            is_wanted: is_free && row.bool(4)? && row.text(5)? == class,
        })
    };
    rows.iter().map(handle).collect()
}

/// The addresses in use on a card that exclude requested handles.
fn taken<'a>(card: &str, handles: &'a [Handle]) -> BTreeSet<&'a str> {
    let wanted: Vec<&Handle> = handles.iter().filter(|handle| handle.is_wanted).collect();
    let taken = handles.iter().filter(|other| {
        !other.is_free
            && wanted.iter().any(|handle| handle.id != other.id && excludes(card, handle, other))
    });
    taken.map(|other| other.address.as_str()).collect()
}

/// True if one handle of a mixed card is unavailable while another is in use: the same rule as in
/// the choice of free handles (`db::handles::FREE`).
fn excludes(card: &str, one: &Handle, other: &Handle) -> bool {
    let is_test = one.attach_type == "TEST_PCI" || other.attach_type == "TEST_PCI";
    let are_mdevs = one.attach_type == "MDEV" && other.attach_type == "MDEV";
    !is_test
        && ((one.address == card) != (other.address == card)
            || (one.address == other.address && !are_mdevs))
}

fn sentence(class: &str, host: &str, card: &str, taken: &BTreeSet<&str>) -> String {
    let by = if taken.contains(card) {
        format!("{card} is in use whole")
    } else {
        let named: Vec<&str> = taken.iter().take(NAMED).copied().collect();
        let more = if taken.len() > NAMED { " and more" } else { "" };
        format!("{}{more} of it is in use", named.join(", "))
    };
    format!("No {class} is to be had of card {card} of host {host}: {by}.")
}
