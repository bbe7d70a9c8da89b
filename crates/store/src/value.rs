//! Parameters and rows in the four types common to both databases.

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

/// One row of a result.
#[derive(Debug, Clone)]
pub struct Row(pub(crate) Vec<Value>);

impl Row {
    fn at(&self, index: usize) -> Result<&Value, Error> {
        self.0.get(index).ok_or_else(|| Error::Shape(format!("no column {index}")))
    }

    /// An integer column.
    ///
    /// # Errors
    /// [`Error::Shape`] if the column is absent, NULL or of another type; also for all accessors.
    pub fn int(&self, index: usize) -> Result<i64, Error> {
        match self.at(index)? {
            Value::Int(value) => Ok(*value),
            other => Err(Error::Shape(format!("column {index} is {other:?}, not an integer"))),
        }
    }

    /// An integer column that may be NULL.
    pub fn int_opt(&self, index: usize) -> Result<Option<i64>, Error> {
        match self.at(index)? {
            Value::Null => Ok(None),
            _ => self.int(index).map(Some),
        }
    }

    /// A boolean stored as 0 or 1.
    pub fn bool(&self, index: usize) -> Result<bool, Error> {
        Ok(self.int(index)? != 0)
    }

    /// A floating-point column; integers are converted.
    pub fn real(&self, index: usize) -> Result<f64, Error> {
        match self.at(index)? {
            Value::Real(value) => Ok(*value),
            Value::Int(value) => Ok(*value as f64),
            other => Err(Error::Shape(format!("column {index} is {other:?}, not a number"))),
        }
    }

    /// A text column.
    pub fn text(&self, index: usize) -> Result<&str, Error> {
        match self.at(index)? {
            Value::Text(value) => Ok(value),
            other => Err(Error::Shape(format!("column {index} is {other:?}, not a text"))),
        }
    }

    /// A text column that may be NULL.
    pub fn text_opt(&self, index: usize) -> Result<Option<&str>, Error> {
        match self.at(index)? {
            Value::Null => Ok(None),
            _ => self.text(index).map(Some),
        }
    }

    /// A text column, owned.
    pub fn string(&self, index: usize) -> Result<String, Error> {
        self.text(index).map(str::to_owned)
    }

    /// A text column that may be NULL, owned.
    pub fn string_opt(&self, index: usize) -> Result<Option<String>, Error> {
        Ok(self.text_opt(index)?.map(str::to_owned))
    }

    /// A typed uuid stored as text.
    pub fn id<K: newtype_uuid::TypedUuidKind>(
        &self,
        index: usize,
    ) -> Result<newtype_uuid::TypedUuid<K>, Error> {
        let text = self.text(index)?;
        text.parse().map_err(|_| Error::Shape(format!("column {index} holds {text:?}, not a uuid")))
    }

    /// A typed uuid that may be NULL.
    pub fn id_opt<K: newtype_uuid::TypedUuidKind>(
        &self,
        index: usize,
    ) -> Result<Option<newtype_uuid::TypedUuid<K>>, Error> {
        match self.at(index)? {
            Value::Null => Ok(None),
            _ => self.id(index).map(Some),
        }
    }
}
