//! Names the cards whose free accelerators are excluded by assigned ones, to explain why a server
//! was not placed.
//!
//! The answer takes a few milliseconds in a cloud of any size: each step has a constant limit, so in a cloud that
//! exceeds a limit, fewer cards are named. The search must not run in a write transaction.

use std::collections::BTreeSet;

use kilonova_ids::ResourceClass;
use kilonova_store::Tx;

use crate::Error;
use crate::db::excluded::{self as rows, CardHandle};
use crate::db::handles::MixedCard;
use crate::db::mig;
use crate::states::HandleState;

/// Maximum number of devices of mixed cards examined.
const DEVICES: i64 = 4096;
/// Maximum number of cards compared.
const CARDS: i64 = 32;
/// Maximum number of handles of a card compared with each other.
const HANDLES: i64 = 512;
/// Maximum number of cards named, and of functions per card.
const NAMED: usize = 3;

/// One sentence for each of the first few cards on which free accelerators of a class are excluded.
/// Empty if there are none.
///
/// # Errors
/// Store errors only.
pub fn excluded(tx: &mut Tx<'_>, class: &ResourceClass) -> Result<String, Error> {
    if !rows::is_offered(tx, class)? {
        return Ok(String::new());
    }
    let mut named: Vec<String> = Vec::new();
    for (card, is_mig) in rows::mixed_cards(tx, class, DEVICES, CARDS)? {
        let handles = rows::on_card(tx, &card, HANDLES)?;
        let mig = if is_mig { mig::of_card(tx, &card)? } else { None };
        let words = match mig {
            Some(mig) => mig.shortage(types(class, &handles)),
            None => {
                let excluding = excluding(&card.card, class, &handles);
                (!excluding.is_empty()).then(|| words(&card.card, &excluding))
            }
        };
        let Some(words) = words else { continue };
        if named.len() == NAMED {
            named.push("The same applies to more cards.".into());
            break;
        }
        named.push(sentence(class, &card, &words));
    }
    Ok(named.join(" "))
}

/// The vGPU types of a class.
fn types<'a>(class: &ResourceClass, handles: &'a [CardHandle]) -> impl Iterator<Item = &'a str> {
    let is_requested =
        move |handle: &&CardHandle| handle.present && handle.resource_class == *class;
    handles.iter().filter(is_requested).map(|handle| handle.mdev_type.as_str())
}

/// The handles in use on a card that exclude free handles of a class.
fn excluding<'a>(
    card: &str,
    class: &ResourceClass,
    handles: &'a [CardHandle],
) -> Vec<&'a CardHandle> {
    let is_free = |handle: &CardHandle| handle.state == HandleState::Free;
    let is_requested =
        |handle: &&CardHandle| is_free(handle) && handle.present && handle.resource_class == *class;
    let requested: Vec<&CardHandle> = handles.iter().filter(is_requested).collect();
    let excluding = handles.iter().filter(|other| {
        let excludes = |handle: &&CardHandle| handle.id != other.id && handle.excludes(card, other);
        !is_free(other) && requested.iter().any(excludes)
    });
    excluding.collect()
}

/// The use of the card by these handles, as the end of a sentence.
fn words(card: &str, excluding: &[&CardHandle]) -> String {
    let is_typed = |handle: &&&CardHandle| handle.one_type && !handle.mdev_type.is_empty();
    let types: BTreeSet<&str> =
        excluding.iter().filter(is_typed).map(|handle| handle.mdev_type.as_str()).collect();
    if excluding.iter().all(|handle| is_typed(&handle)) {
        return format!("it is in use as {}", types.into_iter().collect::<Vec<_>>().join(", "));
    }
    let taken: BTreeSet<&str> = excluding.iter().map(|handle| handle.address.as_str()).collect();
    if taken.contains(card) {
        return "the whole card is in use".to_owned();
    }
    let named: Vec<&str> = taken.iter().take(NAMED).copied().collect();
    let more = if taken.len() > NAMED { " and more" } else { "" };
    format!("{}{more} in use", named.join(", "))
}

fn sentence(class: &ResourceClass, MixedCard { host, card }: &MixedCard, by: &str) -> String {
    format!("Card {card} of host {host} has no free {class}: {by}.")
}
