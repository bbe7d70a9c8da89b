//! What the agent must remember of each server besides its domain: the mediated devices and types of
//! virtual functions that it makes or has made for it, whether the guest is still being built, and
//! how the last document ended that did.
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
use kilonova_node_api::Power;
use uuid::Uuid;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// The guest has not yet been as its document says; a failure undoes it.
    pub building: bool,
    /// What may have been made for it.
    pub made: Vec<Made>,
    /// The last document that came to an end.
    pub last: Option<Last>,
}

/// How a document ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Last {
    /// Its generation.
    pub generation: i64,
    pub end: End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The guest was as it says. What it does by itself from then on is not this node's to undo.
    As(Power),
    /// What it wanted done once failed, and is not tried again.
    Failed { step: String, message: String },
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

    /// Guests that were made as a document says: its generation, and what they are to do.
    pub(super) fn settled(&self) -> Vec<(ServerId, i64, Power)> {
        let as_said = |(server, note): (&ServerId, &Note)| match &note.last {
            Some(Last { generation, end: End::As(power) }) => Some((*server, *generation, *power)),
            _ => None,
        };
        self.all().iter().filter_map(as_said).collect()
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
    match &note.last {
        Some(Last { generation, end: End::As(power) }) => {
            text.push_str(&format!("as {generation} {}\n", word(*power)));
        }
        Some(Last { generation, end: End::Failed { step, message } }) => {
            let message = message.replace(char::is_control, " ");
            text.push_str(&format!("failed {generation} {step} {message}\n"));
        }
        None => {}
    }
    for made in &note.made {
        text.push_str(&format!("{made}\n"));
    }
    text
}

const WORDS: [(Power, &str); 5] = [
    (Power::On, "on"),
    (Power::Off, "off"),
    (Power::Paused, "paused"),
    (Power::Suspended, "suspended"),
    (Power::Incoming, "incoming"),
];

fn word(power: Power) -> &'static str {
    WORDS.iter().find(|(one, _)| *one == power).map_or("on", |(_, word)| word)
}

fn last(line: &str) -> Option<Last> {
    let mut words = line.splitn(4, ' ');
    let (kind, generation) = (words.next()?, words.next()?.parse().ok()?);
    let third = words.next()?;
    let end = match kind {
        "as" => End::As(WORDS.iter().find(|(_, word)| *word == third)?.0),
        "failed" => End::Failed {
            step: third.to_owned(),
            message: words.next().unwrap_or_default().to_owned(),
        },
        _ => return None,
    };
    Some(Last { generation, end })
}

fn parse(text: &str) -> Note {
    Note {
        building: text.starts_with("building"),
        made: text.lines().filter_map(|line| line.parse().ok()).collect(),
        last: text.lines().find_map(last),
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
        let end = End::Failed { step: "reboot".into(), message: "no answer\nat all".into() };
        let note = Note { building: true, made, last: Some(Last { generation: 7, end }) };
        let notes = Notes::open(folder.path().join("notes")).expect("opens");
        notes.put(kept, note.clone()).expect("written");
        notes.put(dropped, Note::default()).expect("written");
        notes.remove(dropped).expect("removed");
        notes.remove(dropped).expect("removed twice");
        let again = Notes::open(folder.path().join("notes")).expect("opens");
        assert_eq!(again.servers(), vec![kept]);
        let end = End::Failed { step: "reboot".into(), message: "no answer at all".into() };
        assert_eq!(again.get(kept), Some(Note { last: Some(Last { generation: 7, end }), ..note }));
        assert_eq!(again.mdevs().get(&mdev.uuid), Some(&kept));
        let retyped = Made::Vgpu(Vgpu { vgpu_type: "nvidia-557".into(), ..vgpu });
        assert!(again.names_elsewhere(dropped, &retyped));
        assert!(!again.names_elsewhere(kept, &retyped));
    }

    #[test]
    fn how_a_document_ended_is_known_to_the_next_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let server = ServerId::new_v4();
        let notes = Notes::open(folder.path().to_owned()).expect("opens");
        notes.put(server, Note { building: true, ..Note::default() }).expect("written");
        assert_eq!(notes.settled(), []);
        for (power, _) in WORDS {
            let last = Some(Last { generation: 8, end: End::As(power) });
            notes.put(server, Note { last, ..Note::default() }).expect("written");
            let again = Notes::open(folder.path().to_owned()).expect("opens");
            assert_eq!(again.settled(), [(server, 8, power)]);
        }
    }
}
