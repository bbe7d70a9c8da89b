//! Parameters and rows in the four types common to both databases.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kilonova_ids::{HostName, ResourceClass};

use crate::Error;

/// A parameter or a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// SQL NULL.
    Null,
    /// `BIGINT`; booleans are 0 and 1, times are microseconds since 1970.
    Int(i64),
    /// `DOUBLE PRECISION`.
    Real(f64),
    /// `TEXT`; UUIDs and JSON documents too.
    Text(String),
}

/// A column of a row, borrowed from the result of the database.
pub(crate) enum Field<'a> {
    Null,
    Int(i64),
    Real(f64),
    Text(Cow<'a, str>),
}

impl From<Field<'_>> for Value {
    fn from(field: Field<'_>) -> Self {
        match field {
            Field::Null => Self::Null,
            Field::Int(value) => Self::Int(value),
            Field::Real(value) => Self::Real(value),
            Field::Text(text) => Self::Text(text.into_owned()),
        }
    }
}

impl Value {
    /// Becomes the value of a field. Text reuses the memory of previous text.
    fn become_field(&mut self, field: Field<'_>) {
        match (self, field) {
            (Self::Text(kept), Field::Text(text)) => {
                kept.clear();
                kept.push_str(&text);
            }
            (value, field) => *value = field.into(),
        }
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}
impl From<i32> for Value {
    fn from(value: i32) -> Self {
        Self::Int(value.into())
    }
}
impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Int(value.into())
    }
}
impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Int(value.into())
    }
}
impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}
/// Microseconds since 1970, truncated.
impl From<Timestamp> for Value {
    fn from(value: Timestamp) -> Self {
        Self::Int(value.as_microsecond())
    }
}
/// Microseconds, saturating at the limits of an `i64`.
impl From<SignedDuration> for Value {
    fn from(value: SignedDuration) -> Self {
        let limit = if value.is_negative() { i64::MIN } else { i64::MAX };
        Self::Int(i64::try_from(value.as_micros()).unwrap_or(limit))
    }
}
impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}
impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}
impl From<&String> for Value {
    fn from(value: &String) -> Self {
        Self::Text(value.clone())
    }
}
impl From<&HostName> for Value {
    fn from(value: &HostName) -> Self {
        Self::from(value.as_str())
    }
}
impl From<HostName> for Value {
    fn from(value: HostName) -> Self {
        Self::from(value.as_str())
    }
}
impl From<&ResourceClass> for Value {
    fn from(value: &ResourceClass) -> Self {
        Self::from(value.as_str())
    }
}
impl From<ResourceClass> for Value {
    fn from(value: ResourceClass) -> Self {
        Self::from(value.as_str())
    }
}
impl<T: newtype_uuid::TypedUuidKind> From<newtype_uuid::TypedUuid<T>> for Value {
    fn from(value: newtype_uuid::TypedUuid<T>) -> Self {
        Self::Text(value.to_string())
    }
}
impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// The column names of a result, shared by its rows: all names in one string, and the end of each.
pub(crate) struct Names {
    text: String,
    ends: Box<[usize]>,
}

impl Names {
    pub(crate) fn new(names: &[&str]) -> Self {
        let mut end = 0;
        let ends = names.iter().map(|name| {
            end += name.len();
            end
        });
        Self { ends: ends.collect(), text: names.concat() }
    }

    fn get(&self, position: usize) -> Option<&str> {
        let begin =
            position.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied());
        self.text.get(begin?..*self.ends.get(position)?)
    }

    fn position(&self, name: &str) -> Option<usize> {
        let (text, mut begin) = (self.text.as_bytes(), 0);
        self.ends.iter().position(|end| {
            let found = text.get(begin..*end) == Some(name.as_bytes());
            begin = *end;
            found
        })
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len()).filter_map(|position| self.get(position))
    }
}

/// One row of a result.
#[derive(Clone)]
pub struct Row {
    names: Arc<Names>,
    values: Vec<Value>,
    /// The column after the last one read.
    next: Cell<usize>,
}

/// A column of a result: its name, or its position for tests with arbitrary statements (`COUNT(*)`,
/// a pragma).
pub trait Column: Copy + std::fmt::Display {
    /// The position in a row.
    fn position(self, row: &Row) -> Option<usize>;
}

impl Column for &str {
    /// Callers mostly read columns in the order of the statement, so the next one is tried first.
    fn position(self, row: &Row) -> Option<usize> {
        let next = row.next.get();
        let is_next = row.names.get(next) == Some(self);
        let position = if is_next { next } else { row.names.position(self)? };
        row.next.set(position + 1);
        Some(position)
    }
}

impl Column for usize {
    fn position(self, _: &Row) -> Option<usize> {
        Some(self)
    }
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.names.iter().zip(&self.values)).finish()
    }
}

fn integer(column: impl Column, value: &Value) -> Result<i64, Error> {
    match value {
        Value::Int(value) => Ok(*value),
        other => Err(Error::Shape(format!("column {column} is {other:?}, not an integer"))),
    }
}

fn text(column: impl Column, value: &Value) -> Result<&str, Error> {
    match value {
        Value::Text(value) => Ok(value),
        other => Err(Error::Shape(format!("column {column} is {other:?}, not a text"))),
    }
}

fn uuid<K: newtype_uuid::TypedUuidKind>(
    column: impl Column,
    value: &Value,
) -> Result<newtype_uuid::TypedUuid<K>, Error> {
    let text = text(column, value)?;
    text.parse().map_err(|_| Error::Shape(format!("column {column} holds {text:?}, not a uuid")))
}

