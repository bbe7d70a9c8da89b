//! The functions of the bitstreams in the cards of a simulated host, stored in one file per card so
//! that they survive a restart of the agent.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use kilonova_hypervisor::{list_whole, write_atomically};

use crate::topology::Tree;

/// The sysfs file that shows the function.
const SHOWN_IN: &str = "afu_id";

pub(super) struct Loaded {
    /// `None` to store nothing.
    folder: Option<PathBuf>,
    functions: BTreeMap<usize, String>,
}

impl Loaded {
    pub(super) fn empty() -> Self {
        Self { folder: None, functions: BTreeMap::new() }
    }

    pub(super) fn open(folder: PathBuf, tree: &Tree) -> io::Result<Self> {
        let mut functions = BTreeMap::new();
        for path in list_whole(&folder)? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Some(slot) = tree.by_address(name) {
                functions.insert(slot, std::fs::read_to_string(&path)?.trim_end().to_owned());
            }
        }
        Ok(Self { folder: Some(folder), functions })
    }

    /// The content of a slot's file, if a bitstream changed it.
    pub(super) fn shown(&self, tree: &Tree, slot: usize, file: &str) -> Option<&String> {
        if file.rsplit('/').next() != Some(SHOWN_IN) {
            return None;
        }
        self.functions.get(&tree.slots[slot].physical.unwrap_or(slot))
    }

    pub(super) fn load(&mut self, tree: &Tree, slot: usize, function: &str) -> io::Result<()> {
        if let Some(folder) = &self.folder {
            let file = folder.join(&tree.slots[slot].address);
            write_atomically(&file, format!("{function}\n").as_bytes())?;
        }
        self.functions.insert(slot, function.to_owned());
        Ok(())
    }
}
