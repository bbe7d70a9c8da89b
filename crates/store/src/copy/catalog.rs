//! The tables of a database with their columns, keys and references, read from its catalog.

use std::collections::BTreeSet;

use crate::{Error, Row, Tx, params};

/// The tables.
const SQLITE_TABLES: &str = "SELECT name, sql FROM sqlite_master
    WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name";
/// Their columns in order; `place` is the place in the primary key, from 1.
const SQLITE_COLUMNS: &str = "SELECT t.name AS name, c.name AS column_name, c.pk AS place
    FROM sqlite_master t JOIN pragma_table_info(t.name) c
    WHERE t.type = 'table' ORDER BY t.name, c.cid";
/// Columns that refer to a table.
const SQLITE_REFERENCES: &str =
    "SELECT t.name AS name, r.\"from\" AS column_name, r.\"table\" AS parent
    FROM sqlite_master t JOIN pragma_foreign_key_list(t.name) r
    WHERE t.type = 'table' ORDER BY t.name";

/// NOT NULL columns that are unique on their own.
const SQLITE_UNIQUE: &str = "SELECT t.name AS name, MIN(c.name) AS column_name
    FROM sqlite_master t JOIN pragma_index_list(t.name) i JOIN pragma_index_info(i.name) p
    JOIN pragma_table_info(t.name) c ON c.cid = p.cid
    WHERE t.type = 'table' AND i.\"unique\" = 1 AND i.partial = 0
    GROUP BY t.name, i.name HAVING COUNT(*) = 1 AND MIN(c.\"notnull\") = 1
    ORDER BY 1, 2";

/// The tables of the schema in which new tables are created.
const PG_TABLES: &str = "SELECT c.relname AS name FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') ORDER BY c.relname";
const PG_COLUMNS: &str = "SELECT c.relname AS name, a.attname AS column_name,
    a.attidentity <> '' AS is_serial,
    CAST(COALESCE(array_position(CAST(k.indkey AS SMALLINT[]), a.attnum) + 1, 0) AS BIGINT) AS place
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_index k ON k.indrelid = c.oid AND k.indisprimary
    WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p')
    ORDER BY c.relname, a.attnum";
const PG_REFERENCES: &str = "SELECT c.relname AS name, a.attname AS column_name, p.relname AS parent
    FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_class p ON p.oid = k.confrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey)
    WHERE n.nspname = current_schema() AND k.contype = 'f' ORDER BY c.relname";

const PG_UNIQUE: &str = "SELECT c.relname AS name, a.attname AS column_name
    FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
    WHERE n.nspname = current_schema() AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
    AND i.indnatts = 1 AND a.attnotnull ORDER BY 1, 2";

/// A table.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    pub name: String,
    /// In the order of the table.
    pub columns: Vec<String>,
    /// The columns of the primary key, in its order; without one, a unique column. Empty if there is neither.
    pub key: Vec<String>,
    /// The column whose values the database generates.
    pub serial: Option<String>,
    /// Columns that refer to another row, with the table of that row.
    pub references: Vec<(String, String)>,
}

impl Table {
    /// True if both have the same columns, in any order.
    pub fn has_columns_of(&self, other: &Self) -> bool {
        let set = |table: &Self| table.columns.iter().cloned().collect::<BTreeSet<_>>();
        set(self) == set(other)
    }

    /// The columns that refer to rows of the table itself.
    pub fn own_references(&self) -> Vec<&str> {
        let own = self.references.iter().filter(|(_, parent)| *parent == self.name);
        own.map(|(column, _)| column.as_str()).collect()
    }
}

/// The tables of the database.
pub(super) fn read(tx: &mut Tx<'_>) -> Result<Vec<Table>, Error> {
    let is_postgres = tx.is_postgres();
    let (tables, columns, unique, references) = if is_postgres {
        (PG_TABLES, PG_COLUMNS, PG_UNIQUE, PG_REFERENCES)
    } else {
        (SQLITE_TABLES, SQLITE_COLUMNS, SQLITE_UNIQUE, SQLITE_REFERENCES)
    };
    let mut found = Vec::new();
    let mut generated = BTreeSet::new();
    for row in tx.rows(tables, params![])? {
        let name = row.string("name")?;
        if !is_postgres && row.text("sql")?.contains("AUTOINCREMENT") {
            generated.insert(name.clone());
        }
        found.push(Table { name, ..Table::default() });
    }
    let mut keys: Vec<(String, i64, String)> = Vec::new();
    for row in tx.rows(columns, params![])? {
        let column = row.string("column_name")?;
        let Some(table) = named(&mut found, &row)? else { continue };
        let place = row.int("place")?;
        let is_serial = if is_postgres {
            row.bool("is_serial")?
        } else {
            place > 0 && generated.contains(&table.name)
        };
        if is_serial {
            table.serial = Some(column.clone());
        }
        if place > 0 {
            keys.push((table.name.clone(), place, column.clone()));
        }
        table.columns.push(column);
    }
    keys.sort();
    for (name, _, column) in keys {
        if let Some(table) = found.iter_mut().find(|table| table.name == name) {
            table.key.push(column);
        }
    }
    for row in tx.rows(unique, params![])? {
        let column = row.string("column_name")?;
        if let Some(table) = named(&mut found, &row)?
            && table.key.is_empty()
        {
            table.key.push(column);
        }
    }
    for row in tx.rows(references, params![])? {
        let (column, parent) = (row.string("column_name")?, row.string("parent")?);
        if let Some(table) = named(&mut found, &row)? {
            table.references.push((column, parent));
        }
    }
    Ok(found)
}

fn named<'a>(tables: &'a mut [Table], row: &Row) -> Result<Option<&'a mut Table>, Error> {
    let name = row.text("name")?;
    Ok(tables.iter_mut().find(|table| table.name == name))
}

/// The tables in the order of their references: each after those that it refers to.
///
/// # Errors
/// [`Error::Copy`] for tables that refer to each other.
pub(super) fn order(mut tables: Vec<Table>) -> Result<Vec<Table>, Error> {
    let mut ordered: Vec<Table> = Vec::with_capacity(tables.len());
    while !tables.is_empty() {
        let is_free = |table: &Table| {
            table.references.iter().all(|(_, parent)| {
                *parent == table.name || ordered.iter().any(|before| before.name == *parent)
            })
        };
        let (free, waiting): (Vec<_>, Vec<_>) = tables.into_iter().partition(is_free);
        if free.is_empty() {
            let names: Vec<_> = waiting.iter().map(|table| table.name.as_str()).collect();
            let names = names.join(", ");
            return Err(Error::Copy(format!("these tables refer to each other: {names}")));
        }
        ordered.extend(free);
        tables = waiting;
    }
    Ok(ordered)
}
