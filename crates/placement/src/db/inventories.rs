//! Rows of `inventories`: a provider's inventory of a class and its usage.

use std::collections::HashMap;

use jiff::Timestamp;
use kilonova_engine::Inventory;
use kilonova_ids::{ProviderId, ResourceClass};
use kilonova_store::{Asked, Error, Row, Tx, Value, params, statements};

/// The columns of an [`InventoryRow`].
macro_rules! columns {
    () => {
        "class, total, reserved, min_unit, max_unit, step_size, allocation_ratio, used, \
         reported_reserved, operator_reserved, updated_at"
    };
}

/// Adds amounts of up to four classes to the usage of a provider.
macro_rules! claim {
    () => {
        "UPDATE inventories SET used = used + CASE class WHEN ?2 THEN CAST(?3 AS BIGINT)
        WHEN ?4 THEN CAST(?5 AS BIGINT) WHEN ?6 THEN CAST(?7 AS BIGINT)
        WHEN ?8 THEN CAST(?9 AS BIGINT) ELSE 0 END WHERE provider_id = ?1"
    };
}

statements! {
    /// A provider's inventories.
    OF_PROVIDER = concat!("SELECT ", columns!(), " FROM inventories
        WHERE provider_id = ?1 ORDER BY class");
    /// The inventories of all providers of a tree.
    OF_ROOT = concat!("SELECT provider_id, ", columns!(), " FROM inventories WHERE provider_id IN
        (SELECT id FROM resource_providers WHERE root_id = ?1) ORDER BY provider_id, class");
    /// The inventories of some providers, with the roots of their trees.
    OF_SOME = concat!("SELECT provider_id, (SELECT p.root_id FROM resource_providers p
        WHERE p.id = provider_id) AS root_id, ", columns!(), " FROM inventories
        WHERE provider_id IN ({}) ORDER BY provider_id, class");
    /// The classes of a provider with their usage.
    USED = "SELECT class, used FROM inventories WHERE provider_id = ?1";
    /// Inserts inventories without usage.
    INSERT = "INSERT INTO inventories (provider_id, class, total, reserved, min_unit, max_unit,
        step_size, allocation_ratio, reported_reserved, operator_reserved, updated_at, used)
        VALUES ({}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})";
    /// Updates everything except the usage.
    UPDATE = "UPDATE inventories SET total = ?3, reserved = ?4, min_unit = ?5, max_unit = ?6,
        step_size = ?7, allocation_ratio = ?8, reported_reserved = ?9, operator_reserved = ?10,
        updated_at = ?11, shrunk = CASE WHEN used > CAST(?3 AS BIGINT) * CAST(?8 AS DOUBLE PRECISION)
        THEN 1 ELSE 0 END WHERE provider_id = ?1 AND class = ?2";
    /// Updates the reserved amounts of inventories that exist. The transaction also writes the row
    /// of the provider, so no other transaction can delete the inventories meanwhile.
    RESERVE = "INSERT INTO inventories (provider_id, class, total, reserved, min_unit, max_unit,
        step_size, allocation_ratio, reported_reserved, operator_reserved, updated_at, used)
        VALUES ({}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
        ON CONFLICT (provider_id, class) DO UPDATE SET reserved = excluded.reserved,
        reported_reserved = excluded.reported_reserved, updated_at = excluded.updated_at";
    /// Raises a device's `reserved` to the amount that its host cannot offer, if it is lower.
    WITHHOLD = "UPDATE inventories SET reserved = reported_reserved WHERE provider_id = ?1
        AND reported_reserved > reserved AND EXISTS (SELECT 1 FROM resource_providers p
        WHERE p.id = ?1 AND p.parent_id IS NOT NULL)";
    /// Claims amounts of up to four classes and returns the resulting rows, which show whether the
    /// amounts fit and what usage to publish.
    CLAIM = concat!(claim!(), " RETURNING ", columns!());
    /// Like [`CLAIM`], with negative amounts: releases them, and returns the usage to publish and the
    /// provider's version.
    RELEASE = concat!(claim!(), " RETURNING class, used,
        (SELECT p.version FROM resource_providers p WHERE p.id = ?1) AS version");
    /// Claims the first amounts of a claim with more than four classes.
    CLAIM_FIRST = claim!();
    /// Adds an amount to the usage, or subtracts it. The caller has checked the capacity.
    ADD_USAGE = "UPDATE inventories SET used = used + ?3 WHERE provider_id = ?1 AND class = ?2";
    /// Deletes an inventory without usage.
    DELETE_IDLE = "DELETE FROM inventories WHERE provider_id = ?1 AND class = ?2 AND used = 0";
    /// Deletes all inventories of a provider.
    DELETE_ALL = "DELETE FROM inventories WHERE provider_id = ?1";
    /// A provider with an inventory of a class.
    CLASS_IN_USE = "SELECT provider_id FROM inventories WHERE class = ?1 LIMIT 1";
}

/// A row of `inventories`.
#[derive(Debug, Clone)]
pub struct InventoryRow {
    /// Resource class.
    pub class: ResourceClass,
    /// Its amounts and limits.
    pub inventory: Inventory,
    /// `reserved` as the host last reported it.
    pub reported_reserved: Option<i64>,
    /// `reserved` as an operator set it.
    pub operator_reserved: Option<i64>,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

fn read(row: &Row) -> Result<InventoryRow, Error> {
    Ok(InventoryRow {
        class: row.class("class")?,
        inventory: numbers(row)?,
        reported_reserved: row.int_opt("reported_reserved")?,
        operator_reserved: row.int_opt("operator_reserved")?,
        updated_at: row.time("updated_at")?,
    })
}

/// Reads the amounts and limits of an inventory.
pub(super) fn numbers(row: &Row) -> Result<Inventory, Error> {
    Ok(Inventory {
        total: row.int("total")?,
        reserved: row.int("reserved")?,
        min_unit: row.int("min_unit")?,
        max_unit: row.int("max_unit")?,
        step_size: row.int("step_size")?,
        allocation_ratio: row.real("allocation_ratio")?,
        used: row.int("used")?,
    })
}

/// A provider's inventories, by class.
pub fn of_provider(tx: &mut Tx<'_>, id: ProviderId) -> Result<Vec<InventoryRow>, Error> {
    tx.rows(OF_PROVIDER, params![id])?.iter().map(read).collect()
}

/// Announces [`of_root`].
pub fn expect_of_root(tx: &mut Tx<'_>, root: ProviderId) -> Result<(), Error> {
    tx.expect(OF_ROOT, params![root])
}

/// The inventories of the providers of a tree, ordered by class within each provider.
pub fn of_root(
    tx: &mut Tx<'_>,
    root: ProviderId,
) -> Result<HashMap<ProviderId, Vec<InventoryRow>>, Error> {
    let mut found: HashMap<ProviderId, Vec<InventoryRow>> = HashMap::new();
    for row in tx.rows(OF_ROOT, params![root])? {
        found.entry(row.id("provider_id")?).or_default().push(read(&row)?);
    }
    Ok(found)
}

/// Asks for the inventories of some providers; [`found`] reads the answer.
pub fn ask_of(tx: &mut Tx<'_>, providers: &[ProviderId]) -> Result<Vec<Asked>, Error> {
    let providers: Vec<Value> = providers.iter().map(|id| Value::from(*id)).collect();
    tx.ask_list(OF_SOME, &providers)
}

/// An inventory with its provider and the root of the provider's tree.
#[derive(Debug, Clone)]
pub struct Placed {
    /// The provider.
    pub provider: ProviderId,
    /// The root of its tree.
    pub root: ProviderId,
    /// The inventory.
    pub row: InventoryRow,
}

/// The inventories that [`ask_of`] requested.
pub fn found(tx: &mut Tx<'_>, asked: Vec<Asked>) -> Result<Vec<Placed>, Error> {
    let placed = |row: &Row| {
        let (provider, root) = (row.id("provider_id")?, row.id("root_id")?);
        Ok(Placed { provider, root, row: read(row)? })
    };
    tx.answers(asked)?.iter().map(placed).collect()
}

/// Updates `reserved` of inventories that exist.
pub fn reserve(tx: &mut Tx<'_>, rows: &[(ProviderId, InventoryRow)]) -> Result<(), Error> {
    let rows: Vec<_> = rows.iter().map(|(provider, row)| unused(*provider, row)).collect();
    tx.defer_rows(RESERVE, &rows)
}

/// A provider's classes with their usage.
pub fn used(tx: &mut Tx<'_>, id: ProviderId) -> Result<Vec<(ResourceClass, i64)>, Error> {
    tx.rows(USED, params![id])?
        .iter()
        .map(|row| Ok((row.class("class")?, row.int("used")?)))
        .collect()
}

/// The values of all columns except the usage.
fn values(provider: ProviderId, row: &InventoryRow) -> [Value; 11] {
    let inv = &row.inventory;
    [
        provider.into(),
        (&row.class).into(),
        inv.total.into(),
        inv.reserved.into(),
        inv.min_unit.into(),
        inv.max_unit.into(),
        inv.step_size.into(),
        inv.allocation_ratio.into(),
        row.reported_reserved.into(),
        row.operator_reserved.into(),
        row.updated_at.into(),
    ]
}

/// Inserts rows without usage.
pub fn insert(tx: &mut Tx<'_>, rows: &[(ProviderId, InventoryRow)]) -> Result<(), Error> {
    let rows: Vec<_> = rows.iter().map(|(provider, row)| unused(*provider, row)).collect();
    tx.defer_rows(INSERT, &rows)
}

/// The values of all columns, with a usage of 0.
fn unused(provider: ProviderId, row: &InventoryRow) -> [Value; 12] {
    let [provider, class, total, reserved, min, max, step, ratio, reported, operator, at] =
        values(provider, row);
    let used = Value::from(0_i64);
    [provider, class, total, reserved, min, max, step, ratio, reported, operator, at, used]
}

/// Writes everything except the usage, as a new row or over the old one.
pub fn put(
    tx: &mut Tx<'_>,
    provider: ProviderId,
    row: &InventoryRow,
    new: bool,
) -> Result<(), Error> {
    match new {
        true => insert(tx, &[(provider, row.clone())]),
        false => tx.defer(UPDATE, &values(provider, row)),
    }
}

/// Adds amounts to the usage without checking the capacity, and returns all resulting inventories
/// of the provider. The caller checks them, and aborts the transaction if an amount does not fit.
pub fn claim(
    tx: &mut Tx<'_>,
    provider: ProviderId,
    amounts: &[(&ResourceClass, i64)],
) -> Result<Vec<InventoryRow>, Error> {
    let asked = ask_claim(tx, provider, amounts)?;
    claimed(tx, asked)
}

/// Asks for [`claim`].
pub fn ask_claim(
    tx: &mut Tx<'_>,
    provider: ProviderId,
    amounts: &[(&ResourceClass, i64)],
) -> Result<Asked, Error> {
    let last = claim_first(tx, provider, amounts)?;
    tx.ask(CLAIM, &last)
}

/// Subtracts amounts from the usage. The caller has already incremented the provider's version.
/// [`released`] reads the answer.
pub fn ask_release(
    tx: &mut Tx<'_>,
    provider: ProviderId,
    amounts: &[(&ResourceClass, i64)],
) -> Result<Asked, Error> {
    let negative: Vec<_> = amounts.iter().map(|(class, amount)| (*class, -amount)).collect();
    let last = claim_first(tx, provider, &negative)?;
    tx.ask(RELEASE, &last)
}

/// The version of a provider and its usage by class, as [`ask_release`] left them; `None` if there are no rows.
pub fn released(rows: &[Row]) -> Option<(i64, Vec<(ResourceClass, i64)>)> {
    let version = rows.first()?.int("version").ok()?;
    let used = rows.iter().map(|row| Ok((row.class("class")?, row.int("used")?)));
    Some((version, used.collect::<Result<_, Error>>().ok()?))
}

/// Adds all amounts except the last four, and returns the parameters for those four.
fn claim_first(
    tx: &mut Tx<'_>,
    provider: ProviderId,
    amounts: &[(&ResourceClass, i64)],
) -> Result<Vec<Value>, Error> {
    let mut fours = amounts.chunks(4);
    let last = fours.next_back().unwrap_or_default();
    for four in fours {
        tx.defer(CLAIM_FIRST, &claim_values(provider, four))?;
    }
    Ok(claim_values(provider, last))
}

fn claim_values(provider: ProviderId, four: &[(&ResourceClass, i64)]) -> Vec<Value> {
    let mut values = vec![provider.into()];
    for at in 0..4 {
        values.push(four.get(at).map(|(class, _)| *class).into());
        values.push(four.get(at).map(|(_, amount)| *amount).into());
    }
    values
}

/// The inventories that [`ask_claim`] requested.
pub fn claimed(tx: &mut Tx<'_>, asked: Asked) -> Result<Vec<InventoryRow>, Error> {
    tx.answer(asked)?.iter().map(read).collect()
}

/// Adds an amount to the usage, or subtracts it, without checking the capacity. Returns false if
/// the provider has no inventory of the class.
pub fn add_usage(
    tx: &mut Tx<'_>,
    provider: ProviderId,
    class: &ResourceClass,
    by: i64,
) -> Result<bool, Error> {
    Ok(tx.execute(ADD_USAGE, params![provider, class, by])? > 0)
}

/// Raises a device's `reserved` to the amount that its host cannot offer, if it is lower.
pub fn withhold(tx: &mut Tx<'_>, provider: ProviderId) -> Result<(), Error> {
    tx.defer(WITHHOLD, params![provider])
}

/// True if a provider has an inventory of the class.
pub fn class_in_use(tx: &mut Tx<'_>, class: &ResourceClass) -> Result<bool, Error> {
    Ok(tx.row(CLASS_IN_USE, params![class])?.is_some())
}

/// Deletes all inventories of a provider, which must not be in use.
pub fn delete_all(tx: &mut Tx<'_>, provider: ProviderId) -> Result<(), Error> {
    tx.defer(DELETE_ALL, params![provider])
}

/// Deletes an inventory; returns false if it is in use or does not exist.
pub fn delete_idle(
    tx: &mut Tx<'_>,
    provider: ProviderId,
    class: &ResourceClass,
) -> Result<bool, Error> {
    Ok(tx.execute(DELETE_IDLE, params![provider, class])? > 0)
}
