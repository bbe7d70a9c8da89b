//! Files of guests that another host has: all of a guest that was shut off there, or what a guest that
//! comes running does not bring itself.
//!
//! They come by `rsync` over `ssh`, as upstream's do: it checks what it copies, keeps files small that
//! have holes, and needs nothing on the other host but a key that may read there. Nothing is used
//! before all of it is here; what a host has of a guest already is older, and is thrown away.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use kilonova_hypervisor::Definition;
use kilonova_ids::{ImageId, ServerId};
use kilonova_node_api::Peer;

use crate::cache::{Base, Held};
use crate::layout::{self, Record};
use crate::make::rebuilt;
use crate::run::Run;
use crate::{Config, Disks, Error, info};

/// What is of one host alone.
const STAYS: [&str; 4] =
    ["--exclude=.new-*", "--exclude=*.rescue", "--exclude=*.snapshot", "--exclude=console.log"];
/// What a guest that comes running brings itself.
const COMES: [&str; 3] = ["--exclude=/disk", "--exclude=/disk.eph0", "--exclude=/disk.swap"];

impl Disks {
    /// Fetches the disks of a shut off guest from the host that has them, and lets those that are too
    /// small grow.
    ///
    /// # Errors
    /// All of [`Error`]; what was here of the guest may be gone.
    pub async fn fetch(&self, want: &Definition, from: &Peer) -> Result<(), Error> {
        let (arriving, record) = self.take(want, from, &[]).await?;
        let disk = arriving.join(layout::ROOT);
        if !disk.is_file() {
            return Err(absent(want.server, from));
        }
        let held = match record.image {
            Some(image) => {
                let (base, held) = self.base(want.server, image, &record, from).await?;
                let rebase = Run::new("qemu-img").args(["rebase", "-q", "-u", "-f", "qcow2"]);
                let rebase = rebase.arg("-F").arg(base.format.as_str()).arg("-b").arg(&base.path);
                rebase.arg("--").arg(&disk).wait().await?;
                Some((base.name(), held))
            }
            None => None,
        };
        let bases = held.iter().map(|(name, _)| name.clone()).collect();
        let record = Record { host: self.layout.host(), bases, rescue: None, ..record };
        let folder = self.settle(want.server, &arriving, &record)?;
        self.complete(want, &folder, record).await
    }

    /// Gets disks ready that the guest fills, which comes running from another host; what it does not
    /// bring, such as its config drive, is fetched from there. Where that host cannot be read from, it
    /// is made as the guest was told it, and disks are as large as its flavor says.
    ///
    /// # Errors
    /// All of [`Error`]; what was here of the guest may be gone.
    pub async fn prepare_arrival(&self, want: &Definition, from: &Peer) -> Result<(), Error> {
        let (arriving, record) = match self.take(want, from, &COMES).await {
            Ok(taken) => taken,
            Err(error @ Error::Peer { .. }) => {
                tracing::warn!(server = %want.server, %error, "the guest's config drive is made anew");
                layout::remove_folder(&self.layout.arriving(want.server))?;
                layout::remove_folder(&self.layout.folder(want.server))?;
                return self.prepare(want).await;
            }
            Err(error) => return Err(error),
        };
        let held = match record.image {
            Some(image) => Some(self.base(want.server, image, &record, from).await?),
            None => None,
        };
        let base = held.as_ref().map(|(base, _)| base);
        self.root_over(base, record.root_size, &arriving).await?;
        let bases = held.iter().map(|(base, _)| base.name()).collect();
        let record = Record { host: self.layout.host(), bases, rescue: None, ..record };
        let folder = self.settle(want.server, &arriving, &record)?;
        self.complete(want, &folder, record).await
    }

    /// Copies a guest's folder to where it is half made.
    async fn take(
        &self,
        want: &Definition,
        from: &Peer,
        without: &[&str],
    ) -> Result<(PathBuf, Record), Error> {
        let server = want.server;
        self.layout.is_ours(server)?;
        let arriving = self.layout.arriving(server);
        layout::remove_folder(&arriving)?;
        std::fs::create_dir_all(&arriving).map_err(|error| Error::file(&arriving, error))?;
        let there = format!("{}/", self.there().join(server.to_string()).display());
        let copy = copy(&self.config, from, &there).map_err(|why| wrong(server, from, why))?;
        copy.args(["--recursive", "--sparse", "--chmod=D755,F644"])
            .args(STAYS)
            .args(without)
            .arg("--")
            .args([remote(from, &there), format!("{}/", arriving.display())])
            .wait()
            .await
            .map_err(|error| wrong(server, from, error.to_string()))?;
        let record = layout::record_in(&arriving).ok_or_else(|| absent(server, from))?;
        if record.rebuilt != rebuilt(want) {
            return Err(wrong(server, from, "what is there is of another rebuild".to_owned()));
        }
        // The other host is not trusted with this one's files.
        for (name, rebased) in [
            (layout::ROOT, record.image.is_some()),
            (layout::EPHEMERAL, false),
            (layout::SWAP, false),
        ] {
            let path = arriving.join(name);
            if path.is_file() {
                let own = info::own(&path, rebased).await;
                own.map_err(|why| wrong(server, from, why))?;
            }
        }
        Ok((arriving, record))
    }

