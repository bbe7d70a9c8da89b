//! The directory of a simulated host: `domains/<uuid>.xml`; `running/<uuid>` for each domain in
//! memory, which contains `paused` if its vCPUs are stopped; `saved/<uuid>` if its memory is on
//! disk; `left/<uuid>` if it was migrated out; `incoming/<uuid>` if it waits for a live migration;
//! `console/<uuid>.log` for its console.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use kilonova_ids::{HostName, ServerId};

use crate::{DomainState, list_whole, write_atomically};

pub(super) struct Files {
    folder: PathBuf,
    domains: PathBuf,
    running: PathBuf,
    saved: PathBuf,
    left: PathBuf,
    incoming: PathBuf,
    console: PathBuf,
}

const PAUSED: &[u8] = b"paused";
/// Size at which a console log is truncated.
const LOG: u64 = 256 * 1024;

impl Files {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            domains: folder.join("domains"),
            running: folder.join("running"),
            saved: folder.join("saved"),
            left: folder.join("left"),
            incoming: folder.join("incoming"),
            console: folder.join("console"),
            folder,
        }
    }

    /// The files of another host, next to this host's. `None` if the name is not a plain directory name.
    pub(super) fn beside(&self, host: &HostName) -> Option<Self> {
        let folder = self.folder.parent()?.join(host.as_str());
        (folder.file_name()?.to_str() == Some(host)).then(|| Self::new(folder))
    }

    /// The reason why guests do not release volumes, if any.
    pub(super) fn volume_held(&self) -> Option<String> {
        self.text("volume_held")
    }

    /// The reason why disks of volumes do not grow, if any.
    pub(super) fn volume_not_grown(&self) -> Option<String> {
        self.text("volume_not_grown")
    }

    /// The machine type that the host gives new guests, if its operator has chosen one.
    pub(super) fn machine_type(&self) -> Option<String> {
        self.text("machine_type")
    }

    fn text(&self, file: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.folder.join(file)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    pub(super) fn load(&self) -> io::Result<Vec<(ServerId, String)>> {
        let mut found = Vec::new();
        for path in list_whole(&self.domains)? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Some(server) = name.strip_suffix(".xml").and_then(|uuid| uuid.parse().ok()) {
                found.push((server, std::fs::read_to_string(&path)?));
            }
        }
        Ok(found)
    }

    pub(super) fn read(&self, server: ServerId) -> io::Result<String> {
        std::fs::read_to_string(self.domain(server))
    }

    pub(super) fn write(&self, server: ServerId, xml: &str) -> io::Result<()> {
        write_atomically(&self.domain(server), xml.as_bytes())
    }

    pub(super) fn remove(&self, server: ServerId) -> io::Result<()> {
        let name = server.to_string();
        ignore_missing(std::fs::remove_file(self.running.join(&name)))?;
        ignore_missing(std::fs::remove_file(self.saved.join(&name)))?;
        ignore_missing(std::fs::remove_file(self.left.join(&name)))?;
        ignore_missing(std::fs::remove_file(self.incoming.join(&name)))?;
        ignore_missing(std::fs::remove_file(self.log(server)))?;
        ignore_missing(std::fs::remove_file(self.domain(server)))
    }

    /// A domain's state when the last process ended. A domain that is both in memory and on disk
    /// was changing from one to the other; it counts as in memory.
    pub(super) fn state(&self, server: ServerId) -> io::Result<DomainState> {
        let name = server.to_string();
        if self.left.join(&name).exists() {
            ignore_missing(std::fs::remove_file(self.running.join(&name)))?;
            return Ok(DomainState::MigratedOut);
        }
        match std::fs::read(self.running.join(&name)) {
            Ok(mark) => {
                ignore_missing(std::fs::remove_file(self.saved.join(&name)))?;
                ignore_missing(std::fs::remove_file(self.incoming.join(&name)))?;
                Ok(if mark == PAUSED { DomainState::Paused } else { DomainState::Running })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let awaited = self.incoming.join(&name).exists();
                let saved = self.saved.join(name).exists();
                Ok(match (saved, awaited) {
                    (true, _) => DomainState::Saved,
                    (false, true) => DomainState::Incoming,
                    (false, false) => DomainState::Shutoff,
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the file of the new state first, so that a crash in between leaves a state that
    /// [`Self::state`] resolves.
    pub(super) fn set_state(
        &self,
        server: ServerId,
        was: DomainState,
        state: DomainState,
    ) -> io::Result<()> {
        let name = server.to_string();
        let (running, saved) = (self.running.join(&name), self.saved.join(&name));
        let (left, incoming) = (self.left.join(&name), self.incoming.join(&name));
        match state {
            DomainState::Running => mark(&running, b"")?,
            DomainState::Paused => mark(&running, PAUSED)?,
            DomainState::Saved => mark(&saved, b"")?,
            DomainState::MigratedOut => mark(&left, b"")?,
            DomainState::Incoming => mark(&incoming, b"")?,
            DomainState::Shutoff => {}
        }
        if !state.is_up() && was.is_up() {
            ignore_missing(std::fs::remove_file(&running))?;
        }
        if state != DomainState::Saved && was == DomainState::Saved {
            ignore_missing(std::fs::remove_file(&saved))?;
        }
        if state != DomainState::MigratedOut && was == DomainState::MigratedOut {
            ignore_missing(std::fs::remove_file(&left))?;
        }
        if state != DomainState::Incoming && was == DomainState::Incoming {
            ignore_missing(std::fs::remove_file(&incoming))?;
        }
        Ok(())
    }

    /// When the guest was started.
    pub(super) fn since(&self, server: ServerId) -> io::Result<SystemTime> {
        let mark = std::fs::metadata(self.running.join(server.to_string()))?;
        mark.created().or_else(|_| mark.modified())
    }

    /// Appends to the console log, which is truncated when it is too long.
    pub(super) fn append_console(&self, server: ServerId, text: &str) -> io::Result<()> {
        let path = self.log(server);
        let open = || {
            let long = std::fs::metadata(&path).is_ok_and(|found| found.len() > LOG);
            std::fs::File::options()
                .create(true)
                .append(!long)
                .write(true)
                .truncate(long)
                .open(&path)
        };
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(&self.console)?;
                open()
            }
            other => other,
        };
        file?.write_all(text.as_bytes())
    }

    pub(super) fn console_output(&self, server: ServerId) -> io::Result<String> {
        match std::fs::read(self.log(server)) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
        }
    }

    fn log(&self, server: ServerId) -> PathBuf {
        self.console.join(format!("{server}.log"))
    }

    fn domain(&self, server: ServerId) -> PathBuf {
        self.domains.join(format!("{server}.xml"))
    }
}

fn mark(path: &Path, content: &[u8]) -> io::Result<()> {
    match std::fs::write(path, content) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            std::fs::write(path, content)
        }
        other => other,
    }
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
