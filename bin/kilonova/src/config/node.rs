//! `[node]`: the listener for enrolled hosts, and the URL at which they reach it.

use std::net::SocketAddr;

use jiff::SignedDuration;

use super::File;
use crate::failure::Failure;

const GROUP: &str = "node";

/// The listener for enrolled hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeListener {
    /// Its address.
    pub listen: SocketAddr,
    /// Names and addresses in its certificate; hosts use the first one.
    pub names: Vec<String>,
    /// The URL for hosts, if it does not follow from the first name.
    pub url: Option<String>,
    /// The URL of this one controller, if it does not follow from the listening address.
    pub own_url: Option<String>,
    /// Validity of a host's certificate.
    pub valid: SignedDuration,
}

pub(super) fn read(
    file: &File,
    listen: Option<SocketAddr>,
    names: Vec<String>,
) -> Result<Option<NodeListener>, Failure> {
    let listen = match listen {
        Some(listen) => Some(listen),
        None => file.parse(GROUP, "listen", "ADDRESS:PORT")?,
    };
    let names = if names.is_empty() {
        let listed = file.get(GROUP, "names").unwrap_or_default().split([',', '\n']);
        listed.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    } else {
        names
    };
    let days = file.parse::<i64>(GROUP, "certificate_days", "an integer from 1 to 3650 (days)")?;
    if days.is_some_and(|days| !(1..=3650).contains(&days)) {
        return Err(file.wrong(GROUP, "certificate_days", "it must be 1 to 3650"));
    }
    let url = |option| {
        let url = file.get(GROUP, option).map(|url| url.trim_end_matches('/').to_owned());
        match url {
            Some(url) if !url.starts_with("https://") => {
                Err(file.wrong(GROUP, option, "it must begin with https://"))
            }
            url => Ok(url),
        }
    };
    let (url, own_url) = (url("url")?, url("own_url")?);
    let valid = days.map_or(kilonova_enroll::VALID, |days| SignedDuration::from_hours(days * 24));
    Ok(listen.map(|listen| NodeListener { listen, names, url, own_url, valid }))
}

/// True if hosts may authenticate with `node.token`. By default only on a loopback address and without
/// a listener for enrolled hosts.
pub(super) fn token(
    file: &File,
    listen: SocketAddr,
    listener: Option<&NodeListener>,
) -> Result<bool, Failure> {
    let token = file.parse(GROUP, "token", "true or false")?;
    Ok(token.unwrap_or_else(|| listen.ip().is_loopback() && listener.is_none()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KNOWN;

    fn listener(text: &str) -> Result<Option<NodeListener>, String> {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("k.conf");
        std::fs::write(&path, text).expect("the file is written");
        let read = File::read(&path, KNOWN).and_then(|file| read(&file, None, Vec::new()));
        read.map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_node_token_is_accepted_on_loopback_only() {
        let by_word = |text: &str, listen: &str| {
            let folder = tempfile::tempdir().expect("a temporary directory is created");
            let path = folder.path().join("k.conf");
            std::fs::write(&path, text).expect("the file is written");
            let file = File::read(&path, KNOWN).expect("the file is read");
            let listener = read(&file, None, Vec::new()).expect("the file is valid");
            token(&file, listen.parse().expect("the address is valid"), listener.as_ref())
                .expect("the file is valid")
        };
        let (here, everywhere) = ("127.0.0.1:8774", "0.0.0.0:8774");
        assert!(by_word("", here));
        assert!(by_word("", "[::1]:8774"));
        assert!(!by_word("", everywhere));
        assert!(!by_word("[node]\nlisten = 127.0.0.1:0\n", here));
        assert!(by_word("[node]\ntoken = true\n", everywhere));
        assert!(!by_word("[node]\ntoken = false\n", here));
    }

    #[test]
    fn without_an_address_there_is_no_listener() {
        assert_eq!(listener("[node]\nnames = a\n"), Ok(None));
        let text =
            "[node]\nlisten = 0.0.0.0:8775\nnames = cloud, 192.0.2.1\ncertificate_days = 7\n";
        let one =
            listener(text).expect("the file is valid").expect("the file configures a listener");
        assert_eq!(one.names, ["cloud", "192.0.2.1"]);
        assert_eq!((one.valid, one.url), (SignedDuration::from_hours(7 * 24), None));
        for (text, part) in [
            ("[node]\nlisten = here\n", "k.conf:2: [node] listen: here"),
            ("[node]\nurl = http://x\n", "k.conf:2: [node] url: it must begin with https://"),
            ("[node]\ncertificate_days = 0\n", "k.conf:2: [node] certificate_days"),
            ("[node]\nname = x\n", "this option is not known"),
        ] {
            let message = listener(text).expect_err(text);
            assert!(message.contains(part), "{message}");
        }
    }
}
