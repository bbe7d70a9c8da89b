//! The networks of a simulated host: a file says what should be, and nothing is. What lies in the
//! file `network_fault` of the host's folder is why no guest can be plugged in.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use kilonova_hypervisor::write_atomically;

use crate::network::{Lacking, Making, Network, Wanted};

/// What should be, as a file `network`; there is none where nothing should be.
pub(crate) struct Paper {
    file: PathBuf,
    fault: PathBuf,
    last: Mutex<Option<String>>,
}

impl Paper {
    pub fn new(folder: &Path) -> Self {
        let (file, fault) = (folder.join("network"), folder.join("network_fault"));
        Self { file, fault, last: Mutex::default() }
    }

    fn write(&self, wanted: &Wanted) -> std::io::Result<()> {
        let text =
            if wanted.guests.is_empty() { String::new() } else { serde_json::to_string(wanted)? };
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

impl Network for Paper {
    fn make<'a>(&'a self, wanted: &'a Wanted) -> Making<'a> {
        Box::pin(async move {
            let written = self.write(wanted).err().map(|error| error.to_string());
            let fault =
                std::fs::read_to_string(&self.fault).ok().filter(|_| !wanted.guests.is_empty());
            Lacking {
                all: fault.map(|why| why.trim().to_owned()).or(written),
                ..Lacking::default()
            }
        })
    }
}
