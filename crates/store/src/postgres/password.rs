//! The password of a connection: from the URL, `PGPASSWORD`, or a file in libpq's format. The file is
//! read for each connection, so a new password needs no restart.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tokio_postgres::config::Host;

use super::url::{Endpoint, PostgresUrl};

/// The password for an endpoint, if any is given.
///
/// # Errors
/// A file that cannot be read, or that others can read.
pub(super) fn of(url: &PostgresUrl, endpoint: &Endpoint) -> Result<Option<Vec<u8>>, String> {
    if let Some(password) = url.config.get_password() {
        return Ok(Some(password.to_vec()));
    }
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(password) = set("PGPASSWORD") {
        return Ok(Some(std::os::unix::ffi::OsStringExt::into_vec(password)));
    }
    let file = url.passfile.clone().or_else(|| set("PGPASSFILE").map(PathBuf::from));
    let Some(file) = file else { return Ok(None) };
    let text = secret(&file).map_err(|why| format!("passfile {}: {why}", file.display()))?;
    let text =
        String::from_utf8(text).map_err(|_| format!("passfile {} is not UTF-8", file.display()))?;
    Ok(line(&text, url, endpoint).map(String::into_bytes))
}

/// The bytes of a file that nobody else may read.
pub(super) fn secret(file: &Path) -> Result<Vec<u8>, String> {
    let found = std::fs::metadata(file).map_err(|e| e.to_string())?;
    if !is_private(&found) {
        let mode = found.mode() & 0o7777;
        return Err(format!("others can read it ({mode:04o}); chmod 600 {}", file.display()));
    }
    std::fs::read(file).map_err(|e| e.to_string())
}

/// As libpq: a file of root may be readable by its group.
fn is_private(found: &Metadata) -> bool {
    let open = if found.uid() == 0 { 0o037 } else { 0o077 };
    found.mode() & open == 0
}

/// The password of the first line `host:port:database:user:password` that fits; `*` fits all.
fn line(text: &str, url: &PostgresUrl, endpoint: &Endpoint) -> Option<String> {
    let (host, socket) = match &endpoint.host {
        Host::Tcp(name) => (name.clone(), false),
        Host::Unix(folder) => (folder.to_string_lossy().into_owned(), true),
    };
    let user = url.config.get_user().unwrap_or_default();
    let database = url.config.get_dbname().unwrap_or(user);
    let port = endpoint.port.to_string();
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let [named, at, name, role, password] = fields(line)?;
        let fits = |field: &str, value: &str| field == "*" || field == value;
        let here = fits(&named, &host) || (socket && named == "localhost");
        (here && fits(&at, &port) && fits(&name, database) && fits(&role, user)).then_some(password)
    })
}

/// The five fields of a line; `\` makes the next character an ordinary one.
fn fields(line: &str) -> Option<[String; 5]> {
    let mut fields: [String; 5] = Default::default();
    let mut at = 0;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            ':' if at == 4 => break,
            ':' => at += 1,
            '\\' => fields.get_mut(at)?.push(characters.next()?),
            other => fields.get_mut(at)?.push(other),
        }
    }
    (at == 4).then_some(fields)
}
