//! `sqlite:///path/to/file` and `postgresql://user@host/db?host=/run/socket`, as oslo.db spells
//! them (a driver suffix such as `+psycopg2` is accepted and ignored).

use std::path::PathBuf;
use std::str::FromStr;

use crate::Error;

/// The location of the data.
#[derive(Debug, Clone)]
pub enum DatabaseUrl {
    /// A file.
    Sqlite(PathBuf),
    /// A server.
    Postgres(Box<tokio_postgres::Config>),
}

impl FromStr for DatabaseUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |why: String| Error::Open(format!("bad database URL: {why}"));
        let (scheme, rest) = text.split_once("://").ok_or_else(|| {
            wrong("expected sqlite:///FILE or postgresql://USER@HOST/DATABASE".into())
        })?;
        match scheme.split('+').next().unwrap_or_default() {
            "sqlite" => match rest.strip_prefix('/') {
                Some(path) if !path.is_empty() => Ok(Self::Sqlite(PathBuf::from(path))),
                _ => Err(wrong("sqlite:/// needs a file name after the third slash".into())),
            },
            "postgresql" | "postgres" => format!("postgresql://{rest}")
                .parse()
                .map(|config| Self::Postgres(Box::new(config)))
                .map_err(|e| wrong(e.to_string())),
            other => {
                Err(wrong(format!("scheme {other} is not supported; use sqlite or postgresql")))
            }
        }
    }
}
