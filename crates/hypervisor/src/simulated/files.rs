//! The folder of a simulated host's domains: `domains/<uuid>.xml`, and an empty `running/<uuid>` for
//! each that runs.

use std::io;
use std::path::PathBuf;

use kilonova_ids::ServerId;

use crate::{list_whole, write_atomically};

pub(super) struct Files {
    domains: PathBuf,
    running: PathBuf,
}

impl Files {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { domains: folder.join("domains"), running: folder.join("running") }
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
        absent_is_fine(std::fs::remove_file(self.running.join(server.to_string())))?;
        absent_is_fine(std::fs::remove_file(self.domain(server)))
    }

    pub(super) fn is_running(&self, server: ServerId) -> bool {
        self.running.join(server.to_string()).exists()
    }

    pub(super) fn set_running(&self, server: ServerId, running: bool) -> io::Result<()> {
        let mark = self.running.join(server.to_string());
        if !running {
            return absent_is_fine(std::fs::remove_file(mark));
        }
        match std::fs::write(&mark, b"") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(&self.running)?;
                std::fs::write(&mark, b"")
            }
            other => other,
        }
    }

    fn domain(&self, server: ServerId) -> PathBuf {
        self.domains.join(format!("{server}.xml"))
    }
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