impl Row {
    pub(crate) fn new(names: &Arc<Names>, values: Vec<Value>) -> Self {
        Self { names: Arc::clone(names), values, next: Cell::new(0) }
    }

    /// A row of NULLs, for [`Row::refill`].
    pub(crate) fn unfilled(names: &[&str]) -> Self {
        Self::new(&Arc::new(Names::new(names)), vec![Value::Null; names.len()])
    }

    /// Becomes another row of the same result. Text reuses the memory of the previous row's text.
    pub(crate) fn refill<'f>(
        &mut self,
        mut field: impl FnMut(usize) -> Result<Field<'f>, Error>,
    ) -> Result<(), Error> {
        self.next.set(0);
        for (index, value) in self.values.iter_mut().enumerate() {
            value.become_field(field(index)?);
        }
        Ok(())
    }

    /// The values, in the order of the statement.
    pub(crate) fn values(&self) -> &[Value] {
        &self.values
    }

    fn at(&self, column: impl Column) -> Result<&Value, Error> {
        column.position(self).and_then(|position| self.values.get(position)).ok_or_else(|| {
            let names: Vec<_> = self.names.iter().collect();
            Error::Shape(format!("no column {column} among {names:?}"))
        })
    }

    /// The column's value; `None` for NULL.
    fn at_opt(&self, column: impl Column) -> Result<Option<&Value>, Error> {
        Ok(Some(self.at(column)?).filter(|value| **value != Value::Null))
    }

    /// An integer column.
    ///
    /// # Errors
    /// [`Error::Shape`] if the column is absent, NULL or of another type. The same applies to all
    /// accessors.
    pub fn int(&self, column: impl Column) -> Result<i64, Error> {
        integer(column, self.at(column)?)
    }

    /// An integer column that may be NULL.
    pub fn int_opt(&self, column: impl Column) -> Result<Option<i64>, Error> {
        self.at_opt(column)?.map(|value| integer(column, value)).transpose()
    }

    /// A boolean stored as 0 or 1.
    pub fn bool(&self, column: impl Column) -> Result<bool, Error> {
        Ok(self.int(column)? != 0)
    }

    /// A floating-point column; integers are converted.
    pub fn real(&self, column: impl Column) -> Result<f64, Error> {
        match self.at(column)? {
            Value::Real(value) => Ok(*value),
            Value::Int(value) => Ok(*value as f64),
            other => Err(Error::Shape(format!("column {column} is {other:?}, not a number"))),
        }
    }

    /// A text column.
    pub fn text(&self, column: impl Column) -> Result<&str, Error> {
        text(column, self.at(column)?)
    }

    /// A text column that may be NULL.
    pub fn text_opt(&self, column: impl Column) -> Result<Option<&str>, Error> {
        self.at_opt(column)?.map(|value| text(column, value)).transpose()
    }

    /// A text column, owned.
    pub fn string(&self, column: impl Column) -> Result<String, Error> {
        self.text(column).map(str::to_owned)
    }

    /// A text column that may be NULL, owned.
    pub fn string_opt(&self, column: impl Column) -> Result<Option<String>, Error> {
        Ok(self.text_opt(column)?.map(str::to_owned))
    }

    /// The name of a compute host, unchecked: an earlier build or another service may have written it.
    pub fn host(&self, column: impl Column) -> Result<HostName, Error> {
        self.text(column).map(HostName::verbatim)
    }

    /// The name of a compute host, which may be NULL.
    pub fn host_opt(&self, column: impl Column) -> Result<Option<HostName>, Error> {
        Ok(self.text_opt(column)?.map(HostName::verbatim))
    }

    /// A resource class.
    pub fn class(&self, column: impl Column) -> Result<ResourceClass, Error> {
        let text = self.text(column)?;
        ResourceClass::parse(text)
            .map_err(|_| Error::Shape(format!("column {column} holds {text:?}, not a class")))
    }

    /// A time stored as microseconds since 1970.
    ///
    /// # Errors
    /// Also [`Error::Shape`] if no [`Timestamp`] has that value.
    pub fn time(&self, column: impl Column) -> Result<Timestamp, Error> {
        let value = self.int(column)?;
        // `Timestamp::from_microsecond` refuses the last second, which contains saturated times.
        let (second, micros) = (value.div_euclid(1_000_000), value.rem_euclid(1_000_000));
        i32::try_from(micros * 1000)
            .ok()
            .and_then(|nanos| Timestamp::new(second, nanos).ok())
            .ok_or_else(|| Error::Shape(format!("column {column} holds {value}, not a time")))
    }

    /// A time that may be NULL.
    pub fn time_opt(&self, column: impl Column) -> Result<Option<Timestamp>, Error> {
        match self.at(column)? {
            Value::Null => Ok(None),
            _ => self.time(column).map(Some),
        }
    }

    /// A duration stored as microseconds, which may be NULL.
    pub fn duration_opt(&self, column: impl Column) -> Result<Option<SignedDuration>, Error> {
        Ok(self.int_opt(column)?.map(SignedDuration::from_micros))
    }

    /// A typed UUID stored as text.
    pub fn id<K: newtype_uuid::TypedUuidKind>(
        &self,
        column: impl Column,
    ) -> Result<newtype_uuid::TypedUuid<K>, Error> {
        uuid(column, self.at(column)?)
    }

    /// A typed UUID that may be NULL.
    pub fn id_opt<K: newtype_uuid::TypedUuidKind>(
        &self,
        column: impl Column,
    ) -> Result<Option<newtype_uuid::TypedUuid<K>>, Error> {
        self.at_opt(column)?.map(|value| uuid(column, value)).transpose()
    }
}
