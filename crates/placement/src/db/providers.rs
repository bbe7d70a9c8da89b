//! Rows of `resource_providers`.

use std::collections::HashSet;

use jiff::Timestamp;
use kilonova_ids::ProviderId;
use kilonova_store::{Asked, Error, Row, Tx, Value, params, statements};

/// The columns of a [`ProviderRow`].
macro_rules! columns {
    () => {
        "id, name, parent_id, root_id, generation, version, reported, updated_at"
    };
}

/// Increments the generation of a provider.
macro_rules! bump {
    () => {
        "UPDATE resource_providers
        SET generation = generation + 1, version = version + 1, updated_at = ?2 WHERE id = ?1"
    };
}

statements! {
    /// All providers in order of creation.
    ALL = concat!("SELECT ", columns!(), " FROM resource_providers
        ORDER BY seq");
    /// One provider.
    BY_ID = concat!("SELECT ", columns!(), " FROM resource_providers
        WHERE id = ?1");
    /// One provider by its unique name.
    BY_NAME = concat!("SELECT ", columns!(), " FROM resource_providers
        WHERE name = ?1");
    /// A whole tree in order of creation, in which a child may precede its parent.
    OF_ROOT = concat!("SELECT ", columns!(), " FROM resource_providers
        WHERE root_id = ?1 ORDER BY seq");
    /// Direct children.
    CHILDREN = "SELECT id FROM resource_providers WHERE parent_id = ?1";
    /// Inserts providers, except those whose id or name exists. The version starts at the current time, so that it
    /// exceeds that of a deleted provider with the same id.
    INSERT = "INSERT INTO resource_providers
        (id, name, parent_id, root_id, generation, version, reported, updated_at, report)
        VALUES ({}, {}, {}, {}, {}, {}, {}, {}, {}) ON CONFLICT DO NOTHING RETURNING id";
    /// Increments the version and the generation; clients see the latter.
    BUMP = concat!(bump!(), " RETURNING generation, version, root_id");
    /// The same for a caller that does not need the counters.
    DEFERRED_BUMP = bump!();
    /// The same for up to [`MAX_BUMPS`] providers.
    BUMP_SOME = "UPDATE resource_providers
        SET generation = generation + 1, version = version + 1, updated_at = ?1
        WHERE id IN (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    /// Increments the version but not the generation.
    TOUCH = "UPDATE resource_providers SET version = version + 1
        WHERE id = ?1 RETURNING generation, version, root_id";
    /// The same for a caller that does not need the counters.
    DEFERRED_TOUCH = "UPDATE resource_providers SET version = version + 1 WHERE id = ?1";
    /// Records a change to the tree, and clears the fingerprint of its last report.
    CHANGED = "UPDATE resource_providers SET version = version + 1, report = NULL WHERE id = ?1";
    /// The fingerprint of the report that the tree matches.
    REPORT = "SELECT report FROM resource_providers WHERE id = ?1";
    /// The numbers of a tree's providers and inventories that its host reported.
    REPORTED_BELOW = "SELECT COUNT(*) AS providers, (SELECT COUNT(*) FROM inventories i
            JOIN resource_providers o ON o.id = i.provider_id
            WHERE o.root_id = ?1 AND i.reported_reserved IS NOT NULL) AS inventories
        FROM resource_providers WHERE root_id = ?1 AND reported = 1";
    /// Clears the fingerprint, so that the next report is compared even if it is unchanged.
    CLEAR_REPORT = "UPDATE resource_providers SET report = NULL WHERE report IS NOT NULL
        AND id = (SELECT p.root_id FROM resource_providers p WHERE p.id = ?1)";
    /// Sets the fingerprint of the report that the tree matches.
    SET_REPORT = "UPDATE resource_providers SET report = ?2 WHERE id = ?1";
    /// Updates name and position in the tree.
    SET_NAME_AND_POSITION = "UPDATE resource_providers SET name = ?2, parent_id = ?3, root_id = ?4,
        version = version + 1, updated_at = ?5 WHERE id = ?1";
    /// Marks the provider as reported by its host.
    MARK_REPORTED = "UPDATE resource_providers SET reported = 1 WHERE id = ?1";
    /// Deletes a provider.
    DELETE = "DELETE FROM resource_providers WHERE id = ?1";
}

/// The maximum number of providers in [`BUMP_SOME`].
const MAX_BUMPS: usize = 8;

/// Statements for PostgreSQL only.
pub const POSTGRES_STATEMENTS: &[(&str, &str)] = &[("PG_LOCK_TREE", PG_LOCK_TREE)];
const PG_LOCK_TREE: &str = "SELECT id FROM resource_providers WHERE root_id = ?1 OR root_id = ?2
    ORDER BY id FOR NO KEY UPDATE";

/// Makes other writers to these trees wait for the end of the transaction. Claims lock single
/// providers in the order of their ids. A transaction that writes several providers of a tree in
/// another order must call this first to prevent deadlocks. SQLite has only one writer.
pub fn lock_trees(tx: &mut Tx<'_>, one: ProviderId, other: ProviderId) -> Result<(), Error> {
    if tx.is_postgres() {
        tx.rows(PG_LOCK_TREE, params![one, other])?;
    }
    Ok(())
}

/// Like [`lock_trees`], for one tree.
pub fn lock_tree(tx: &mut Tx<'_>, root: ProviderId) -> Result<(), Error> {
    lock_trees(tx, root, root)
}

/// A row of `resource_providers`.
#[derive(Debug, Clone)]
pub struct ProviderRow {
    /// Its UUID.
    pub id: ProviderId,
    /// Unique name.
    pub name: String,
    /// Parent; `None` for a root.
    pub parent: Option<ProviderId>,
    /// Root of its tree; itself for a root.
    pub root: ProviderId,
    /// The generation that clients see.
    pub generation: i64,
    /// Increases with every change, so that the in-memory copy can ignore an older state.
    pub version: i64,
    /// True if a host reports it.
    pub reported: bool,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

fn read(row: &Row) -> Result<ProviderRow, Error> {
    Ok(ProviderRow {
        id: row.id("id")?,
        name: row.string("name")?,
        parent: row.id_opt("parent_id")?,
        root: row.id("root_id")?,
        generation: row.int("generation")?,
        version: row.int("version")?,
        reported: row.bool("reported")?,
        updated_at: row.time("updated_at")?,
    })
}

/// All providers in order of creation.
pub fn all(tx: &mut Tx<'_>) -> Result<Vec<ProviderRow>, Error> {
    tx.rows(ALL, params![])?.iter().map(read).collect()
}

/// One provider.
pub fn by_id(tx: &mut Tx<'_>, id: ProviderId) -> Result<Option<ProviderRow>, Error> {
    tx.row(BY_ID, params![id])?.as_ref().map(read).transpose()
}

/// Announces [`by_name`].
pub fn expect_by_name(tx: &mut Tx<'_>, name: &str) -> Result<(), Error> {
    tx.expect(BY_NAME, params![name])
}

/// One provider by name.
pub fn by_name(tx: &mut Tx<'_>, name: &str) -> Result<Option<ProviderRow>, Error> {
    tx.row(BY_NAME, params![name])?.as_ref().map(read).transpose()
}

/// The providers of a tree.
pub fn of_root(tx: &mut Tx<'_>, root: ProviderId) -> Result<Vec<ProviderRow>, Error> {
    rows(&tx.rows(OF_ROOT, params![root])?)
}

/// The providers in rows of [`OF_ROOT`].
pub fn rows(rows: &[Row]) -> Result<Vec<ProviderRow>, Error> {
    rows.iter().map(read).collect()
}

/// A provider to insert.
#[derive(Debug, Clone, Copy)]
pub struct NewProvider<'a> {
    /// Its UUID.
    pub id: ProviderId,
    /// Unique name.
    pub name: &'a str,
    /// Parent; `None` for a root.
    pub parent: Option<ProviderId>,
    /// Root of its tree; itself for a root.
    pub root: ProviderId,
    /// True if a host reports it.
    pub reported: bool,
    /// The generation that clients see.
    pub generation: i64,
    /// The fingerprint of the report that the tree of this root matches.
    pub report: Option<&'a str>,
}

impl<'a> NewProvider<'a> {
    /// A provider that no client has changed yet.
    pub fn new(
        id: ProviderId,
        name: &'a str,
        parent: Option<ProviderId>,
        root: ProviderId,
    ) -> Self {
        Self { id, name, parent, root, reported: false, generation: 0, report: None }
    }
}

/// Inserts a provider; returns false if its id or name exists.
pub fn insert(tx: &mut Tx<'_>, new: NewProvider<'_>, now: Timestamp) -> Result<bool, Error> {
    let asked = ask_insert(tx, &[new], now)?;
    Ok(inserted(tx, asked)?.contains(&new.id))
}

/// Asks for [`insert`], for several providers.
pub fn ask_insert(
    tx: &mut Tx<'_>,
    new: &[NewProvider<'_>],
    now: Timestamp,
) -> Result<Vec<Asked>, Error> {
    let row = |new: &NewProvider<'_>| -> [Value; 9] {
        [
            new.id.into(),
            new.name.into(),
            new.parent.into(),
            new.root.into(),
            new.generation.into(),
            now.into(),
            new.reported.into(),
            now.into(),
            new.report.into(),
        ]
    };
    let rows: Vec<_> = new.iter().map(row).collect();
    tx.ask_rows(INSERT, &rows)
}

/// The providers that [`ask_insert`] inserted.
pub fn inserted(tx: &mut Tx<'_>, asked: Vec<Asked>) -> Result<HashSet<ProviderId>, Error> {
    tx.answers(asked)?.iter().map(|row| row.id("id")).collect()
}

/// Writes name and position in the tree.
pub fn set_name_and_position(
    tx: &mut Tx<'_>,
    id: ProviderId,
    name: &str,
    parent: Option<ProviderId>,
    root: ProviderId,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(SET_NAME_AND_POSITION, params![id, name, parent, root, now])
}

/// Marks the provider as reported by its host.
pub fn mark_reported(tx: &mut Tx<'_>, id: ProviderId) -> Result<(), Error> {
    tx.defer(MARK_REPORTED, params![id])
}

/// Deletes a provider, which must have no inventories, traits, aggregates or allocations.
pub fn delete(tx: &mut Tx<'_>, id: ProviderId) -> Result<(), Error> {
    tx.defer(DELETE, params![id])
}

/// True if the provider has children.
pub fn has_children(tx: &mut Tx<'_>, id: ProviderId) -> Result<bool, Error> {
    Ok(tx.row(CHILDREN, params![id])?.is_some())
}

/// The counters of a provider after a change.
#[derive(Debug, Clone, Copy)]
pub struct Counters {
    /// The generation that clients see.
    pub generation: i64,
    /// Increases with every change.
    pub version: i64,
    /// The root of its tree.
    pub root: ProviderId,
}

fn counters(row: Option<Row>) -> Result<Option<Counters>, Error> {
    let read = |row: Row| {
        Ok(Counters {
            generation: row.int("generation")?,
            version: row.int("version")?,
            root: row.id("root_id")?,
        })
    };
    row.map(read).transpose()
}

/// Increments generation and version; `None` if the provider does not exist.
pub fn bump(tx: &mut Tx<'_>, id: ProviderId, now: Timestamp) -> Result<Option<Counters>, Error> {
    let asked = ask_bump(tx, id, now)?;
    bumped(tx, asked)
}

/// Asks for [`bump`].
pub fn ask_bump(tx: &mut Tx<'_>, id: ProviderId, now: Timestamp) -> Result<Asked, Error> {
    tx.ask(BUMP, params![id, now])
}

/// A [`bump`] without its counters.
pub fn defer_bump(tx: &mut Tx<'_>, id: ProviderId, now: Timestamp) -> Result<(), Error> {
    tx.defer(DEFERRED_BUMP, params![id, now])
}

/// [`defer_bump`] for several providers.
pub fn defer_bumps(tx: &mut Tx<'_>, ids: &[ProviderId], now: Timestamp) -> Result<(), Error> {
    for some in ids.chunks(MAX_BUMPS) {
        let mut params = vec![Value::from(now)];
        params.extend(some.iter().map(|id| Value::from(*id)));
        params.resize(MAX_BUMPS + 1, some.last().map(|id| Value::from(*id)).into());
        tx.defer(BUMP_SOME, &params)?;
    }
    Ok(())
}

/// The counters as [`ask_bump`] set them.
pub fn bumped(tx: &mut Tx<'_>, asked: Asked) -> Result<Option<Counters>, Error> {
    let row = tx.answer_row(asked)?;
    counters(row)
}

/// Increments the version of a root and clears the fingerprint of its last report, after a change to its tree.
pub fn changed(tx: &mut Tx<'_>, root: ProviderId) -> Result<(), Error> {
    tx.defer(CHANGED, params![root])?;
    Ok(())
}

/// The fingerprint of the report that the tree matches, if nothing has changed the tree since.
pub fn report(tx: &mut Tx<'_>, root: ProviderId) -> Result<Option<String>, Error> {
    Ok(tx.row(REPORT, params![root])?.map(|row| row.string_opt("report")).transpose()?.flatten())
}

/// Sets the fingerprint of the report that the tree matches.
pub fn set_report(tx: &mut Tx<'_>, root: ProviderId, fingerprint: &str) -> Result<(), Error> {
    tx.defer(SET_REPORT, params![root, fingerprint])
}

/// Clears the fingerprint of a provider's tree, so that the next report is compared even if it is
/// unchanged.
pub fn clear_report(tx: &mut Tx<'_>, id: ProviderId) -> Result<(), Error> {
    tx.defer(CLEAR_REPORT, params![id])
}

/// Asks for [`reported_below`].
pub fn ask_reported_below(tx: &mut Tx<'_>, root: ProviderId) -> Result<Asked, Error> {
    tx.ask(REPORTED_BELOW, params![root])
}

/// The numbers of the tree's providers and inventories that its host reported.
pub fn reported_below(tx: &mut Tx<'_>, asked: Asked) -> Result<(i64, i64), Error> {
    let row = tx.answer_row(asked)?;
    row.map_or(Ok((0, 0)), |row| Ok((row.int("providers")?, row.int("inventories")?)))
}

/// Increments only the version; `None` if the provider does not exist.
pub fn touch(tx: &mut Tx<'_>, id: ProviderId) -> Result<Option<Counters>, Error> {
    counters(tx.row(TOUCH, params![id])?)
}

/// A [`touch`] without its counters.
pub fn defer_touch(tx: &mut Tx<'_>, id: ProviderId) -> Result<(), Error> {
    tx.defer(DEFERRED_TOUCH, params![id])
}
