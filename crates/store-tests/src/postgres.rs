//! `EXPLAIN` of a prepared statement with a generic plan, which is independent of the parameters.

use std::sync::atomic::{AtomicU64, Ordering};

use kilonova_store::{Error, Store};

use crate::{Walk, parameters};

/// Rows in each table. More would not change the plans, which the settings below determine.
const ROWS: i64 = 500;
/// The number of rows that the planner assumes.
const TOLD: i64 = 100_000;

/// Fills every table but the store's own `store_commits`, which has one row for each connection,
/// including that of this transaction.
const PREPARE: [&str; 3] = [
    // Disables foreign keys, because the referenced rows do not exist.
    "SET LOCAL session_replication_role = replica",
    "DO $do$ DECLARE t record; names text; amounts text; BEGIN
     FOR t IN SELECT oid, relname FROM pg_class
       WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
         AND relname <> 'store_commits' LOOP
         EXECUTE format('ALTER TABLE %I SET (autovacuum_enabled = false)', t.relname);
         EXECUTE format('DELETE FROM %I', t.relname);
         SELECT string_agg(quote_ident(attname), ', '), string_agg(
             CASE format_type(atttypid, -1) WHEN 'text' THEN '''v'' || n' ELSE 'n' END, ', ')
           INTO names, amounts FROM pg_attribute
           WHERE attrelid = t.oid AND attnum > 0 AND NOT attisdropped;
         EXECUTE format('INSERT INTO %I (%s) SELECT %s FROM generate_series(1, ROWS) n',
             t.relname, names, amounts);
     END LOOP; END $do$",
    "UPDATE pg_class SET reltuples = TOLD,
         relpages = GREATEST(1, pg_relation_size(oid) / current_setting('block_size')::int)
     WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')",
];

const SETTINGS: [&str; 5] = [
    "SET LOCAL plan_cache_mode = force_generic_plan",
    "SET LOCAL enable_seqscan = off",
    "SET LOCAL enable_hashjoin = off",
    "SET LOCAL enable_mergejoin = off",
    "SET LOCAL jit = off",
];

pub(crate) async fn grow(store: &Store) -> Result<(), Error> {
    store
        .write(|tx| {
            for sql in PREPARE {
                let sql = sql.replace("ROWS", &ROWS.to_string()).replace("TOLD", &TOLD.to_string());
                tx.execute(&sql, &[])?;
            }
            Ok(())
        })
        .await
}

pub(crate) async fn walks(store: &Store, sql: &str) -> Result<Vec<Walk>, Error> {
    walks_with(store, sql, &SETTINGS).await
}

pub(crate) async fn walks_with(
    store: &Store,
    sql: &str,
    settings: &'static [&'static str],
) -> Result<Vec<Walk>, Error> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("plan_{}", NUMBER.fetch_add(1, Ordering::SeqCst));
    let arguments = match parameters(sql) {
        0 => String::new(),
        count => format!("({})", vec!["NULL"; count].join(", ")),
    };
    let prepare = format!("PREPARE {name} AS {sql}");
    let explain = format!("EXPLAIN (COSTS OFF) EXECUTE {name}{arguments}");
    let deallocate = format!("DEALLOCATE {name}");
    let lines: Vec<String> = store
        .write(move |tx| {
            for setting in settings {
                tx.execute(setting, &[])?;
            }
            tx.execute(&prepare, &[])?;
            let lines = tx.rows(&explain, &[])?;
            tx.execute(&deallocate, &[])?;
            lines.iter().map(|row| row.string("QUERY PLAN")).collect::<Result<_, Error>>()
        })
        .await?;
    Ok(read(&lines))
}

/// The scans in a plan: sequential scans, and index scans without a condition.
fn read(lines: &[String]) -> Vec<Walk> {
    let mut walks = Vec::new();
    let mut heap = String::new();
    for (at, line) in lines.iter().enumerate() {
        let step = line.trim().trim_start_matches("->").trim();
        let step = step.strip_prefix("Parallel ").unwrap_or(step);
        let after = |word: &str| {
            let (_, rest) = step.split_once(word)?;
            rest.split_whitespace().next().map(str::to_owned)
        };
        let has_condition = || {
            let own = lines.iter().skip(at + 1).take_while(|line| !line.trim().starts_with("->"));
            own.into_iter().any(|line| line.trim().starts_with("Index Cond:"))
        };
        let table = if step.starts_with("Seq Scan on ") {
            after("Seq Scan on ")
        } else if step.starts_with("Bitmap Heap Scan on ") {
            heap = after("Bitmap Heap Scan on ").unwrap_or_default();
            None
        } else if step.starts_with("Bitmap Index Scan on ") && !has_condition() {
            Some(heap.clone())
        } else if step.starts_with("Index ") && step.contains(" using ") && !has_condition() {
            after(" on ")
        } else {
            None
        };
        walks.extend(table.map(|table| Walk { table, step: step.to_owned() }));
    }
    walks
}

#[cfg(test)]
mod tests {
    use super::read;

    fn walked(plan: &str) -> Vec<String> {
        let lines: Vec<String> = plan.lines().map(str::to_owned).collect();
        read(&lines).into_iter().map(|walk| walk.table).collect()
    }

    #[test]
    fn a_walk_is_a_sequential_scan_or_an_index_without_condition() {
        let plan = "Nested Loop
  ->  Index Scan using moves_pkey on moves m
        Filter: (a = $1)
  ->  Index Scan using servers_id_key on servers s
        Index Cond: (id = m.id)
  ->  Bitmap Heap Scan on ports
        ->  Bitmap Index Scan on ports_server
  ->  Parallel Seq Scan on hosts h";
        assert_eq!(walked(plan), ["moves", "ports", "hosts"]);
        let plan = "Bitmap Heap Scan on ports
  Recheck Cond: (a = $1)
  ->  Bitmap Index Scan on ports_a
        Index Cond: (a = $1)";
        assert!(walked(plan).is_empty());
    }
}
