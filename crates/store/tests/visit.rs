//! Rows that are read one by one: their values, failures and round trips.

use kilonova_store::testing::Meter;
use kilonova_store::{Error, Migration, Row, Store, System, Value, params};

const TABLE: &[Migration] = &[Migration {
    name: "visit",
    sql: "CREATE TABLE things (id BIGINT PRIMARY KEY, name TEXT, share DOUBLE PRECISION)",
}];
const ALL: &str = "SELECT id, name, share FROM things ORDER BY id";
const SOME: &str = "SELECT id, name, share FROM things WHERE id IN ({})";

async fn filled(store: &Store, count: i64) {
    let fill = store.write(move |tx| {
        for id in 0..count {
            // Long and short texts, and none: each row replaces all values of the last one.
            let name = (id % 3 > 0).then(|| "ü".repeat(usize::try_from(40 - id % 40).unwrap_or(0)));
            tx.defer(
                "INSERT INTO things (id, name, share) VALUES (?1, ?2, ?3)",
                params![id, name, 0.5],
            )?;
        }
        Ok::<_, Error>(())
    });
    fill.await.expect("the rows are added");
}

fn whole(row: &Row) -> Result<(i64, Option<String>, f64), Error> {
    Ok((row.int("id")?, row.string_opt("name")?, row.real("share")?))
}

#[tokio::test]
async fn a_visit_has_the_rows_of_the_statement() {
    for (name, store, _guard) in kilonova_testkit::stores(&[TABLE]).await {
        filled(&store, 100).await;
        let (visited, rows) = store
            .read(|tx| {
                let mut visited = Vec::new();
                tx.visit(ALL, params![], |row| {
                    visited.push(whole(row)?);
                    Ok::<_, Error>(())
                })?;
                tx.visit("SELECT id FROM things WHERE id < 0", params![], |_| {
                    Err(Error::Other("there is no row".into()))
                })?;
                let rows = tx.rows(ALL, params![])?;
                Ok::<_, Error>((visited, rows.iter().map(whole).collect::<Result<Vec<_>, _>>()?))
            })
            .await
            .expect("the table is readable");
        assert_eq!(visited.len(), 100, "{name}");
        assert_eq!(visited, rows, "{name}");
    }
}

#[tokio::test]
async fn a_failure_ends_a_visit_and_not_its_transaction() {
    for (name, store, _guard) in kilonova_testkit::stores(&[TABLE]).await {
        filled(&store, 10).await;
        let seen = store.write(|tx| {
            let mut seen = 0;
            let failed = tx.visit(ALL, params![], |row| {
                seen = row.int("id")?;
                match seen {
                    3 => row.int("name").map(drop),
                    _ => Ok(()),
                }
            });
            assert!(matches!(failed, Err(Error::Shape(_))), "{failed:?}");
            tx.execute("DELETE FROM things WHERE id > 0", params![])?;
            Ok::<_, Error>(seen)
        });
        assert_eq!(seen.await.expect("the transaction commits"), 3, "{name}");
        let left = store.read(|tx| tx.rows(ALL, params![])).await.expect("the table is readable");
        assert_eq!(left.len(), 1, "{name}");
        let wrong = store
            .read(|tx| tx.visit("SELECT nothing FROM things", params![], |_| Ok::<_, Error>(())));
        assert!(matches!(wrong.await, Err(Error::Other(_))), "{name}");
    }
}

/// Lists that are announced together take one round trip, regardless of the number of statements.
#[tokio::test]
async fn announced_lists_are_visited_in_one_round_trip() {
    for (name, store, _guard) in kilonova_testkit::stores(&[TABLE]).await {
        filled(&store, 600).await;
        let meter = Meter::counting();
        let metered = store.with_meter(meter.clone());
        let list = |first: i64| -> Vec<Value> { (first..600).map(Value::from).collect() };
        let (all, late) = (list(0), list(590));
        for announced in [true, false] {
            meter.take_round_trips();
            let (all, late) = (all.clone(), late.clone());
            let sums = metered.read(move |tx| {
                if announced {
                    tx.expect_list(SOME, &all)?;
                    tx.expect_list(SOME, &late)?;
                }
                let mut sums = [0, 0];
                for (sum, list) in sums.iter_mut().zip([&all, &late]) {
                    tx.visit_list(SOME, list, |row| {
                        *sum += row.int("id")?;
                        Ok::<_, Error>(())
                    })?;
                }
                Ok::<_, Error>(sums)
            });
            let sums = sums.await.expect("the table is readable");
            // The last short list repeats a value, whose row is returned once.
            assert_eq!(sums, [599 * 300, 5945], "{name}");
            let expected = match (store.system(), announced) {
                (System::Sqlite, _) => 0,
                (System::Postgres, true) => 1,
                // 256, 256, 64 and three of 8; then two of 8.
                (System::Postgres, false) => 8,
            };
            assert_eq!(meter.take_round_trips(), expected, "{name}");
        }
    }
}
