//! A veth pair from a bridge of the host into a namespace.

use super::OURS;
use crate::run::{run, words};

/// A pair, not yet created.
#[derive(Debug)]
pub(crate) struct Veth<'a> {
    /// The host's end.
    pub name: &'a str,
    /// The end in the namespace.
    pub inner: &'a str,
    /// A process in the namespace.
    pub pid: i32,
    /// The MAC address of the inner end. It is set last: an inner end that has it is complete.
    pub mac: &'a str,
    /// The MTU of both ends.
    pub mtu: i64,
    /// True if the inner end is set up immediately.
    pub up: bool,
}

impl Veth<'_> {
    /// The lines for `ip` on the host, and those in the namespace. Neither end gets a link-local address.
    fn lines(&self, replaces: bool) -> (String, String) {
        let Self { name, inner, pid, mac, mtu, up } = self;
        let gone = if replaces { format!("link delete dev {name}\n") } else { String::new() };
        let here = format!(
            "{gone}link add name {name} type veth peer name {inner} netns {pid}\n\
             link set dev {name} alias {OURS}\n\
             link set dev {name} addrgenmode none\n\
             link set dev {name} mtu {mtu}\n"
        );
        let up = if *up { " up" } else { "" };
        let there = format!(
            "link set dev {inner} addrgenmode none\n\
             link set dev {inner} mtu {mtu} address {mac}{up}\n"
        );
        (here, there)
    }
}

/// Creates a pair whose host end is down; `replaces` removes an existing one first.
pub(crate) async fn veth(pair: &Veth<'_>, replaces: bool) -> Result<(), String> {
    let (here, there) = pair.lines(replaces);
    let batch = ["ip", "-batch", "-"];
    run(batch[0], &words(&batch[1..]), here.as_bytes()).await?;
    let mut inside = vec![format!("--net=/proc/{}/ns/net", pair.pid), "--".into()];
    inside.extend(words(&batch));
    run("nsenter", &inside, there.as_bytes()).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_inside_comes_last() {
        let pair = Veth {
            name: "krx",
            inner: "qr-x",
            pid: 7,
            mac: "fa:16:3e:00:00:01",
            mtu: 1450,
            up: true,
        };
        let (here, there) = pair.lines(false);
        assert_eq!(
            here,
            "link add name krx type veth peer name qr-x netns 7\n\
             link set dev krx alias kilonova\n\
             link set dev krx addrgenmode none\n\
             link set dev krx mtu 1450\n"
        );
        assert_eq!(
            there,
            "link set dev qr-x addrgenmode none\n\
             link set dev qr-x mtu 1450 address fa:16:3e:00:00:01 up\n"
        );
        assert_eq!(pair.lines(true).0, format!("link delete dev krx\n{here}"));
    }
}
