//! `[database]`: the location of the data, with oslo.db's options where they exist, and the limits
//! of connections to PostgreSQL.

use std::time::Duration;

use kilonova_store::{DatabaseUrl, Options};

use super::{File, compute::number};
use crate::failure::Failure;

const GROUP: &str = "database";
const CONNECTION: &str = "connection";
const PARAMETERS: &str = "connection_parameters";

/// The known options.
pub(super) const KNOWN: [(&str, &str); 11] = [
    (GROUP, CONNECTION),
    (GROUP, PARAMETERS),
    (GROUP, "max_pool_size"),
    (GROUP, "pool_timeout"),
    (GROUP, "connection_recycle_time"),
    (GROUP, "max_retries"),
    (GROUP, "retry_interval"),
    (GROUP, "connect_timeout"),
    (GROUP, "statement_timeout"),
    (GROUP, "lock_timeout"),
    (GROUP, "answer_timeout"),
];

/// The URL of the command line, or else of the file, with `connection_parameters`; `None` if there is no URL.
pub(super) fn url(file: &File, argument: Option<String>) -> Result<Option<String>, Failure> {
    let (text, from_file) = match argument {
        Some(text) => (text, false),
        None => match file.get(GROUP, CONNECTION) {
            Some(text) => (text.to_owned(), true),
            None => {
                if file.get(GROUP, PARAMETERS).is_some() {
                    let why = "it has no effect without [database] connection";
                    return Err(file.wrong(GROUP, PARAMETERS, why));
                }
                return Ok(None);
            }
        },
    };
    let alone = text.parse::<DatabaseUrl>();
    if matches!(alone, Ok(DatabaseUrl::Sqlite(_))) && file.get(GROUP, PARAMETERS).is_some() {
        return Err(file.wrong(GROUP, PARAMETERS, "only PostgreSQL has parameters"));
    }
    let whole = whole(file, text);
    let Err(error) = whole.parse::<DatabaseUrl>() else { return Ok(Some(whole)) };
    let why = error.to_string();
    // The parameters may supply a missing part of the URL. They caused the error if the URL alone has
    // a different error or none.
    match alone {
        Err(error) if error.to_string() == why && from_file => {
            Err(file.wrong(GROUP, CONNECTION, &why))
        }
        Err(error) if error.to_string() == why => {
            Err(Failure::Refused(format!("--database: {why}")))
        }
        Ok(_) | Err(_) => Err(file.wrong(GROUP, PARAMETERS, &why)),
    }
}

/// A URL with the parameters of the file appended, as oslo.db does.
pub(super) fn whole(file: &File, url: String) -> String {
    match file.get(GROUP, PARAMETERS) {
        None => url,
        Some(parameters) if url.contains('?') => format!("{url}&{parameters}"),
        Some(parameters) => format!("{url}?{parameters}"),
    }
}

/// True if the parameters contain a password.
pub(super) fn parameters_hold_a_password(file: &File) -> bool {
    file.get(GROUP, PARAMETERS).is_some_and(|text| text.contains("password="))
}

pub(super) fn read(file: &File) -> Result<Options, Failure> {
    let usual = Options::default();
    let seconds = |option, usual: Duration| {
        number(file, GROUP, option, 1, usual.as_secs()).map(Duration::from_secs)
    };
    let limits = Options {
        max_pool_size: number(file, GROUP, "max_pool_size", 1, usual.max_pool_size)?,
        pool_timeout: seconds("pool_timeout", usual.pool_timeout)?,
        connection_recycle_time: recycle(file, usual.connection_recycle_time)?,
        max_retries: retries(file, usual.max_retries)?,
        retry_interval: seconds("retry_interval", usual.retry_interval)?,
        connect_timeout: seconds("connect_timeout", usual.connect_timeout)?,
        statement_timeout: seconds("statement_timeout", usual.statement_timeout)?,
        lock_timeout: seconds("lock_timeout", usual.lock_timeout)?,
        answer_timeout: seconds("answer_timeout", usual.answer_timeout)?,
    };
    if limits.max_pool_size > 1000 {
        return Err(file.wrong(GROUP, "max_pool_size", "it must be at most 1000"));
    }
    if limits.answer_timeout <= limits.statement_timeout {
        let named = file.get(GROUP, "statement_timeout").is_some();
        let option = if named { "statement_timeout" } else { "answer_timeout" };
        let why = format!(
            "statement_timeout ({} s) must be less than answer_timeout ({} s): the server then ends a \
             long statement, and the connection survives",
            limits.statement_timeout.as_secs(),
            limits.answer_timeout.as_secs()
        );
        return Err(file.wrong(GROUP, option, &why));
    }
    Ok(limits)
}

