//! The attachments that may be connected on a host: one file for each, without secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kilonova_hypervisor::{list_whole, write_atomically};
use kilonova_ids::{AttachmentId, ServerId};
use kilonova_node_api::Volume;
use serde::{Deserialize, Serialize};

/// An attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// Its server.
    pub server: ServerId,
    /// The volume, without the secrets of its connection.
    pub volume: Volume,
}

/// The attachments that may be connected. A record is written before the first step of connecting
/// and removed after the last step of disconnecting.
#[derive(Debug)]
pub struct VolumeRecords {
    folder: PathBuf,
    all: Mutex<BTreeMap<AttachmentId, VolumeRecord>>,
}

impl VolumeRecords {
    /// Reads the records that earlier agents left in a directory. The directory is created with the first record.
    ///
    /// An empty record is left by a power loss between its creation and its write. It is removed, because the power
    /// loss also ended every connection of the host.
    ///
    /// # Errors
    /// If the directory or a record cannot be read. An agent that ignored a record would never
    /// disconnect its volume.
    pub fn open(folder: PathBuf) -> io::Result<Self> {
        let mut all = BTreeMap::new();
        for path in list_whole(&folder)? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Ok(attachment) = name.parse() else { continue };
            let text = std::fs::read(&path)?;
            if text.is_empty() {
                tracing::warn!(%attachment, path = %path.display(), "removing an empty record of a volume's attachment, which a power loss may leave");
                std::fs::remove_file(&path)?;
                continue;
            }
            let record = serde_json::from_slice(&text).map_err(|error| {
                let why = format!(
                    "{}: {error}: the record of a volume's attachment is damaged; disconnect that \
                     volume manually if this host still has it, then remove the file",
                    path.display()
                );
                io::Error::new(io::ErrorKind::InvalidData, why)
            })?;
            all.insert(attachment, record);
        }
        Ok(Self { folder, all: Mutex::new(all) })
    }

    /// Writes a record, unless it already exists.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn put(&self, server: ServerId, volume: &Volume) -> io::Result<()> {
        let record = VolumeRecord { server, volume: volume.without_secrets() };
        let attachment = volume.attachment_id;
        let mut all = self.all();
        if all.get(&attachment) == Some(&record) {
            return Ok(());
        }
        let text = serde_json::to_vec(&record)?;
        write_atomically(&self.folder.join(attachment.to_string()), &text)?;
        all.insert(attachment, record);
        Ok(())
    }

    /// Removes a record, if it exists.
    ///
    /// # Errors
    /// If the file cannot be removed.
    pub fn remove(&self, attachment: AttachmentId) -> io::Result<()> {
        let mut all = self.all();
        match std::fs::remove_file(self.folder.join(attachment.to_string())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        all.remove(&attachment);
        Ok(())
    }

    /// All records.
    pub fn list(&self) -> Vec<VolumeRecord> {
        self.all().values().cloned().collect()
    }

    /// The records of a server.
    pub fn of(&self, server: ServerId) -> Vec<VolumeRecord> {
        self.all().values().filter(|record| record.server == server).cloned().collect()
    }

    /// The servers with records.
    pub fn servers(&self) -> BTreeSet<ServerId> {
        self.all().values().map(|record| record.server).collect()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<AttachmentId, VolumeRecord>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> Volume {
        serde_json::from_value(serde_json::json!({
            "volume_id": uuid::Uuid::new_v4(), "attachment_id": uuid::Uuid::new_v4(),
            "device": "vdb", "bus": "virtio", "size_gb": 1,
            "connection": {
                "protocol": "iscsi",
                "paths": [{"portal": "192.0.2.9:3260", "iqn": "iqn.2010-10.org:v", "lun": 1}],
                "chap": {"user": "me", "password": "open sesame"},
            },
        }))
        .expect("the volume is readable")
    }

    #[test]
    fn records_survive_a_restart_and_contain_no_secret() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("volumes");
        let open = || VolumeRecords::open(path.clone()).expect("the directory is readable");
        let (server, kept, dropped) = (ServerId::new_v4(), volume(), volume());
        let records = open();
        assert!(!path.exists(), "a host without volumes has no directory");
        for volume in [&kept, &dropped, &kept] {
            records.put(server, volume).expect("the file is written");
        }
        for _ in 0..2 {
            records.remove(dropped.attachment_id).expect("the file is removed");
        }
        let again = open();
        let record = VolumeRecord { server, volume: kept.without_secrets() };
        assert_eq!((again.of(server), again.list().len()), (vec![record], 1));
        assert_eq!(again.of(ServerId::new_v4()), []);
        assert_eq!(again.servers().into_iter().collect::<Vec<_>>(), [server]);
        let file = path.join(kept.attachment_id.to_string());
        let text = std::fs::read_to_string(&file).expect("the file exists");
        assert!(!text.contains("sesame"), "{text}");
        std::fs::write(&file, "{").expect("the file is written");
        let error = VolumeRecords::open(path).expect_err("the record is unreadable");
        assert!(error.to_string().contains(&kept.attachment_id.to_string()), "{error}");
        assert!(error.to_string().contains("remove the file"), "{error}");
    }

    #[test]
    fn a_record_that_a_power_loss_emptied_is_removed() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().to_owned();
        let (server, kept) = (ServerId::new_v4(), volume());
        let records = VolumeRecords::open(path.clone()).expect("the directory is readable");
        records.put(server, &kept).expect("the file is written");
        let empty = path.join(AttachmentId::new_v4().to_string());
        std::fs::write(&empty, "").expect("the file is written");
        let again = VolumeRecords::open(path).expect("the agent starts");
        assert_eq!((again.list().len(), again.of(server).len()), (1, 1));
        assert!(!empty.exists());
    }
}
