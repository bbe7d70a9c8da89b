//! Fetches a guest's files from another host: all files of a guest that is stopped there, or the
//! files that a live migration does not transfer.
//!
//! Like upstream, it uses `rsync` over `ssh`, which verifies and keeps files sparse, and needs only
//! a key with read access on the other host. Nothing is used before everything has arrived; files
//! of the guest that were on this host before are older and are replaced.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use kilonova_hypervisor::Definition;
use kilonova_ids::{ImageId, ServerId};
use kilonova_node_api::Peer;

use crate::cache::{Base, CacheGuard};
use crate::layout::{self, Record};
use crate::make::rebuilt;
use crate::run::Run;
use crate::{Disks, DisksConfig, Error, info};

/// Files that stay on their host.
const HOST_LOCAL: [&str; 4] =
    ["--exclude=.new-*", "--exclude=*.rescue", "--exclude=*.snapshot", "--exclude=console.log"];
/// Files that a live migration transfers.
const TRANSFERRED: [&str; 3] = ["--exclude=/disk", "--exclude=/disk.eph0", "--exclude=/disk.swap"];

impl Disks {
    /// Fetches the disks of a stopped guest from their host, and grows those that are too small.
    ///
    /// # Errors
    /// All of [`Error`]; earlier files of the guest on this host may be gone.
    pub async fn fetch(&self, definition: &Definition, from: &Peer) -> Result<(), Error> {
        let (incoming_folder, record) = self.fetch_files(definition, from, &[]).await?;
        let disk = incoming_folder.join(layout::ROOT);
        if !disk.is_file() && !definition.config.is_volume_backed() {
            return Err(absent(definition.server, from));
        }
        let guard = match record.image {
            Some(image) => {
                let (base, guard) = self.base(definition.server, image, &record, from).await?;
                let rebase = Run::new("qemu-img").args(["rebase", "-q", "-u", "-f", "qcow2"]);
                let rebase = rebase.arg("-F").arg(base.format.as_str()).arg("-b").arg(&base.path);
                rebase.arg("--").arg(&disk).wait().await?;
                Some((base.name(), guard))
            }
            None => None,
        };
        let bases = guard.iter().map(|(name, _)| name.clone()).collect();
        let record = Record { machine: self.layout.machine(), bases, rescue: None, ..record };
        let folder = self.install(definition.server, &incoming_folder, &record)?;
        self.complete(definition, &folder, record).await
    }

    /// Creates the empty target disks of an incoming live migration, and fetches what the migration
    /// stream does not carry (e.g. the config drive). If the source cannot be read, the config
    /// drive is created from the definition, and the disks get the flavor's sizes.
    ///
    /// # Errors
    /// All of [`Error`]; earlier files of the guest on this host may be gone.
    pub async fn prepare_incoming(
        &self,
        definition: &Definition,
        from: &Peer,
    ) -> Result<(), Error> {
        let (incoming_folder, record) = match self.fetch_files(definition, from, &TRANSFERRED).await
        {
            Ok(taken) => taken,
            Err(error @ Error::Peer { .. }) => {
                tracing::warn!(server = %definition.server, %error, "could not fetch the config drive; creating a new one");
                layout::remove_folder(&self.layout.incoming_folder(definition.server))?;
                layout::remove_folder(&self.layout.folder(definition.server))?;
                return self.prepare(definition).await;
            }
            Err(error) => return Err(error),
        };
        let guard = match record.image {
            Some(image) => Some(self.base(definition.server, image, &record, from).await?),
            None => None,
        };
        let base = guard.as_ref().map(|(base, _)| base);
        if !definition.config.is_volume_backed() {
            self.root_over(base, record.root_size, &incoming_folder).await?;
        }
        let bases = guard.iter().map(|(base, _)| base.name()).collect();
        let record = Record { machine: self.layout.machine(), bases, rescue: None, ..record };
        let folder = self.install(definition.server, &incoming_folder, &record)?;
        self.complete(definition, &folder, record).await
    }