    /// The image that the disks are over. One that the image service no longer has is fetched from
    /// the host that the guest comes from.
    async fn base(
        &self,
        server: ServerId,
        image: ImageId,
        record: &Record,
        from: &Peer,
    ) -> Result<(Base, Held), Error> {
        let missing = match self.cache.base(image, None).await {
            Ok(base) => return Ok(base),
            Err(error @ Error::Image { .. }) => error,
            Err(error) => return Err(error),
        };
        let Some(name) = record.bases.first() else { return Err(missing) };
        tracing::info!(%image, host = %from.host, "{missing}; it is fetched from the other host");
        let there = self.there().join("_base").join(name).display().to_string();
        let copy = copy(&self.config, from, &there).map_err(|why| wrong(server, from, why))?;
        let copy = copy.args(["--sparse", "--chmod=F644", "--"]).arg(remote(from, &there));
        let fetched = self.cache.adopt(image, name, |to| async move { copy.arg(to).wait().await });
        fetched.await.map_err(|error| wrong(server, from, error.to_string()))
    }

    /// Puts a folder into its place that all has come into.
    fn settle(&self, server: ServerId, from: &Path, record: &Record) -> Result<PathBuf, Error> {
        layout::write_record(from, record)?;
        let folder = self.layout.folder(server);
        layout::remove_folder(&folder)?;
        let moved =
            std::fs::rename(from, &folder).and_then(|()| layout::sync_folder(self.layout.root()));
        moved.map_err(|error| Error::file(&folder, error))?;
        Ok(folder)
    }

    fn there(&self) -> &Path {
        self.config.remote_instances_path.as_deref().unwrap_or(self.layout.root())
    }
}

/// Which compression `rsync` takes, the first that both hosts have. Disks are mostly zeros, and `lz4`
/// makes next to nothing of them for less than it costs to send them; `zstd` takes nearly twice as
/// much of a processor, `zlib` six times. Asked for in this way, and not by an option, it is no
/// failure that a host is without.
const COMPRESSIONS: (&str, &str) = ("RSYNC_COMPRESS_LIST", "lz4 zstd zlibx zlib");

/// `rsync`, short of what to copy.
fn copy(config: &Config, from: &Peer, there: &str) -> Result<Run, String> {
    if !is_host(&from.address) {
        return Err(format!("{:?} is no address of a host", from.address));
    }
    if !there.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c)) {
        return Err(format!("{there:?} is no path that can be named to another host"));
    }
    let shell = config.remote_shell.join(" ");
    let copy = Run::new("rsync").args(["--quiet", "--compress", "--timeout=120", "-e", &shell]);
    Ok(copy.env(COMPRESSIONS).limit(config.copying))
}

fn is_host(address: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
    address.parse::<IpAddr>().is_ok()
        || (!address.is_empty() && !address.starts_with('-') && address.chars().all(plain))
}

/// A file of another host, as `rsync` names it.
fn remote(from: &Peer, path: &str) -> String {
    let address = &from.address;
    if address.contains(':') { format!("[{address}]:{path}") } else { format!("{address}:{path}") }
}

fn wrong(server: ServerId, from: &Peer, why: String) -> Error {
    Error::Peer { server, host: from.host.clone(), why }
}

fn absent(server: ServerId, from: &Peer) -> Error {
    wrong(server, from, "it has no whole disks of it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_or_a_name() {
        for good in ["10.0.0.1", "fd00::1", "host-1.example.org"] {
            assert!(is_host(good), "{good}");
        }
        for bad in ["", "-oProxyCommand=x", "a b", "a;b", "a:b", "root@a", "$(x)"] {
            assert!(!is_host(bad), "{bad}");
        }
        let peer = Peer { host: "b".into(), address: "fd00::1".into() };
        assert_eq!(remote(&peer, "/x/"), "[fd00::1]:/x/");
    }
}