/// The age at which connections are replaced; as in oslo.db, -1 means never.
fn recycle(file: &File, usual: Option<Duration>) -> Result<Option<Duration>, Failure> {
    const OPTION: &str = "connection_recycle_time";
    const EXPECTED: &str = "a number of seconds, or -1 for never";
    match file.parse::<i64>(GROUP, OPTION, EXPECTED)? {
        None => Ok(usual),
        Some(-1) => Ok(None),
        Some(seconds) => match u64::try_from(seconds) {
            Ok(seconds) => Ok(Some(Duration::from_secs(seconds))),
            Err(_) => Err(file.wrong(GROUP, OPTION, &format!("expected {EXPECTED}"))),
        },
    }
}

/// The number of connection attempts; as in oslo.db, -1 means no limit.
fn retries(file: &File, usual: Option<u32>) -> Result<Option<u32>, Failure> {
    const OPTION: &str = "max_retries";
    const EXPECTED: &str = "a number of attempts, or -1 for no limit";
    match file.parse::<i64>(GROUP, OPTION, EXPECTED)? {
        None => Ok(usual),
        Some(-1) => Ok(None),
        Some(attempts) => match u32::try_from(attempts) {
            Ok(attempts) => Ok(Some(attempts)),
            Err(_) => Err(file.wrong(GROUP, OPTION, &format!("expected {EXPECTED}"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KNOWN;

    fn file(text: &str) -> File {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("k.conf");
        std::fs::write(&path, text).expect("the file is written");
        File::read(&path, KNOWN).expect("every option is known")
    }

    #[test]
    fn the_defaults_are_those_of_the_store() {
        assert_eq!(read(&File::default()).expect("it is valid"), Options::default());
        let read = read(&file(
            "[database]\nmax_pool_size = 4\nmax_retries = -1\nconnection_recycle_time = -1\n\
             answer_timeout = 60\nstatement_timeout = 50\n",
        ))
        .expect("it is valid");
        assert_eq!((read.max_pool_size, read.max_retries), (4, None));
        assert_eq!(read.connection_recycle_time, None);
        assert_eq!(read.statement_timeout, Duration::from_secs(50));
    }

    #[test]
    fn limits_that_contradict_each_other_are_refused() {
        for (text, part) in [
            ("statement_timeout = 15\n", "k.conf:2: [database] statement_timeout"),
            ("answer_timeout = 5\n", "k.conf:2: [database] answer_timeout"),
            ("max_pool_size = 0\n", "k.conf:2: [database] max_pool_size"),
            ("max_pool_size = 5000\n", "at most 1000"),
            ("max_retries = -2\n", "-1 for no limit"),
            ("connection_recycle_time = soon\n", "-1 for never"),
        ] {
            let message = read(&file(&format!("[database]\n{text}"))).expect_err(text).to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn parameters_are_appended_to_either_url() {
        let with = |text: &str, argument: Option<&str>| {
            url(&file(&format!("[database]\n{text}")), argument.map(str::to_owned))
                .map_err(|failure| failure.to_string())
        };
        let parameters = "connection_parameters = sslmode=require&application_name=a\n";
        let text = format!("connection = postgresql://kn@db/kn\n{parameters}");
        let whole = "postgresql://kn@db/kn?sslmode=require&application_name=a";
        assert_eq!(with(&text, None), Ok(Some(whole.into())));
        let named = with(&text, Some("postgresql://kn@other/kn?user=kn")).expect("it is valid");
        assert!(
            named
                .expect("there is a URL")
                .ends_with("other/kn?user=kn&sslmode=require&application_name=a")
        );
        for (text, part) in [
            (parameters, "it has no effect without"),
            ("connection = sqlite:////k.db\nconnection_parameters = a=b\n", "only PostgreSQL"),
            (
                "connection = postgresql://h/d\nconnection_parameters = sslmode=verify-full\n",
                "k.conf:3: [database] connection_parameters: bad database URL: sslmode=verify-ca",
            ),
            // The URL is wrong, not the parameters.
            (
                "connection = mysql://h/d\nconnection_parameters = sslmode=require\n",
                "k.conf:2: [database] connection: bad database URL: scheme mysql",
            ),
            (
                "connection = postgresql://h/d?sslmode=on\nconnection_parameters = user=kn\n",
                "k.conf:2: [database] connection: bad database URL: sslmode must be",
            ),
            (
                "connection = postgresql:///d\nconnection_parameters = host=h&sslmode=on\n",
                "k.conf:3: [database] connection_parameters: bad database URL: sslmode must be",
            ),
        ] {
            let message = with(text, None).expect_err(text);
            assert!(message.contains(part), "{text}: {message}");
        }
        let argument = with(parameters, Some("mysql://h/d")).expect_err("mysql is not supported");
        assert!(argument.contains("--database: bad database URL: scheme mysql"), "{argument}");
        let lacks = "connection = postgresql:///d\nconnection_parameters = host=h\n";
        assert!(with(lacks, None).is_ok(), "the parameters name the host");
    }
}
