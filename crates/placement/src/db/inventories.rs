//! Rows of `inventories`: a provider's inventory of a class and its usage.

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

statements! {
    /// A provider's inventories.
    OF_PROVIDER = concat!("SELECT ", columns!(), " FROM inventories
        WHERE provider_id = ?1 ORDER BY class");
    /// The classes of a provider with their usage.
    USED = "SELECT class, used FROM inventories WHERE provider_id = ?1";
    /// Inserts an inventory.
    INSERT = "INSERT INTO inventories (provider_id, class, total, reserved, min_unit, max_unit,
        step_size, allocation_ratio, used, reported_reserved, operator_reserved, updated_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, ?9, ?10, ?11)";
    /// Updates everything except the usage.
    UPDATE = "UPDATE inventories SET total = ?3, reserved = ?4, min_unit = ?5, max_unit = ?6,
        step_size = ?7, allocation_ratio = ?8, reported_reserved = ?9, operator_reserved = ?10,
        updated_at = ?11, shrunk = CASE WHEN used > CAST(?3 AS BIGINT) * CAST(?8 AS DOUBLE PRECISION)
        THEN 1 ELSE 0 END WHERE provider_id = ?1 AND class = ?2";
    /// Raises `reserved` to the amount that the host of a device cannot offer, whatever an operator
    /// set.
    WITHHOLD = "UPDATE inventories SET reserved = reported_reserved WHERE provider_id = ?1
        AND reported_reserved > reserved AND EXISTS (SELECT 1 FROM resource_providers p
        WHERE p.id = ?1 AND p.parent_id IS NOT NULL)";
    /// Claims amounts of up to four classes and returns the resulting rows, so that one query tells
    /// whether they fit and what usage to publish.
    CLAIM = concat!("UPDATE inventories SET used = used + CASE class WHEN ?2 THEN CAST(?3 AS BIGINT)
        WHEN ?4 THEN CAST(?5 AS BIGINT) WHEN ?6 THEN CAST(?7 AS BIGINT)
        WHEN ?8 THEN CAST(?9 AS BIGINT) ELSE 0 END WHERE provider_id = ?1
        RETURNING ", columns!());
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
    /// The numbers.
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

/// The numbers of an inventory.
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

/// A provider's classes with their usage.
pub fn used(tx: &mut Tx<'_>, id: ProviderId) -> Result<Vec<(ResourceClass, i64)>, Error> {
    tx.rows(USED, params![id])?
        .iter()
        .map(|row| Ok((row.class("class")?, row.int("used")?)))
        .collect()
}

/// Writes everything except the usage, as a new row or over the old one.
pub fn put(
    tx: &mut Tx<'_>,
    provider: ProviderId,
    row: &InventoryRow,
    new: bool,
) -> Result<(), Error> {
    let inv = &row.inventory;
    tx.defer(
        if new { INSERT } else { UPDATE },
        params![
            provider,
            &row.class,
            inv.total,
            inv.reserved,
            inv.min_unit,
            inv.max_unit,
            inv.step_size,
            inv.allocation_ratio,
            row.reported_reserved,
            row.operator_reserved,
            row.updated_at,
        ],
    )?;
    Ok(())
}

/// Adds amounts to the usage, whether they fit or not, and returns all inventories of the provider
/// afterwards. The caller checks them, and aborts the transaction if an amount does not fit.
pub fn claim(
    tx: &mut Tx<'_>,
    provider: ProviderId,
    amounts: &[(&ResourceClass, i64)],
) -> Result<Vec<InventoryRow>, Error> {
    let asked = ask_claim(tx, provider, amounts)?;
    claimed(tx, asked)
}

/// Asks for [`claim`]. Negative amounts release.
pub fn ask_claim(
    tx: &mut Tx<'_>,
    provider: ProviderId,
    amounts: &[(&ResourceClass, i64)],
) -> Result<Asked, Error> {
    let (last, before) = match amounts.chunks(4).collect::<Vec<_>>().split_last() {
        Some((last, before)) => (*last, before.to_vec()),
        None => (amounts, Vec::new()),
    };
    for four in before {
        tx.defer(CLAIM, &claim_values(provider, four))?;
    }
    tx.ask(CLAIM, &claim_values(provider, last))
}

fn claim_values(provider: ProviderId, four: &[(&ResourceClass, i64)]) -> Vec<Value> {
    let mut values = vec![provider.into()];
    for at in 0..4 {
        values.push(four.get(at).map(|(class, _)| *class).into());
        values.push(four.get(at).map(|(_, amount)| *amount).into());
    }
    values
}

/// The inventories after [`ask_claim`].
pub fn claimed(tx: &mut Tx<'_>, asked: Asked) -> Result<Vec<InventoryRow>, Error> {
    tx.answer(asked)?.iter().map(read).collect()
}

/// Adds an amount to the usage, or subtracts it, without a check. Returns false if the provider has
/// no inventory of the class.
pub fn add_usage(
    tx: &mut Tx<'_>,
    provider: ProviderId,
    class: &ResourceClass,
    by: i64,
) -> Result<bool, Error> {
    Ok(tx.execute(ADD_USAGE, params![provider, class, by])? > 0)
}

/// Raises `reserved` of a device to the amount that its host cannot offer.
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
