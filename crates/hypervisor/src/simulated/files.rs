//! The folder of a simulated host's domains: `domains/<uuid>.xml`; `running/<uuid>` for each that is in
//! memory, which says `paused` if its processors are stopped; `saved/<uuid>` for each whose memory is
//! on disk; `left/<uuid>` for each that went to another host, `incoming/<uuid>` for each that is to
//! come from one; `console/<uuid>.log` for what each has said.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use kilonova_ids::ServerId;

use crate::{Life, list_whole, write_atomically};

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
/// Bytes of a console log that are kept.
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

    /// Those of another host, if the name is one of a folder.
    pub(super) fn beside(&self, host: &str) -> Option<Self> {
        let folder = self.folder.parent()?.join(host);
        (folder.file_name()?.to_str() == Some(host)).then(|| Self::new(folder))
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
        absent_is_fine(std::fs::remove_file(self.running.join(&name)))?;
        absent_is_fine(std::fs::remove_file(self.saved.join(&name)))?;
        absent_is_fine(std::fs::remove_file(self.left.join(&name)))?;
        absent_is_fine(std::fs::remove_file(self.incoming.join(&name)))?;
        absent_is_fine(std::fs::remove_file(self.log(server)))?;
        absent_is_fine(std::fs::remove_file(self.domain(server)))
    }

    /// What a domain was doing when the last process ended. One that is in memory and on disk was on
    /// its way from one to the other; it is in memory.
    pub(super) fn life(&self, server: ServerId) -> io::Result<Life> {
        let name = server.to_string();
        if self.left.join(&name).exists() {
            absent_is_fine(std::fs::remove_file(self.running.join(&name)))?;
            return Ok(Life::Left);
        }
        match std::fs::read(self.running.join(&name)) {
            Ok(mark) => {
                absent_is_fine(std::fs::remove_file(self.saved.join(&name)))?;
                absent_is_fine(std::fs::remove_file(self.incoming.join(&name)))?;
                Ok(if mark == PAUSED { Life::Paused } else { Life::Running })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let awaited = self.incoming.join(&name).exists();
                let saved = self.saved.join(name).exists();
                Ok(match (saved, awaited) {
                    (true, _) => Life::Saved,
                    (false, true) => Life::Incoming,
                    (false, false) => Life::Off,
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Where it is now comes first, so that a death between the two leaves it where [`Self::life`]
    /// finds it.
    pub(super) fn set_life(&self, server: ServerId, was: Life, life: Life) -> io::Result<()> {
        let name = server.to_string();
        let (running, saved) = (self.running.join(&name), self.saved.join(&name));
        let (left, incoming) = (self.left.join(&name), self.incoming.join(&name));
        match life {
            Life::Running => mark(&running, b"")?,
            Life::Paused => mark(&running, PAUSED)?,
            Life::Saved => mark(&saved, b"")?,
            Life::Left => mark(&left, b"")?,
            Life::Incoming => mark(&incoming, b"")?,
            Life::Off => {}
        }
        if !life.is_up() && was.is_up() {
            absent_is_fine(std::fs::remove_file(&running))?;
        }
        if life != Life::Saved && was == Life::Saved {
            absent_is_fine(std::fs::remove_file(&saved))?;
        }
        if life != Life::Left && was == Life::Left {
            absent_is_fine(std::fs::remove_file(&left))?;
        }
        if life != Life::Incoming && was == Life::Incoming {
            absent_is_fine(std::fs::remove_file(&incoming))?;
        }
        Ok(())
    }

    /// When it was put into memory.
    pub(super) fn since(&self, server: ServerId) -> io::Result<SystemTime> {
        let mark = std::fs::metadata(self.running.join(server.to_string()))?;
        mark.created().or_else(|_| mark.modified())
    }

    /// Adds to its console log, which begins anew when it is long.
    pub(super) fn say(&self, server: ServerId, text: &str) -> io::Result<()> {
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

    pub(super) fn said(&self, server: ServerId) -> io::Result<String> {
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

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
