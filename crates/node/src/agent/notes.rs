//! What the agent must remember of each server besides its domain: the mediated devices and types of
//! virtual functions that it makes or has made for it, and whether the guest is still being built.
//!
//! A note is written before the first device is made and removed after the last one is gone, so no
//! crash can leave a device of ours that no note names. It is also how ours are told from others'.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kilonova_devices::Made;
use kilonova_hypervisor::{list_whole, write_atomically};
use kilonova_ids::ServerId;
use uuid::Uuid;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// The guest has not yet been as its document says; a failure undoes it.
    pub building: bool,
    /// What may have been made for it.
    pub made: Vec<Made>,
}

pub(super) struct Notes {
    folder: PathBuf,
    all: Mutex<HashMap<ServerId, Note>>,
}

impl Notes {
    pub(super) fn open(folder: PathBuf) -> io::Result<Self> {
        let mut all = HashMap::new();
        for path in list_whole(&folder)? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Ok(server) = name.parse() {
                all.insert(server, parse(&std::fs::read_to_string(&path)?));
            }
        }
        Ok(Self { folder, all: Mutex::new(all) })
    }

    pub(super) fn get(&self, server: ServerId) -> Option<Note> {
        self.all().get(&server).cloned()
    }

    pub(super) fn put(&self, server: ServerId, note: Note) -> io::Result<()> {
        let mut all = self.all();
        if all.get(&server) == Some(&note) {
            return Ok(());
        }
        write_atomically(&self.folder.join(server.to_string()), render(&note).as_bytes())?;
        all.insert(server, note);
        Ok(())
    }

    pub(super) fn remove(&self, server: ServerId) -> io::Result<()> {
        let mut all = self.all();
        if all.contains_key(&server) {
            match std::fs::remove_file(self.folder.join(server.to_string())) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            all.remove(&server);
        }
        Ok(())
    }

    pub(super) fn servers(&self) -> Vec<ServerId> {
        self.all().keys().copied().collect()
    }

    /// Uuids of all noted devices, with their servers.
    pub(super) fn mdevs(&self) -> HashMap<Uuid, ServerId> {
        let mut mdevs = HashMap::new();
        for (server, note) in self.all().iter() {
            for made in &note.made {
                if let Made::Mdev(mdev) = made {
                    mdevs.insert(mdev.uuid, *server);
                }
            }
        }
        mdevs
    }

    /// Whether the note of another server names the same thing of the kernel's.
    pub(super) fn names_elsewhere(&self, server: ServerId, made: &Made) -> bool {
        let named = |note: &Note| note.made.iter().any(|other| other.same_place(made));
        self.all().iter().any(|(other, note)| *other != server && named(note))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<ServerId, Note>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn render(note: &Note) -> String {
    let mut text = String::from(if note.building { "building\n" } else { "built\n" });
    for made in &note.made {
        text.push_str(&format!("{made}\n"));
    }
    text
}

fn parse(text: &str) -> Note {
    Note {
        building: text.starts_with("building"),
        made: text.lines().filter_map(|line| line.parse().ok()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use kilonova_devices::{Mdev, Vgpu};

    use super::*;

    #[test]
    fn notes_are_found_again_by_the_next_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let (kept, dropped) = (ServerId::new_v4(), ServerId::new_v4());
        let mdev = Mdev {
            uuid: Uuid::new_v4(),
            parent: "0000:84:00.0".into(),
            mdev_type: "nvidia-35".into(),
        };
        let vgpu = Vgpu { address: "0000:25:00.4".into(), vgpu_type: "nvidia-558".into() };
        let made = vec![Made::Mdev(mdev.clone()), Made::Vgpu(vgpu.clone())];
        let note = Note { building: true, made };
        let notes = Notes::open(folder.path().join("notes")).expect("opens");
        notes.put(kept, note.clone()).expect("written");
        notes.put(dropped, Note::default()).expect("written");
        notes.remove(dropped).expect("removed");
        notes.remove(dropped).expect("removed twice");
        let again = Notes::open(folder.path().join("notes")).expect("opens");
        assert_eq!(again.servers(), vec![kept]);
        assert_eq!(again.get(kept), Some(note));
        assert_eq!(again.mdevs().get(&mdev.uuid), Some(&kept));
        let retyped = Made::Vgpu(Vgpu { vgpu_type: "nvidia-557".into(), ..vgpu });
        assert!(again.names_elsewhere(dropped, &retyped));
        assert!(!again.names_elsewhere(kept, &retyped));
    }
}
