//! Rows of `enroll_authorities`: the authorities that the cloud has had. Their keys are sealed.

use jiff::Timestamp;
use kilonova_store::{Error, Row, Tx, params, statements};

statements! {
    /// All authorities.
    ALL = "SELECT number, fingerprint, certificate, state, made_at, trusted_until
        FROM enroll_authorities ORDER BY number";
    /// Adds an authority.
    ADD = "INSERT INTO enroll_authorities (number, fingerprint, certificate, state, made_at)
        VALUES (?1, ?2, ?3, ?4, ?5)";
    /// Changes the state of an authority.
    SET = "UPDATE enroll_authorities SET state = ?2, trusted_until = ?3 WHERE number = ?1";
    /// The number of the authority that signs.
    SIGNING = "SELECT number FROM enroll_authorities WHERE state = 'signing'";
}

/// The state of an authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorityState {
    /// Hosts begin to trust it; it signs nothing.
    Staged,
    /// It signs the certificates of hosts.
    Signing,
    /// It signed before a rotation, and is still trusted.
    Outgoing,
    /// It is not trusted any more, and its key is deleted.
    Retired,
}

impl AuthorityState {
    /// The word in the database and for operators.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Signing => "signing",
            Self::Outgoing => "outgoing",
            Self::Retired => "retired",
        }
    }

    fn read(text: &str) -> Result<Self, Error> {
        [Self::Staged, Self::Signing, Self::Outgoing, Self::Retired]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| Error::Shape(format!("{text:?} is not the state of an authority")))
    }
}

/// An authority of the cloud, without its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownAuthority {
    /// Its number.
    pub number: i64,
    /// The SHA-256 of its certificate.
    pub fingerprint: String,
    /// Its certificate, PEM.
    pub certificate: String,
    /// Its state.
    pub state: AuthorityState,
    /// When it was created or imported.
    pub made_at: Timestamp,
    /// Until when an outgoing authority is trusted.
    pub trusted_until: Option<Timestamp>,
}

fn known(row: &Row) -> Result<KnownAuthority, Error> {
    Ok(KnownAuthority {
        number: row.int("number")?,
        fingerprint: row.string("fingerprint")?,
        certificate: row.string("certificate")?,
        state: AuthorityState::read(row.text("state")?)?,
        made_at: row.time("made_at")?,
        trusted_until: row.time_opt("trusted_until")?,
    })
}

/// All authorities, the oldest first.
pub(crate) fn all(tx: &mut Tx<'_>) -> Result<Vec<KnownAuthority>, Error> {
    tx.rows(ALL, params![])?.iter().map(known).collect()
}

/// Adds an authority.
pub(crate) fn add(tx: &mut Tx<'_>, one: &KnownAuthority) -> Result<(), Error> {
    let (fingerprint, certificate) = (one.fingerprint.as_str(), one.certificate.as_str());
    let state = one.state.as_str();
    tx.execute(ADD, params![one.number, fingerprint, certificate, state, one.made_at]).map(|_| ())
}

/// Changes the state of an authority.
pub(crate) fn set(
    tx: &mut Tx<'_>,
    number: i64,
    state: AuthorityState,
    trusted_until: Option<Timestamp>,
) -> Result<(), Error> {
    tx.execute(SET, params![number, state.as_str(), trusted_until]).map(|_| ())
}

/// The number of the authority that signs.
pub(crate) fn signing(tx: &mut Tx<'_>) -> Result<Option<i64>, Error> {
    tx.row(SIGNING, params![])?.map(|row| row.int("number")).transpose()
}
