//! Which cards have something free that cannot be had, because what excludes it is in use. Said for
//! people, when a server found no place.

use std::collections::BTreeMap;

use kilonova_store::{Tx, params, statements};

use crate::Error;

statements! {
    /// Free handles of a class on mixed cards, and what is taken there that excludes them.
    EXCLUDED = "SELECT DISTINCT d.host, d.card, o.address FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        JOIN devices e ON e.host = d.host AND e.card = d.card
        JOIN deployables q ON q.device_id = e.id JOIN attach_handles o ON o.deployable_id = q.id
        WHERE p.resource_class = ?1 AND d.mixed = 1 AND h.state = 'free' AND h.present = 1
          AND o.id <> h.id AND o.state <> 'free'
          AND h.attach_type <> 'TEST_PCI' AND o.attach_type <> 'TEST_PCI'
          AND ((h.address = d.card) <> (o.address = d.card) OR (h.address = o.address
            AND (h.attach_type <> 'MDEV' OR o.attach_type <> 'MDEV')))
        ORDER BY d.host, d.card, o.address LIMIT ?2";
}

/// Rows looked at; a cloud may have thousands of cards in use.
const ROWS: i64 = 200;
/// Cards named, and functions of each.
const NAMED: usize = 3;

/// The cards on which free accelerators of a class cannot be had, as sentences; the first few by
/// name. Nothing when there are none.
///
/// # Errors
/// Only the store's.
pub fn excluded(tx: &mut Tx<'_>, class: &str) -> Result<String, Error> {
    let mut cards: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for row in tx.rows(EXCLUDED, params![class, ROWS])? {
        cards.entry((row.string(0)?, row.string(1)?)).or_default().push(row.string(2)?);
    }
    let named: Vec<String> = cards
        .iter()
        .take(NAMED)
        .map(|((host, card), taken)| {
            let mut by =
                taken.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            if taken.len() > NAMED {
                by.push_str(" and more");
            }
            if taken.contains(card) {
                by = format!("{card} is in use whole");
            } else {
                by.push_str(" of it is in use");
            }
            format!("No {class} is to be had of card {card} of host {host}: {by}.")
        })
        .collect();
    let mut text = named.join(" ");
    if cards.len() > NAMED {
        text.push_str(" The same goes for more cards.");
    }
    Ok(text)
}
