//! `[node]`: the door for hosts that have joined, and how they are told to find it.

use std::net::SocketAddr;

use super::File;
use crate::failure::Failure;

const GROUP: &str = "node";
const DAY: i64 = 24 * 3600 * 1_000_000;

/// The door for hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDoor {
    /// Where it is.
    pub listen: SocketAddr,
    /// Names and addresses in its certificate; the first is what hosts are told to dial.
    pub names: Vec<String>,
    /// What hosts are told to dial, where it is not that.
    pub url: Option<String>,
    /// For how long a host's certificate is good, microseconds.
    pub valid: i64,
}

pub(super) fn read(
    file: &File,
    listen: Option<SocketAddr>,
    names: Vec<String>,
) -> Result<Option<NodeDoor>, Failure> {
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
    let days = file.parse::<i64>(GROUP, "certificate_days", "a whole number of days, 1 to 3650")?;
    let days = days.unwrap_or(kilonova_enroll::VALID / DAY);
    if !(1..=3650).contains(&days) {
        return Err(file.wrong(GROUP, "certificate_days", "it must be 1 to 3650"));
    }
    let url = file.get(GROUP, "url").map(|url| url.trim_end_matches('/').to_owned());
    if url.as_deref().is_some_and(|url| !url.starts_with("https://")) {
        return Err(file.wrong(GROUP, "url", "it begins with https://"));
    }
    Ok(listen.map(|listen| NodeDoor { listen, names, url, valid: days * DAY }))
}

/// Whether hosts may speak by the word in `node.token`. Unless the file says it: on a loopback address
/// alone, and only while there is no door by which they show certificates.
pub(super) fn token(
    file: &File,
    listen: SocketAddr,
    door: Option<&NodeDoor>,
) -> Result<bool, Failure> {
    let said = file.parse(GROUP, "token", "true or false")?;
    Ok(said.unwrap_or_else(|| listen.ip().is_loopback() && door.is_none()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KNOWN;

    fn door(text: &str) -> Result<Option<NodeDoor>, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("k.conf");
        std::fs::write(&path, text).expect("written");
        let read = File::read(&path, KNOWN).and_then(|file| read(&file, None, Vec::new()));
        read.map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_word_for_hosts_counts_where_nobody_else_listens() {
        let by_word = |text: &str, listen: &str| {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("k.conf");
            std::fs::write(&path, text).expect("written");
            let file = File::read(&path, KNOWN).expect("read");
            let door = read(&file, None, Vec::new()).expect("fine");
            token(&file, listen.parse().expect("an address"), door.as_ref()).expect("fine")
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
    fn without_an_address_there_is_no_door() {
        assert_eq!(door("[node]\nnames = a\n"), Ok(None));
        let text =
            "[node]\nlisten = 0.0.0.0:8775\nnames = cloud, 192.0.2.1\ncertificate_days = 7\n";
        let one = door(text).expect("fine").expect("a door");
        assert_eq!(one.names, ["cloud", "192.0.2.1"]);
        assert_eq!((one.valid, one.url), (7 * DAY, None));
        for (text, part) in [
            ("[node]\nlisten = here\n", "k.conf:2: [node] listen: here"),
            ("[node]\nurl = http://x\n", "k.conf:2: [node] url: it begins with https://"),
            ("[node]\ncertificate_days = 0\n", "k.conf:2: [node] certificate_days"),
            ("[node]\nname = x\n", "this option is not known"),
        ] {
            let said = door(text).expect_err(text);
            assert!(said.contains(part), "{said}");
        }
    }
}
