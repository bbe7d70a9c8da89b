//! The password of a connection: from the URL, `PGPASSWORD`, or a file in libpq's format. The file is
//! read for each connection, so a new password needs no restart.

use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tokio_postgres::config::Host;

use super::url::{Endpoint, PostgresUrl};

/// The password for an endpoint, if any is given.
///
/// # Errors
/// If the file cannot be read, or others can read it.
pub(super) fn of(url: &PostgresUrl, endpoint: &Endpoint) -> Result<Option<Vec<u8>>, String> {
    find(url, endpoint, |name| std::env::var_os(name))
}

/// Like [`of`], with the given environment.
fn find(
    url: &PostgresUrl,
    endpoint: &Endpoint,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<Vec<u8>>, String> {
    if let Some(password) = url.config.get_password() {
        return Ok(Some(password.to_vec()));
    }
    let set = |name| variable(name).filter(|value| !value.is_empty());
    if let Some(password) = set("PGPASSWORD") {
        return Ok(Some(std::os::unix::ffi::OsStringExt::into_vec(password)));
    }
    let (file, source) = match &url.passfile {
        Some(file) => (Some(file.clone()), "passfile"),
        None => (set("PGPASSFILE").map(PathBuf::from), "PGPASSFILE"),
    };
    let Some(file) = file else { return Ok(None) };
    let wrong = |why: &str| format!("{source} {}: {why}", file.display());
    let text = secret(&file).map_err(|why| wrong(&why))?;
    let text = String::from_utf8(text).map_err(|_| wrong("it is not UTF-8"))?;
    Ok(line(&text, url, endpoint).map(String::into_bytes))
}

/// Reads a file, and refuses one that others can read.
pub(super) fn secret(file: &Path) -> Result<Vec<u8>, String> {
    let found = std::fs::metadata(file).map_err(|e| e.to_string())?;
    if !is_private(&found) {
        let mode = found.mode() & 0o7777;
        return Err(format!("others can read it ({mode:04o}); chmod 600 {}", file.display()));
    }
    std::fs::read(file).map_err(|e| e.to_string())
}

/// True if others have no access to the file. As in libpq, its group may read it if root owns it.
fn is_private(found: &Metadata) -> bool {
    let open = if found.uid() == 0 { 0o037 } else { 0o077 };
    found.mode() & open == 0
}

/// The password in the first matching line `host:port:database:user:password`; `*` matches
/// everything.
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

/// The five fields of a line; `\` escapes the next character.
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// The password found with a URL and these variables.
    fn found(rest: &str, variables: &[(&str, &str)]) -> Result<Option<String>, String> {
        let url = PostgresUrl::parse(rest).expect("the URL is valid");
        let endpoint = url.endpoints().first().expect("it names a host").clone();
        let value = |name: &str| variables.iter().find(|(known, _)| *known == name);
        let found = find(&url, &endpoint, |name| value(name).map(|(_, value)| value.into()))?;
        Ok(found.map(|bytes| String::from_utf8(bytes).expect("it is UTF-8")))
    }

    #[test]
    fn the_url_comes_before_the_environment_and_the_password_before_the_file() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let file = |name: &str, password: &str, mode: u32| {
            let path = folder.path().join(name);
            let line = format!("db:5432:kn:kn:{password}\n");
            std::fs::write(&path, line).expect("the file is written");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("it has a mode");
            path.to_str().expect("the path is UTF-8").to_owned()
        };
        let (named, usual) = (file("named", "in-named", 0o600), file("usual", "in-usual", 0o400));
        let by_url = format!("kn@db/kn?passfile={named}");
        let (file_variable, word) = (("PGPASSFILE", usual.as_str()), ("PGPASSWORD", "in-word"));
        for (url, variables, expected) in [
            ("kn:in-url@db/kn", vec![word, file_variable], Some("in-url")),
            (&by_url, vec![word, file_variable], Some("in-word")),
            (&by_url, vec![file_variable], Some("in-named")),
            ("kn@db/kn", vec![file_variable], Some("in-usual")),
            ("kn@db/kn", vec![("PGPASSWORD", ""), file_variable], Some("in-usual")),
            ("kn@elsewhere/kn", vec![file_variable], None),
            ("kn@db/kn", vec![], None),
        ] {
            let found = found(url, &variables);
            assert_eq!(found, Ok(expected.map(str::to_owned)), "{url} {variables:?}");
        }
        // A refusal names the file, the origin of its name, and the remedy.
        for mode in [0o644, 0o604, 0o640, 0o660] {
            use std::os::unix::fs::MetadataExt as _;
            let open = file("open", "in-open", mode);
            let of_root = std::fs::metadata(&open).expect("it is there").uid() == 0;
            if of_root && mode == 0o640 {
                continue;
            }
            let expected = format!("{open}: others can read it ({mode:04o}); chmod 600 {open}");
            let variable = found("kn@db/kn", &[("PGPASSFILE", &open)]);
            assert_eq!(variable, Err(format!("PGPASSFILE {expected}")));
            let parameter = found(&format!("kn@db/kn?passfile={open}"), &[]);
            assert_eq!(parameter, Err(format!("passfile {expected}")));
        }
        let missing = found("kn@db/kn", &[("PGPASSFILE", "/nowhere")]).expect_err("no such file");
        assert!(missing.starts_with("PGPASSFILE /nowhere: No such file"), "{missing}");
    }
}
