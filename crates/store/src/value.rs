//! Parameters and rows in the four types common to both databases.

use std::sync::Arc;

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
    /// `TEXT`; uuids and JSON documents too.
    Text(String),
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

/// The column names of a result, shared by its rows.
pub(crate) type Names = Arc<[Box<str>]>;

/// One row of a result.
#[derive(Debug, Clone)]
pub struct Row {
    pub(crate) names: Names,
    pub(crate) values: Vec<Value>,
}

/// A column of a result: its name, or its position where a statement returns a single column
/// without a name (`COUNT(*)`).
pub trait Column: Copy + std::fmt::Display {
    /// The position in a row with these names.
    fn position(self, names: &[Box<str>]) -> Option<usize>;
}

impl Column for &str {
    fn position(self, names: &[Box<str>]) -> Option<usize> {
        names.iter().position(|name| **name == *self)
    }
}

impl Column for usize {
    fn position(self, names: &[Box<str>]) -> Option<usize> {
        (self < names.len()).then_some(self)
    }
}

impl Row {
    fn at(&self, column: impl Column) -> Result<&Value, Error> {
        let position = column.position(&self.names);
        position
            .and_then(|position| self.values.get(position))
            .ok_or_else(|| Error::Shape(format!("no column {column} among {:?}", self.names)))
    }

    /// An integer column.
    ///
    /// # Errors
    /// [`Error::Shape`] if the column is absent, NULL or of another type; also for all accessors.
    pub fn int(&self, column: impl Column) -> Result<i64, Error> {
        match self.at(column)? {
            Value::Int(value) => Ok(*value),
            other => Err(Error::Shape(format!("column {column} is {other:?}, not an integer"))),
        }
    }

    /// An integer column that may be NULL.
    pub fn int_opt(&self, column: impl Column) -> Result<Option<i64>, Error> {
        match self.at(column)? {
            Value::Null => Ok(None),
            _ => self.int(column).map(Some),
        }
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
        match self.at(column)? {
            Value::Text(value) => Ok(value),
            other => Err(Error::Shape(format!("column {column} is {other:?}, not a text"))),
        }
    }

    /// A text column that may be NULL.
    pub fn text_opt(&self, column: impl Column) -> Result<Option<&str>, Error> {
        match self.at(column)? {
            Value::Null => Ok(None),
            _ => self.text(column).map(Some),
        }
    }

    /// A text column, owned.
    pub fn string(&self, column: impl Column) -> Result<String, Error> {
        self.text(column).map(str::to_owned)
    }

    /// A text column that may be NULL, owned.
    pub fn string_opt(&self, column: impl Column) -> Result<Option<String>, Error> {
        Ok(self.text_opt(column)?.map(str::to_owned))
    }

    /// The name of a compute host, as an earlier build or another service may have written it.
    pub fn host(&self, column: impl Column) -> Result<HostName, Error> {
        self.text(column).map(HostName::verbatim)
    }

    /// The name of a compute host that may be NULL.
    pub fn host_opt(&self, column: impl Column) -> Result<Option<HostName>, Error> {
        Ok(self.text_opt(column)?.map(HostName::verbatim))
    }

    /// A resource class.
    pub fn class(&self, column: impl Column) -> Result<ResourceClass, Error> {
        let text = self.text(column)?;
        ResourceClass::parse(text)
            .map_err(|_| Error::Shape(format!("column {column} holds {text:?}, not a class")))
    }

    /// A typed uuid stored as text.
    pub fn id<K: newtype_uuid::TypedUuidKind>(
        &self,
        column: impl Column,
    ) -> Result<newtype_uuid::TypedUuid<K>, Error> {
        let text = self.text(column)?;
        text.parse()
            .map_err(|_| Error::Shape(format!("column {column} holds {text:?}, not a uuid")))
    }

    /// A typed uuid that may be NULL.
    pub fn id_opt<K: newtype_uuid::TypedUuidKind>(
        &self,
        column: impl Column,
    ) -> Result<Option<newtype_uuid::TypedUuid<K>>, Error> {
        match self.at(column)? {
            Value::Null => Ok(None),
            _ => self.id(column).map(Some),
        }
    }
}
