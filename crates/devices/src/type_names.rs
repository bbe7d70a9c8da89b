//! The names of the vGPU types of each card, as the driver showed them last.
//!
//! NVIDIA's VFIO driver shows a type only while it can be created. Traits that come from a type's name must not change
//! while guests exclude the type, so the names are kept in a file. It never decides which types a card has.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of cards in the file.
const MOST_CARDS: usize = 1024;

/// Names by card and type.
type Cards = BTreeMap<String, BTreeMap<String, String>>;

/// The known names. The default has no file.
#[derive(Debug, Default)]
pub struct TypeNames {
    file: Option<PathBuf>,
    known: Mutex<Cards>,
}

impl TypeNames {
    /// Loads the file. An unreadable file counts as empty: the names are learned again while the driver shows them.
    pub fn open(file: PathBuf) -> Self {
        let known = Mutex::new(read(&file));
        Self { file: Some(file), known }
    }

    /// The name of a card's type; empty if it was never seen.
    pub(crate) fn name(&self, card: &str, vgpu_type: &str) -> String {
        let names = self.known();
        let name = names.get(card).and_then(|types| types.get(vgpu_type));
        name.cloned().unwrap_or_default()
    }

    /// Records the names that a scan found, and forgets the cards that are not on the bus.
    pub(crate) fn learn<'a>(
        &self,
        seen: impl Iterator<Item = (String, &'a str, &'a str)>,
        is_there: impl Fn(&str) -> bool,
    ) {
        let mut known = self.known();
        let before = known.clone();
        known.retain(|card, _| is_there(card));
        for (card, vgpu_type, name) in seen {
            if known.len() < MOST_CARDS || known.contains_key(&card) {
                known.entry(card).or_default().insert(vgpu_type.to_owned(), name.to_owned());
            }
        }
        let Some(file) = self.file.as_deref().filter(|_| *known != before) else { return };
        if let Err(error) = write(file, &known) {
            tracing::warn!(file = %file.display(), %error, "could not keep the names of vGPU types");
        }
    }

    fn known(&self) -> MutexGuard<'_, Cards> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(file: &Path) -> Cards {
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Cards::new(),
        Err(error) => {
            tracing::warn!(file = %file.display(), %error, "could not read the names of vGPU types");
            return Cards::new();
        }
    };
    serde_json::from_slice(&bytes).unwrap_or_else(|error| {
        tracing::warn!(file = %file.display(), %error, "the names of vGPU types are unreadable; learning them again");
        Cards::new()
    })
}

fn write(file: &Path, known: &Cards) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let whole = file.with_extension("new");
    std::fs::write(&whole, serde_json::to_vec(known)?)?;
    std::fs::rename(&whole, file)
}
