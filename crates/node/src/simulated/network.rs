//! The networks of a simulated host: a file records the desired state, and nothing else exists. The
//! file `network_fault` in the host's directory contains the reason why networks fail.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use kilonova_hypervisor::write_atomically;

use crate::network::{DesiredNetworks, Network, NetworkFailures, NetworkFuture};

/// Writes the desired state to the file `network`; removes the file if the state is empty.
pub(crate) struct RecordedNetwork {
    file: PathBuf,
    fault: PathBuf,
    last: Mutex<Option<String>>,
}

impl RecordedNetwork {
    pub fn new(folder: &Path) -> Self {
        let (file, fault) = (folder.join("network"), folder.join("network_fault"));
        Self { file, fault, last: Mutex::default() }
    }

    fn write(&self, wanted: &DesiredNetworks) -> std::io::Result<()> {
        let text = if wanted.is_empty() { String::new() } else { serde_json::to_string(wanted)? };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref() == Some(&text) {
            return Ok(());
        }
        if !text.is_empty() {
            write_atomically(&self.file, text.as_bytes())?;
        } else if let Err(error) = std::fs::remove_file(&self.file)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error);
        }
        *last = Some(text);
        Ok(())
    }
}

impl Network for RecordedNetwork {
    fn make<'a>(&'a self, wanted: &'a DesiredNetworks) -> NetworkFuture<'a> {
        Box::pin(async move {
            let written = self.write(wanted).err().map(|error| error.to_string());
            let fault = std::fs::read_to_string(&self.fault).ok().filter(|_| !wanted.is_empty());
            NetworkFailures {
                all: fault.map(|why| why.trim().to_owned()).or(written),
                ..NetworkFailures::default()
            }
        })
    }
}
