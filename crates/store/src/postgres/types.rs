//! Values in PostgreSQL's wire format.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::value::{Field, Names};
use crate::{Error, Row, Value};

type AnyError = Box<dyn std::error::Error + Sync + Send>;

impl ToSql for Value {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, AnyError> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(value) if *ty == Type::INT8 => value.to_sql(ty, out),
            Self::Int(value) if *ty == Type::INT4 => i32::try_from(*value)?.to_sql(ty, out),
            Self::Int(value) if *ty == Type::FLOAT8 => (*value as f64).to_sql(ty, out),
            Self::Real(value) if *ty == Type::FLOAT8 => value.to_sql(ty, out),
            Self::Text(value) if matches!(*ty, Type::TEXT | Type::VARCHAR) => value.to_sql(ty, out),
            other => Err(format!("cannot send {other:?} as {ty}").into()),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Field<'a> {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, AnyError> {
        Ok(match *ty {
            Type::INT8 => Self::Int(i64::from_sql(ty, raw)?),
            Type::INT4 => Self::Int(i32::from_sql(ty, raw)?.into()),
            Type::BOOL => Self::Int(bool::from_sql(ty, raw)?.into()),
            Type::FLOAT8 => Self::Real(f64::from_sql(ty, raw)?),
            Type::TEXT | Type::VARCHAR | Type::NAME => {
                Self::Text(Cow::Borrowed(<&str>::from_sql(ty, raw)?))
            }
            _ => return Err(format!("column of type {ty}").into()),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, AnyError> {
        Ok(Self::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

fn names(row: &tokio_postgres::Row) -> Vec<&str> {
    row.columns().iter().map(tokio_postgres::Column::name).collect()
}

/// The rows of a result. The column names are read only if there is a row.
pub(super) fn rows(rows: &[tokio_postgres::Row]) -> Result<Vec<Row>, Error> {
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    let names = Arc::new(Names::new(&names(first)));
    rows.iter().map(|row| Ok(Row::new(&names, values(row)?))).collect()
}

/// Calls `each` with every row, until `each` fails. The outer error means that a row cannot be read.
pub(super) fn visit<E>(
    rows: &[tokio_postgres::Row],
    mut each: impl FnMut(&Row) -> Result<(), E>,
) -> Result<Result<(), E>, Error> {
    let Some(first) = rows.first() else { return Ok(Ok(())) };
    let mut one = Row::unfilled(&names(first));
    for row in rows {
        one.refill(|index| Ok(row.try_get(index)?))?;
        if let Err(refused) = each(&one) {
            return Ok(Err(refused));
        }
    }
    Ok(Ok(()))
}

fn values(row: &tokio_postgres::Row) -> Result<Vec<Value>, Error> {
    (0..row.len()).map(|index| Ok(row.try_get::<_, Field<'_>>(index)?.into())).collect()
}
