//! The rows of a table: pages in the order of the primary key, and the sum of their digests.

use sha2::{Digest, Sha256};

use super::CopiedTable;
use super::catalog::Table;
use crate::{Error, Row, Store, Value, params};

/// Number of rows per page and per transaction.
const PAGE: usize = 1000;

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn list<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| quoted(name)).collect();
    names.join(", ")
}

fn places(count: usize) -> String {
    let places: Vec<String> = (1..=count).map(|place| format!("?{place}")).collect();
    places.join(", ")
}

/// The key of a row that [`page`] returned.
fn key_of(table: &Table, row: &Row) -> Vec<Value> {
    let value = |column: &String| {
        let place = table.columns.iter().position(|name| name == column);
        place.and_then(|place| row.values().get(place)).cloned().unwrap_or(Value::Null)
    };
    table.key.iter().map(value).collect()
}

/// The page of rows after the key `after`; the first page if it is `None`.
async fn page(store: &Store, table: &Table, after: Option<Vec<Value>>) -> Result<Vec<Row>, Error> {
    if table.key.is_empty() {
        return if after.is_some() { Ok(Vec::new()) } else { whole(store, table).await };
    }
    let (columns, key) = (list(&table.columns), list(&table.key));
    let beyond = match &after {
        Some(_) => format!("WHERE ({key}) > ({})", places(table.key.len())),
        None => String::new(),
    };
    let name = quoted(&table.name);
    let sql = format!("SELECT {columns} FROM {name} {beyond} ORDER BY {key} LIMIT {PAGE}");
    let after = after.unwrap_or_default();
    store.read(move |tx| tx.rows(&sql, &after)).await
}

/// All rows of a table without a key, such as one with a single row.
async fn whole(store: &Store, table: &Table) -> Result<Vec<Row>, Error> {
    let (columns, name) = (list(&table.columns), quoted(&table.name));
    let sql = format!("SELECT {columns} FROM {name} LIMIT {}", PAGE + 1);
    let rows = store.read(move |tx| tx.rows(&sql, params![])).await?;
    if rows.len() > PAGE {
        return Err(Error::Copy("it has no key, and more rows than one page".into()));
    }
    Ok(rows)
}

/// Number of rows.
pub(super) async fn count(store: &Store, table: &Table) -> Result<u64, Error> {
    let sql = format!("SELECT COUNT(*) AS number FROM {}", quoted(&table.name));
    let row = store.read(move |tx| tx.row(&sql, params![])).await?;
    let number = row.map_or(Ok(0), |row| row.int("number"))?;
    Ok(u64::try_from(number).unwrap_or(0))
}

/// Deletes the rows that the migrations created.
pub(super) async fn delete_all(store: &Store, tables: &[Table]) -> Result<(), Error> {
    let statements: Vec<String> =
        tables.iter().rev().map(|table| format!("DELETE FROM {}", quoted(&table.name))).collect();
    store
        .write(move |tx| statements.iter().try_for_each(|sql| tx.execute(sql, params![]).map(drop)))
        .await
}

/// Copies the rows of a table. Columns that refer to the table itself are set once all rows exist.
pub(super) async fn copy(
    from: &Store,
    to: &Store,
    table: &Table,
    done: &mut impl FnMut(u64),
) -> Result<(), Error> {
    let own = table.own_references();
    let later: Vec<usize> = (0..table.columns.len())
        .filter(|place| table.columns.get(*place).is_some_and(|name| own.contains(&name.as_str())))
        .collect();
    let insert = format!(
        "INSERT INTO {} ({}) VALUES ({})",
        quoted(&table.name),
        list(&table.columns),
        places(table.columns.len())
    );
    let mut after = None;
    loop {
        let rows = page(from, table, after.take()).await?;
        let count = rows.len();
        after = rows.last().map(|row| key_of(table, row));
        let rows: Vec<Vec<Value>> = rows
            .iter()
            .map(|row| {
                let mut values = row.values().to_vec();
                for place in &later {
                    if let Some(value) = values.get_mut(*place) {
                        *value = Value::Null;
                    }
                }
                values
            })
            .collect();
        let insert = insert.clone();
        to.write(move |tx| rows.iter().try_for_each(|row| tx.defer(&insert, row))).await?;
        done(count as u64);
        if count < PAGE {
            break;
        }
    }
    if later.is_empty() { Ok(()) } else { refer(from, to, table, &later).await }
}

