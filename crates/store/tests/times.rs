//! Times are stored as microseconds in integer columns, and read as [`Timestamp`]s.

use jiff::Timestamp;
use kilonova_store::{Error, Migration, params};

const TABLE: &[Migration] =
    &[Migration { name: "times-1", sql: "CREATE TABLE times (n BIGINT PRIMARY KEY, at BIGINT);" }];

#[tokio::test]
async fn a_time_is_kept_to_the_microsecond() {
    for (name, store, _guard) in kilonova_testkit::stores(&[TABLE]).await {
        let at: Timestamp = "2026-11-21T10:57:15.123456Z".parse().expect("the time is valid");
        let written = [Some(at), Some(Timestamp::MIN), Some(Timestamp::MAX), None];
        let write = move |tx: &mut kilonova_store::Tx<'_>| {
            for (n, at) in written.iter().enumerate() {
                tx.execute("INSERT INTO times (n, at) VALUES (?1, ?2)", params![n as i64, *at])?;
            }
            Ok::<_, Error>(())
        };
        store.write(write).await.expect("the rows are written");
        let rows = store
            .read(|tx| tx.rows("SELECT n, at FROM times ORDER BY n", params![]))
            .await
            .map_err(|error: Error| error.to_string())
            .expect("the rows are readable");
        let micros = rows[0].int("at").expect("the column is an integer");
        assert_eq!(micros, 1_795_258_635_123_456, "{name}");
        assert_eq!(rows[0].time("at").expect("the time is valid"), at, "{name}");
        for (row, limit) in rows[1..3].iter().zip([Timestamp::MIN, Timestamp::MAX]) {
            let read =
                row.time_opt("at").expect("the time is valid").expect("the time is not NULL");
            assert_eq!(read.as_microsecond(), limit.as_microsecond(), "{name}");
        }
        assert_eq!(rows[3].time_opt("at").expect("the column may be NULL"), None, "{name}");
        assert!(matches!(rows[3].time("at"), Err(Error::Shape(_))), "{name}");
    }
}

#[tokio::test]
async fn an_integer_that_is_no_time_is_an_error() {
    for (name, store, _guard) in kilonova_testkit::stores(&[TABLE]).await {
        let write = |tx: &mut kilonova_store::Tx<'_>| {
            for (n, at) in [i64::MAX, i64::MIN].into_iter().enumerate() {
                tx.execute("INSERT INTO times (n, at) VALUES (?1, ?2)", params![n as i64, at])?;
            }
            Ok::<_, Error>(())
        };
        store.write(write).await.expect("the rows are written");
        let read = store
            .read(|tx| tx.rows("SELECT at FROM times", params![]))
            .await
            .map_err(|error: Error| error.to_string())
            .expect("the rows are readable");
        for row in read {
            let refused = row.time("at").expect_err("no time has that value");
            assert!(refused.to_string().contains("not a time"), "{name}: {refused}");
            assert!(row.time_opt("at").is_err(), "{name}");
        }
    }
}
