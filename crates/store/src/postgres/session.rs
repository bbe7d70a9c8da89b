//! One open transaction on PostgreSQL, driven from a blocking thread.

use deadpool_postgres::Transaction;
use tokio::runtime::Handle;
use tokio_postgres::types::ToSql;

use super::types;
use crate::{Error, Row, Value};

pub(crate) struct Session<'a> {
    transaction: &'a Transaction<'a>,
    handle: &'a Handle,
}

impl<'a> Session<'a> {
    pub(super) fn new(transaction: &'a Transaction<'a>, handle: &'a Handle) -> Self {
        Self { transaction, handle }
    }

    pub(crate) fn execute(&self, sql: &str, params: &[Value]) -> Result<u64, Error> {
        self.handle.block_on(async {
            let statement = self.transaction.prepare_cached(&rewrite(sql)).await?;
            Ok(self.transaction.execute(&statement, &borrowed(params)).await?)
        })
    }

    pub(crate) fn rows(&self, sql: &str, params: &[Value]) -> Result<Vec<Row>, Error> {
        self.handle.block_on(async {
            let statement = self.transaction.prepare_cached(&rewrite(sql)).await?;
            let rows = self.transaction.query(&statement, &borrowed(params)).await?;
            types::rows(&rows)
        })
    }

    pub(crate) fn prepare(&self, sql: &str) -> Result<(), Error> {
        self.handle.block_on(async {
            self.transaction.prepare_cached(&rewrite(sql)).await?;
            Ok(())
        })
    }

    pub(crate) fn batch(&self, sql: &str) -> Result<(), Error> {
        self.handle.block_on(async { Ok(self.transaction.batch_execute(sql).await?) })
    }
}

fn borrowed(params: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    params.iter().map(|p| p as &(dyn ToSql + Sync)).collect()
}

/// Rewrites `?3` to `$3`. Statements contain no literal question marks, because values are
/// parameters.
fn rewrite(sql: &str) -> String {
    sql.replace('?', "$")
}
