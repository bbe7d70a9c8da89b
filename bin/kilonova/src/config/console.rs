//! Consoles: `[vnc]`, `[serial_console]`, `[consoleauth]` and `[console]`, with Nova's options and three of
//! our own.
//!
//! The API's port serves consoles. A separate port, like those of Nova's proxies, is opened only if an option
//! names it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use jiff::SignedDuration;
use kilonova_compute_app::consoles::ConsoleOptions;

use super::{File, compute};
use crate::failure::Failure;

const BASE: &str = "novncproxy_base_url";
const ANCESTORS: &str = "frame_ancestors";
const YES_NO: &str = "true or false";

/// The known options.
pub(super) const KNOWN: [(&str, &str); 13] = [
    ("vnc", "enabled"),
    ("vnc", BASE),
    ("vnc", "novncproxy_host"),
    ("vnc", "novncproxy_port"),
    ("serial_console", "enabled"),
    ("serial_console", "base_url"),
    ("serial_console", "serialproxy_host"),
    ("serial_console", "serialproxy_port"),
    ("consoleauth", "token_ttl"),
    ("consoleauth", "enforce_session_timeout"),
    ("console", "allowed_origins"),
    ("console", ANCESTORS),
    ("console", "max_consoles"),
];

/// Reads the options of the service.
pub(super) fn read(file: &File) -> Result<ConsoleOptions, Failure> {
    let usual = ConsoleOptions::default();
    let yes = |group, option, usual| {
        Ok::<_, Failure>(file.parse(group, option, YES_NO)?.unwrap_or(usual))
    };
    let ttl = compute::number(file, "consoleauth", "token_ttl", 0, usual.token_ttl.as_secs())?;
    let origins = file.get("console", "allowed_origins").unwrap_or_default();
    let max_consoles = compute::number(file, "console", "max_consoles", 1, usual.max_consoles)?;
    Ok(ConsoleOptions {
        vnc: yes("vnc", "enabled", usual.vnc)?,
        vnc_base_url: url(file, "vnc", BASE, &["http://", "https://"])?,
        serial: yes("serial_console", "enabled", usual.serial)?,
        serial_base_url: url(file, "serial_console", "base_url", &["ws://", "wss://"])?,
        token_ttl: SignedDuration::from_secs(ttl),
        enforce_session_timeout: yes(
            "consoleauth",
            "enforce_session_timeout",
            usual.enforce_session_timeout,
        )?,
        allowed_origins: origins
            .split([',', '\n'])
            .map(str::trim)
            .filter(|origin| !origin.is_empty())
            .map(str::to_owned)
            .collect(),
        frame_ancestors: ancestors(file)?.unwrap_or(usual.frame_ancestors),
        max_consoles,
        max_consoles_per_user: usual.max_consoles_per_user,
    })
}

fn url(
    file: &File,
    group: &str,
    option: &str,
    schemes: &[&str],
) -> Result<Option<String>, Failure> {
    match file.get(group, option) {
        Some(url) if !schemes.iter().any(|scheme| url.starts_with(scheme)) => {
            let why =
                format!("{url} is not a valid value; it must begin with {}", schemes.join(" or "));
            Err(file.wrong(group, option, &why))
        }
        url => Ok(url.map(str::to_owned)),
    }
}

/// The sources of the policy `frame-ancestors`, separated by spaces.
fn ancestors(file: &File) -> Result<Option<String>, Failure> {
    let Some(text) = file.get("console", ANCESTORS) else { return Ok(None) };
    let is_source = |c: char| c.is_ascii_graphic() && !matches!(c, ';' | ',');
    let sources: Vec<&str> = text.split_whitespace().collect();
    if sources.is_empty() || !sources.iter().all(|source| source.chars().all(is_source)) {
        let why = format!(
            "{text} is not a valid value; expected sites such as https://horizon.example separated by \
             spaces, 'self', 'none' or *"
        );
        return Err(file.wrong("console", ANCESTORS, &why));
    }
    Ok(Some(sources.join(" ")))
}

/// The listeners for consoles in addition to the API's port.
pub(super) fn listeners(file: &File) -> Result<Vec<SocketAddr>, Failure> {
    let mut listeners = Vec::new();
    for (group, host, port, usual) in [
        ("vnc", "novncproxy_host", "novncproxy_port", 6080),
        ("serial_console", "serialproxy_host", "serialproxy_port", 6083),
    ] {
        let address = file.parse::<IpAddr>(group, host, "an IP address")?;
        let number = file.parse::<u16>(group, port, "a port")?;
        if address.is_some() || number.is_some() {
            let address = address.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
            listeners.push(SocketAddr::new(address, number.unwrap_or(usual)));
        }
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KNOWN;

    fn file(text: &str) -> File {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("k.conf");
        std::fs::write(&path, text).expect("the file is written");
        File::read(&path, KNOWN).expect("the options are known")
    }

    #[test]
    fn the_defaults_are_upstreams() {
        assert_eq!(read(&file("")).expect("it is valid"), ConsoleOptions::default());
        assert_eq!(listeners(&file("")).expect("it is valid"), []);
    }

    #[test]
    fn the_options_of_a_nova_conf_are_read() {
        let file = file(
            "[vnc]\nenabled = False\nnovncproxy_base_url = https://c/vnc_lite.html\nnovncproxy_host = ::1\n\
             [serial_console]\nenabled = true\nbase_url = wss://c/\nserialproxy_port = 7000\n\
             [consoleauth]\ntoken_ttl = 60\nenforce_session_timeout = true\n\
             [console]\nallowed_origins = a.example, b.example\nframe_ancestors = 'self' https://h\n\
             max_consoles = 7\n",
        );
        let read = read(&file).expect("it is valid");
        assert!(!read.vnc && read.serial && read.enforce_session_timeout);
        assert_eq!(read.vnc_base_url.as_deref(), Some("https://c/vnc_lite.html"));
        assert_eq!(read.serial_base_url.as_deref(), Some("wss://c/"));
        assert_eq!(read.token_ttl, SignedDuration::from_mins(1));
        assert_eq!(read.allowed_origins, ["a.example", "b.example"]);
        assert_eq!((&*read.frame_ancestors, read.max_consoles), ("'self' https://h", 7));
        let listeners = listeners(&file).expect("it is valid");
        let listeners: Vec<_> = listeners.iter().map(SocketAddr::to_string).collect();
        assert_eq!(listeners, ["[::1]:6080", "0.0.0.0:7000"]);
    }

    #[test]
    fn invalid_values_are_refused_by_name() {
        for (text, part) in [
            ("[vnc]\nenabled = maybe\n", "k.conf:2: [vnc] enabled: maybe"),
            ("[vnc]\nnovncproxy_base_url = c\n", "it must begin with http:// or https://"),
            ("[serial_console]\nbase_url = http://c\n", "it must begin with ws:// or wss://"),
            ("[consoleauth]\ntoken_ttl = -1\n", "an integer of at least 0"),
            ("[console]\nframe_ancestors = *; script-src *\n", "separated by spaces"),
            ("[console]\nmax_consoles = 0\n", "an integer of at least 1"),
        ] {
            let message = read(&file(text)).expect_err(text).to_string();
            assert!(message.contains(part), "{message}");
        }
        let message = listeners(&file("[vnc]\nnovncproxy_host = c\n")).expect_err("it is a name");
        assert!(message.to_string().contains("an IP address"), "{message}");
    }
}