/// Sets the columns that refer to the table itself.
async fn refer(from: &Store, to: &Store, table: &Table, later: &[usize]) -> Result<(), Error> {
    let name =
        |place: &usize| table.columns.get(*place).map_or_else(String::new, |one| quoted(one));
    let set: Vec<String> = later
        .iter()
        .enumerate()
        .map(|(n, place)| format!("{} = ?{}", name(place), n + 1))
        .collect();
    let matching: Vec<String> = table
        .key
        .iter()
        .enumerate()
        .map(|(n, column)| format!("{} = ?{}", quoted(column), later.len() + n + 1))
        .collect();
    let (set, matching) = (set.join(", "), matching.join(" AND "));
    let sql = format!("UPDATE {} SET {set} WHERE {matching}", quoted(&table.name));
    let mut after = None;
    loop {
        let rows = page(from, table, after.take()).await?;
        let count = rows.len();
        after = rows.last().map(|row| key_of(table, row));
        let rows: Vec<Vec<Value>> = rows
            .iter()
            .filter_map(|row| {
                let value = |place: &usize| row.values().get(*place).cloned();
                let mut values: Vec<Value> = later.iter().filter_map(value).collect();
                let refers = values.iter().any(|value| *value != Value::Null);
                values.extend(key_of(table, row));
                refers.then_some(values)
            })
            .collect();
        let sql = sql.clone();
        to.write(move |tx| rows.iter().try_for_each(|row| tx.defer(&sql, row))).await?;
        if count < PAGE {
            return Ok(());
        }
    }
}

/// Continues the numbering of generated keys from the source's counter, so that the number of a
/// deleted row is not reused.
pub(super) async fn copy_counter(from: &Store, to: &Store, table: &Table) -> Result<(), Error> {
    let Some(column) = table.serial.clone() else { return Ok(()) };
    let (name, serial) = (table.name.clone(), column.clone());
    let last = from
        .read(move |tx| -> Result<i64, Error> {
            let row = if tx.is_postgres() {
                let sequence = "SELECT pg_get_serial_sequence(?1, ?2) AS name";
                let named = tx.row(sequence, params![quoted(&name), serial.as_str()])?;
                let Some(sequence) = named.map(|row| row.string("name")).transpose()? else {
                    return Ok(0);
                };
                let used = "last_value - CASE WHEN is_called THEN 0 ELSE 1 END";
                tx.row(&format!("SELECT {used} AS last FROM {sequence}"), params![])?
            } else {
                let sql = "SELECT seq AS last FROM sqlite_sequence WHERE name = ?1";
                tx.row(sql, params![name.as_str()])?
            };
            row.map_or(Ok(0), |row| row.int("last"))
        })
        .await?;
    if last < 1 {
        return Ok(());
    }
    let name = table.name.clone();
    to.write(move |tx| {
        if tx.is_postgres() {
            let sql = "SELECT setval(pg_get_serial_sequence(?1, ?2), ?3) AS last";
            return tx.rows(sql, params![quoted(&name), column.as_str(), last]).map(drop);
        }
        let update = "UPDATE sqlite_sequence SET seq = ?2 WHERE name = ?1";
        if tx.execute(update, params![name.as_str(), last])? == 0 {
            let insert = "INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)";
            tx.execute(insert, params![name.as_str(), last])?;
        }
        Ok(())
    })
    .await
}

/// The number of rows, and the sum of their digests.
pub(super) async fn sum(
    store: &Store,
    table: &Table,
    done: &mut impl FnMut(u64),
) -> Result<CopiedTable, Error> {
    let mut checksum = 0_u128;
    let mut read = 0;
    let mut after = None;
    loop {
        let rows = page(store, table, after.take()).await?;
        after = rows.last().map(|row| key_of(table, row));
        checksum = rows.iter().fold(checksum, |sum, row| sum.wrapping_add(digest(row.values())));
        read += rows.len() as u64;
        done(rows.len() as u64);
        if rows.len() < PAGE {
            break;
        }
    }
    let rows = count(store, table).await?;
    if rows != read {
        return Err(Error::Copy(format!("it has {rows} rows, but {read} of them have a key")));
    }
    Ok(CopiedTable { name: table.name.clone(), rows, checksum })
}

/// The digest of a row, the same on both systems.
fn digest(values: &[Value]) -> u128 {
    let mut digest = Sha256::new();
    for value in values {
        match value {
            Value::Null => digest.update([0]),
            Value::Int(value) => {
                digest.update([1]);
                digest.update(value.to_le_bytes());
            }
            // SQLite has no negative zero.
            Value::Real(value) => {
                digest.update([2]);
                digest.update((value + 0.0).to_le_bytes());
            }
            Value::Text(value) => {
                digest.update([3]);
                digest.update((value.len() as u64).to_le_bytes());
                digest.update(value.as_bytes());
            }
        }
    }
    let bytes: [u8; 32] = digest.finalize().into();
    bytes.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte))
}
