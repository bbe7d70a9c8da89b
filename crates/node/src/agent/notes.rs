//! The agent's notes on each server: the mediated devices, VF types and GPU instances that the
//! agent creates or has created for it, whether the guest is still being built, and the result of
//! the last completed document.
//!
//! A note is written before the first device is created and removed after the last one is gone, so
//! a crash never leaves a device of ours without a note. Notes also distinguish our devices from
//! those of others.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kilonova_devices::KernelObject;
use kilonova_hypervisor::{list_whole, write_exchanging};
use kilonova_ids::ServerId;
use kilonova_node_api::Power;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// The guest has not yet reached its desired state; a failure rolls it back.
    pub building: bool,
    /// Devices that may have been created for the guest.
    pub made: Vec<KernelObject>,
    /// The result of the last completed document.
    pub last: Option<Last>,
}

/// The result of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Last {
    /// The document's generation.
    pub generation: i64,
    pub end: End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The guest reached its desired state. The agent does not revert the guest's own later
    /// changes.
    Reached(Power),
    /// A one-shot verb failed and is not repeated.
    Failed { step: String, message: String },
}

/// The file to which the next note is written.
const SPARE: &str = "spare.new";

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
        // The file is written under the lock and read only at the agent's start.
        let (file, spare) = (self.folder.join(server.to_string()), self.folder.join(SPARE));
        write_exchanging(&file, &spare, render(&note).as_bytes())?;
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

    /// The guests that reached their desired state, each with the document's generation and the
    /// desired power state.
    pub(super) fn settled(&self) -> Vec<(ServerId, i64, Power)> {
        let as_said = |(server, note): (&ServerId, &Note)| match &note.last {
            Some(Last { generation, end: End::Reached(power) }) => {
                Some((*server, *generation, *power))
            }
            _ => None,
        };
        self.all().iter().filter_map(as_said).collect()
    }

    /// The noted objects of all servers except `strays`. If the notes of a stray and of another
    /// server name the same object, it belongs to the other server.
    pub(super) fn made(&self, strays: &HashSet<ServerId>) -> HashSet<KernelObject> {
        let all = self.all();
        let ours = all.iter().filter(|(server, _)| !strays.contains(server));
        ours.flat_map(|(_, note)| note.made.iter().cloned()).collect()
    }

    /// True if the note of another server names the same kernel object.
    pub(super) fn names_elsewhere(&self, server: ServerId, made: &KernelObject) -> bool {
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
        Some(Last { generation, end: End::Reached(power) }) => {
            text.push_str(&format!("as {generation} {}\n", power_name(*power)));
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

fn power_name(power: Power) -> &'static str {
    WORDS.iter().find(|(one, _)| *one == power).map_or("on", |(_, power_name)| power_name)
}

fn last(line: &str) -> Option<Last> {
    let mut fields = line.splitn(4, ' ');
    let (kind, generation) = (fields.next()?, fields.next()?.parse().ok()?);
    let third = fields.next()?;
    let end = match kind {
        "as" => End::Reached(WORDS.iter().find(|(_, power_name)| *power_name == third)?.0),
        "failed" => End::Failed {
            step: third.to_owned(),
            message: fields.next().unwrap_or_default().to_owned(),
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
    use kilonova_node_api::{GpuInstance, MigPlacement};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn notes_survive_a_restart() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let (kept, dropped) = (ServerId::new_v4(), ServerId::new_v4());
        let mdev = Mdev {
            uuid: Uuid::new_v4(),
            parent: "0000:84:00.0".into(),
            mdev_type: "nvidia-35".into(),
        };
        let vgpu = Vgpu { address: "0000:25:00.4".into(), vgpu_type: "nvidia-558".into() };
        let made = vec![KernelObject::Mdev(mdev.clone()), KernelObject::Vgpu(vgpu.clone())];
        let end = End::Failed { step: "reboot".into(), message: "no answer\nat all".into() };
        let note = Note { building: true, made, last: Some(Last { generation: 7, end }) };
        let notes = Notes::open(folder.path().join("notes")).expect("the notes are readable");
        notes.put(kept, note.clone()).expect("the file is written");
        notes.put(dropped, Note::default()).expect("the file is written");
        notes.remove(dropped).expect("the file is removed");
        notes.remove(dropped).expect("removing it twice succeeds");
        let again = Notes::open(folder.path().join("notes")).expect("the notes are readable");
        assert_eq!(again.servers(), vec![kept]);
        let end = End::Failed { step: "reboot".into(), message: "no answer at all".into() };
        assert_eq!(again.get(kept), Some(Note { last: Some(Last { generation: 7, end }), ..note }));
        assert!(again.made(&HashSet::new()).contains(&KernelObject::Mdev(mdev)));
        let retyped = KernelObject::Vgpu(Vgpu { vgpu_type: "nvidia-557".into(), ..vgpu });
        assert!(again.names_elsewhere(dropped, &retyped));
        assert!(!again.names_elsewhere(kept, &retyped));
    }

    /// Another guest may get an instance of a different profile at the same start. Its note must
    /// not prevent the removal of the old instance.
    #[test]
    fn a_gpu_instance_of_another_profile_is_another_object() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let instance = |profile: &str, size| {
            let place = MigPlacement { start: 0, size };
            let (card, profile) = ("0000:41:00.0".into(), profile.into());
            KernelObject::Instance(GpuInstance { card, profile, place })
        };
        let (old, new) = (instance("3g.20gb", 4), instance("1g.5gb", 1));
        let (gone, next) = (ServerId::new_v4(), ServerId::new_v4());
        let notes = Notes::open(folder.path().to_owned()).expect("the notes are readable");
        let note = |made| Note { building: true, made: vec![made], last: None };
        notes.put(gone, note(old.clone())).expect("the file is written");
        notes.put(next, note(new.clone())).expect("the file is written");
        assert!(!notes.names_elsewhere(gone, &old), "the old instance may be removed");
        assert!(notes.names_elsewhere(gone, &new), "the next guest has the new instance");
    }

    /// The notes of a deleted guest and of its successor may both name a function, until the
    /// removal of the deleted guest has ended.
    #[test]
    fn an_object_of_a_stray_and_of_another_guest_is_the_others() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let notes = Notes::open(folder.path().to_owned()).expect("the notes are readable");
        let vgpu = |address: &str| {
            KernelObject::Vgpu(Vgpu { address: address.into(), vgpu_type: "nvidia-478".into() })
        };
        let (shared, own) = (vgpu("0000:41:00.4"), vgpu("0000:41:00.5"));
        let note = |made: &[&KernelObject]| Note {
            made: made.iter().map(|one| (*one).clone()).collect(),
            ..Note::default()
        };
        // With several strays, the order of the map cannot make the test pass by chance.
        let strays: HashSet<ServerId> = (0..8).map(|_| ServerId::new_v4()).collect();
        for stray in &strays {
            notes.put(*stray, note(&[&shared, &own])).expect("the file is written");
        }
        notes.put(ServerId::new_v4(), note(&[&shared])).expect("the file is written");
        assert_eq!(notes.made(&strays), HashSet::from([shared]));
    }

    #[test]
    fn results_of_documents_survive_a_restart() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let server = ServerId::new_v4();
        let notes = Notes::open(folder.path().to_owned()).expect("the notes are readable");
        notes.put(server, Note { building: true, ..Note::default() }).expect("the file is written");
        assert_eq!(notes.settled(), []);
        for (power, _) in WORDS {
            let last = Some(Last { generation: 8, end: End::Reached(power) });
            notes.put(server, Note { last, ..Note::default() }).expect("the file is written");
            let again = Notes::open(folder.path().to_owned()).expect("the notes are readable");
            assert_eq!(again.settled(), [(server, 8, power)]);
        }
    }
}
