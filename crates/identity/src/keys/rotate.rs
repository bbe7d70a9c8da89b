//! Rotation as in `keystone-manage fernet_rotate`: the staged key becomes the primary, a new key is
//! staged, and the oldest secondary keys beyond the limit are deleted.
//!
//! A secondary key stays, even beyond the limit, while a token that it signed may still be valid.

use jiff::{SignedDuration, Timestamp};
use kilonova_changes::Topic;
use kilonova_seal::Vault;
use kilonova_store::Store;
use kilonova_wire::time;

use super::{KIND, STAGED, SUBJECT, import};
use crate::Error;
use crate::db::keys as db;

/// The role of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRole {
    /// It signs after the next rotation.
    Staged,
    /// It signs.
    Primary,
    /// It signed before a rotation.
    Secondary,
}

impl KeyRole {
    /// The name shown to operators.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Primary => "primary",
            Self::Secondary => "secondary",
        }
    }
}

/// A key in the form shown to operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenKey {
    /// Its number.
    pub number: i64,
    /// Its role.
    pub role: KeyRole,
    /// When it was created.
    pub made_at: Timestamp,
    /// When it ceased to sign.
    pub retired_at: Option<Timestamp>,
}

/// The outcome of a rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotated {
    /// The key that signs now.
    pub primary: i64,
    /// The deleted keys.
    pub deleted: Vec<i64>,
    /// Keys beyond the limit that stay until the tokens that they signed have expired.
    pub kept: Vec<i64>,
}

/// The keys of a cloud.
///
/// # Errors
/// A database error.
pub(crate) async fn list(store: &Store) -> Result<Vec<TokenKey>, Error> {
    let read = store.read(|tx| {
        let (sealed, retired) = (Vault::sealed(tx, KIND)?, db::all(tx)?);
        let primary = sealed.iter().map(|one| one.number).max().unwrap_or(STAGED);
        let keys = sealed.iter().map(|one| TokenKey {
            number: one.number,
            role: match one.number {
                STAGED => KeyRole::Staged,
                number if number == primary => KeyRole::Primary,
                _ => KeyRole::Secondary,
            },
            made_at: one.made_at,
            retired_at: retired.iter().find(|(number, _)| *number == one.number).and_then(|o| o.1),
        });
        Ok(keys.collect())
    });
    read.await
}

/// Rotates the keys in one transaction. `most` bounds their number, including the staged one.
///
/// # Errors
/// [`Error::Keys`] if there are no keys; [`Error::Seal`] if the sealing key is missing.
pub(crate) async fn rotate(
    vault: &Vault,
    most: usize,
    token_expiration: SignedDuration,
) -> Result<Rotated, Error> {
    let (sealing, now) = (vault.clone(), time::now());
    let rotated = vault.store().write(move |tx| {
        let all = Vault::sealed(tx, KIND)?;
        let primary = all.iter().map(|one| one.number).max().unwrap_or(STAGED);
        let staged = all.iter().find(|one| one.number == STAGED);
        let (Some(staged), true) = (staged, primary > STAGED) else {
            return Err(Error::Keys(
                "the database has no token keys yet: start kilonova serve first".to_owned(),
            ));
        };
        let next = primary + 1;
        let secret = sealing.open_one(staged)?;
        db::retire(tx, primary, now)?;
        Vault::delete(tx, KIND, STAGED)?;
        sealing.add(tx, KIND, next, &secret, staged.made_at)?;
        db::add(tx, next, None)?;
        sealing.add(tx, KIND, STAGED, &import::new(), now)?;
        kilonova_changes::append(tx, Topic::Identity, SUBJECT, 0)?;
        let retired = db::all(tx)?;
        let secondary = all.iter().map(|one| one.number).filter(|number| *number > STAGED);
        let mut outcome = Rotated { primary: next, deleted: Vec::new(), kept: Vec::new() };
        // The staged and the new primary key count too.
        let mut count = all.len() + 1;
        for number in secondary {
            if count - outcome.kept.len() <= most.max(2) {
                break;
            }
            let at = retired.iter().find(|(other, _)| *other == number).and_then(|one| one.1);
            // An imported key has no retirement time. It cannot have signed after its import.
            let at = at.or_else(|| all.iter().find(|o| o.number == number).map(|o| o.made_at));
            if at.is_some_and(|at| time::after(at, token_expiration) > now) {
                outcome.kept.push(number);
            } else {
                Vault::delete(tx, KIND, number)?;
                db::delete(tx, number)?;
                outcome.deleted.push(number);
                count -= 1;
            }
        }
        Ok(outcome)
    });
    rotated.await
}