    /// Copies a guest's directory to its temporary place.
    async fn fetch_files(
        &self,
        definition: &Definition,
        from: &Peer,
        without: &[&str],
    ) -> Result<(PathBuf, Record), Error> {
        let server = definition.server;
        self.layout.is_ours(server)?;
        let incoming_folder = self.layout.incoming_folder(server);
        layout::remove_folder(&incoming_folder)?;
        std::fs::create_dir_all(&incoming_folder)
            .map_err(|error| Error::file(&incoming_folder, error))?;
        let remote_root = format!("{}/", self.remote_root().join(server.to_string()).display());
        let rsync =
            rsync(&self.config, from, &remote_root).map_err(|why| file_error(server, from, why))?;
        rsync
            .args(["--recursive", "--sparse", "--chmod=D755,F644"])
            .args(HOST_LOCAL)
            .args(without)
            .arg("--")
            .args([remote(from, &remote_root), format!("{}/", incoming_folder.display())])
            .wait()
            .await
            .map_err(|error| file_error(server, from, error.to_string()))?;
        let record = layout::record_in(&incoming_folder).ok_or_else(|| absent(server, from))?;
        if record.rebuilt != rebuilt(definition) {
            return Err(file_error(server, from, "its files belong to another rebuild".to_owned()));
        }
        // The other host must not gain access to this host's files.
        for (name, rebased) in [
            (layout::ROOT, record.image.is_some()),
            (layout::EPHEMERAL, false),
            (layout::SWAP, false),
        ] {
            let path = incoming_folder.join(name);
            if path.is_file() {
                let check_self_contained = info::check_self_contained(&path, rebased).await;
                check_self_contained.map_err(|why| file_error(server, from, why))?;
            }
        }
        Ok((incoming_folder, record))
    }

    /// Returns the base image of the disks. If the image service no longer has it, the other host's
    /// copy is fetched.
    async fn base(
        &self,
        server: ServerId,
        image: ImageId,
        record: &Record,
        from: &Peer,
    ) -> Result<(Base, CacheGuard), Error> {
        let missing = match self.cache.base(image, None).await {
            Ok(base) => return Ok(base),
            Err(error @ Error::Image { .. }) => error,
            Err(error) => return Err(error),
        };
        let Some(name) = record.bases.first() else { return Err(missing) };
        tracing::info!(%image, host = %from.host, "{missing}; fetching it from the other host");
        let remote_root = self.remote_root().join("_base").join(name).display().to_string();
        let rsync =
            rsync(&self.config, from, &remote_root).map_err(|why| file_error(server, from, why))?;
        let rsync = rsync.args(["--sparse", "--chmod=F644", "--"]).arg(remote(from, &remote_root));
        let fetched =
            self.cache.adopt_from_peer(image, name, |to| async move { rsync.arg(to).wait().await });
        fetched.await.map_err(|error| file_error(server, from, error.to_string()))
    }

    /// Moves a completely fetched directory into place.
    fn install(&self, server: ServerId, from: &Path, record: &Record) -> Result<PathBuf, Error> {
        layout::write_record(from, record)?;
        let folder = self.layout.folder(server);
        layout::remove_folder(&folder)?;
        let moved =
            std::fs::rename(from, &folder).and_then(|()| layout::sync_folder(self.layout.root()));
        moved.map_err(|error| Error::file(&folder, error))?;
        Ok(folder)
    }

    fn remote_root(&self) -> &Path {
        self.config.remote_instances_path.as_deref().unwrap_or(self.layout.root())
    }
}

/// Compression methods that `rsync` may negotiate with another host. Disks are mostly zeros, and compressing those with
/// `lz4` takes less CPU time than sending them; `zstd` takes nearly twice the CPU time, `zlib` six times. The
/// environment variable limits the negotiation; an option would fail on a host without the method. The order must be
/// that of `rsync` itself: the other side has its own list, and version 3.5 there takes its first common method, not
/// ours. `zstd` precedes `lz4` in that list, so it is not in ours.
const COMPRESSIONS: (&str, &str) = ("RSYNC_COMPRESS_LIST", "lz4 zlibx zlib");

/// `rsync` with its options, without the paths.
fn rsync(config: &DisksConfig, from: &Peer, remote_root: &str) -> Result<Run, String> {
    if !is_host(&from.address) {
        return Err(format!("{:?} is not a valid host address", from.address));
    }
    if !remote_root.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c)) {
        return Err(format!(
            "{remote_root:?} contains characters that are not allowed in a remote path"
        ));
    }
    let shell = config.remote_shell.join(" ");
    let rsync = Run::new("rsync").args(["--quiet", "--compress", "--timeout=120", "-e", &shell]);
    Ok(rsync.env(COMPRESSIONS).limit(config.copying))
}

fn is_host(address: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
    address.parse::<IpAddr>().is_ok()
        || (!address.is_empty() && !address.starts_with('-') && address.chars().all(plain))
}

/// A file on another host, in `rsync`'s syntax.
fn remote(from: &Peer, path: &str) -> String {
    let address = &from.address;
    if address.contains(':') { format!("[{address}]:{path}") } else { format!("{address}:{path}") }
}

fn file_error(server: ServerId, from: &Peer, why: String) -> Error {
    Error::Peer { server, host: from.host.clone(), why }
}

fn absent(server: ServerId, from: &Peer) -> Error {
    file_error(server, from, "it has no complete disks of the server".to_owned())
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
        let peer = Peer { host: kilonova_ids::HostName::verbatim("b"), address: "fd00::1".into() };
        assert_eq!(remote(&peer, "/x/"), "[fd00::1]:/x/");
    }
}
