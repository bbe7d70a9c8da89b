//! `sqlite:///path/to/file` and `postgresql://user@host/db?host=/run/socket`, as oslo.db spells
//! them (a driver suffix such as `+psycopg2` is accepted and ignored).

use std::path::PathBuf;
use std::str::FromStr;

use crate::{Error, PostgresUrl};

/// The location of the data.
#[derive(Debug, Clone)]
pub enum DatabaseUrl {
    /// A file.
    Sqlite(PathBuf),
    /// A server.
    Postgres(Box<PostgresUrl>),
}

impl FromStr for DatabaseUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |why: &str| Error::Open(format!("bad database URL: {why}"));
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| wrong("expected sqlite:///FILE or postgresql://USER@HOST/DATABASE"))?;
        match scheme.split('+').next().unwrap_or_default() {
            "sqlite" => match rest.strip_prefix('/') {
                Some(path) if !path.is_empty() => Ok(Self::Sqlite(PathBuf::from(path))),
                _ => Err(wrong("sqlite:/// needs a file name after the third slash")),
            },
            "postgresql" | "postgres" => PostgresUrl::parse(rest)
                .map(|url| Self::Postgres(Box::new(url)))
                .map_err(|why| wrong(&why)),
            other => {
                Err(wrong(&format!("scheme {other} is not supported; use sqlite or postgresql")))
            }
        }
    }
}
