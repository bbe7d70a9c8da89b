//! Objects as files of one directory.
//!
//! ```text
//!   <name>.new ─► lock ─► rename to <name> ─► write ─► fsync
//! ```
//!
//! The writer holds a lock on its file until its row is final, so that another process of this machine
//! can distinguish an upload in progress from a leftover. A directory may be shared with other machines,
//! where locks may not reach: [`ImageStore::is_abandoned`] is for names that this machine wrote.
//!
//! The file `.cloud` names the cloud whose images the directory holds. A sweep never deletes files in
//! the directory of another cloud.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use kilonova_threads::Pool;

use crate::data::exactly;
use crate::{Answer, Error, ImageStore, Object, ObjectName, Stored, Upload, file_bytes};

/// Maximum number of entries of one [`ImageStore::list`].
const PAGE: usize = 1000;
/// The file with the cloud's id.
const MARKER: &str = ".cloud";
/// The end of a file's name until it is locked.
const NEW: &str = "new";

/// A directory of image files; cheap to clone.
#[derive(Clone)]
pub struct Files {
    directory: Arc<Path>,
    pool: Pool,
    /// The cloud in the marker, if it is another one.
    foreign: Option<Arc<str>>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Files({})", self.directory.display())
    }
}

impl Files {
    /// Opens a directory for a cloud; creates it if necessary.
    ///
    /// # Errors
    /// [`Error::Settings`] if the directory is unusable.
    pub async fn open(directory: &Path, cloud: &str, pool: Pool) -> Result<Self, Error> {
        let (path, own) = (directory.to_owned(), cloud.to_owned());
        let threads = pool.clone();
        let opened = threads.run(move || {
            fs::DirBuilder::new().recursive(true).mode(0o750).create(&path)?;
            let path = path.canonicalize()?;
            let marked = mark(&path, &own)?;
            Ok::<_, io::Error>((path, (marked != own).then_some(marked)))
        });
        let (path, foreign) = opened.await?.map_err(|e| {
            Error::Settings(format!("cannot use the image directory {}: {e}", directory.display()))
        })?;
        if let Some(other) = &foreign {
            tracing::warn!(
                directory = %path.display(), cloud, other,
                "the image directory belongs to another cloud, so leftovers in it are kept; give \
                 this cloud its own directory, or delete the file .cloud if that cloud no longer \
                 exists"
            );
        }
        Ok(Self { directory: path.into(), pool, foreign: foreign.map(Into::into) })
    }

    fn path(&self, name: &ObjectName) -> PathBuf {
        self.directory.join(name.as_str())
    }

    fn path_of(&self, found: &Stored) -> PathBuf {
        match &found.unfinished {
            None => self.path(&found.name),
            Some(ending) => self.directory.join(format!("{}.{ending}", found.name)),
        }
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Answer<'_, T> {
        let files = self.clone();
        Box::pin(async move { self.pool.run(move || work(&files)).await? })
    }

    fn missing(&self, name: &ObjectName) -> Error {
        Error::Missing(format!(
            "there is no file {name} in {}; if another controller received this image, all controllers need one \
             shared directory ([glance_store] filesystem_store_datadir) or an object store (stores = s3)",
            self.directory.display()
        ))
    }

    fn open_file(&self, name: &ObjectName) -> Result<File, Error> {
        let path = self.path(name);
        File::open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => self.missing(name),
            _ => of("open", &path)(error).into(),
        })
    }

    /// Creates a file that is locked before another process can find it under its name.
    fn create_locked(&self, name: &ObjectName) -> Result<File, Error> {
        let new = self.directory.join(format!("{name}.{NEW}"));
        let file = File::options().read(true).write(true).create_new(true).open(&new);
        let file = file.map_err(of("create", &new))?;
        file.lock().map_err(of("lock", &new))?;
        fs::rename(&new, self.path(name)).map_err(of("rename", &new))?;
        Ok(file)
    }

    /// The next page of files. It reads the attributes of the files of this page only, because they are
    /// expensive on a network file system.
    fn entries(&self, after: Option<&ObjectName>) -> Result<Vec<Stored>, Error> {
        let mut page = BTreeSet::new();
        let directory = &*self.directory;
        for entry in fs::read_dir(directory).map_err(of("list", directory))? {
            let entry = entry.map_err(of("list", directory))?;
            let Ok(text) = entry.file_name().into_string() else { continue };
            let (base, unfinished) = match text.strip_suffix(&format!(".{NEW}")) {
                Some(base) => (base, Some(NEW.to_owned())),
                None => (text.as_str(), None),
            };
            let Some(name) = ObjectName::parse(base) else { continue };
            if after.is_some_and(|after| name <= *after) {
                continue;
            }
            page.insert((name, unfinished));
            if page.len() > PAGE {
                page.pop_last();
            }
        }
        let now = SystemTime::now();
        let stored = |(name, unfinished)| {
            let mut found = Stored { name, unfinished, age: Duration::ZERO };
            // It may have been deleted since.
            let facts = fs::metadata(self.path_of(&found)).ok()?;
            let age = facts.modified().ok().and_then(|at| now.duration_since(at).ok());
            found.age = age.unwrap_or(Duration::ZERO);
            Some(found)
        };
        Ok(page.into_iter().filter_map(stored).collect())
    }
}

/// Adds the file and the failed step to an error.
fn of(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let path = path.to_owned();
    move |error| io::Error::new(error.kind(), format!("cannot {step} {}: {error}", path.display()))
}

/// Writes the cloud's id into the marker if there is none; returns the id in it.
fn mark(directory: &Path, cloud: &str) -> io::Result<String> {
    let path = directory.join(MARKER);
    match File::options().write(true).create_new(true).open(&path) {
        Ok(mut file) => {
            file.write_all(cloud.as_bytes())?;
            file.sync_all()?;
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let text = fs::read_to_string(&path)?;
    // A crash between creation and write leaves an empty marker.
    if text.trim().is_empty() {
        fs::write(&path, cloud)?;
        return Ok(cloud.to_owned());
    }
    Ok(text.trim().to_owned())
}

/// Locks a file that no process writes; `None` if another process writes it. The file is opened for
/// writing, because NFS grants exclusive locks only to writable descriptors (`EBADF`, flock(2)).
fn seize(path: &Path) -> io::Result<Option<File>> {
    let file = File::options().read(true).write(true).open(path).map_err(of("open", path))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(of("lock", path)(error)),
    }
}

/// A result, with `absent` for a file that does not exist.
fn or_absent<T>(result: io::Result<T>, absent: T) -> Result<T, Error> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(absent),
        other => Ok(other?),
    }
}

impl ImageStore for Files {
    fn create<'a>(&'a self, name: &'a ObjectName) -> Answer<'a, Box<dyn Upload>> {
        let name = name.clone();
        self.run(move |files| {
            let file = files.create_locked(&name)?;
            let upload = FileUpload { files: files.clone(), name, file: Some(file) };
            Ok(Box::new(upload) as Box<dyn Upload>)
        })
    }

    fn read<'a>(
        &'a self,
        name: &'a ObjectName,
        from: u64,
        most: Option<u64>,
    ) -> Answer<'a, Object> {
        let name = name.clone();
        self.run(move |files| {
            let mut file = files.open_file(&name)?;
            let size = file.metadata()?.size();
            file.seek(SeekFrom::Start(from))?;
            let expected = size.saturating_sub(from).min(most.unwrap_or(u64::MAX));
            let bytes = file_bytes(files.pool.clone(), file, expected);
            Ok(Object { size, bytes: exactly(bytes, expected) })
        })
    }

    fn size<'a>(&'a self, name: &'a ObjectName) -> Answer<'a, Option<u64>> {
        let name = name.clone();
        self.run(move |files| {
            let path = files.path(&name);
            let facts = fs::metadata(&path).map_err(of("examine", &path));
            or_absent(facts.map(|facts| Some(facts.size())), None)
        })
    }

    fn delete<'a>(&'a self, name: &'a ObjectName) -> Answer<'a, ()> {
        let name = name.clone();
        self.run(move |files| {
            let path = files.path(&name);
            or_absent(fs::remove_file(&path).map_err(of("delete", &path)), ())
        })
    }

    fn list<'a>(&'a self, after: Option<&'a ObjectName>) -> Answer<'a, Vec<Stored>> {
        if let Some(other) = &self.foreign {
            let text = format!("{} belongs to cloud {other}", self.directory.display());
            return Box::pin(async move { Err(Error::Refused(text)) });
        }
        let after = after.cloned();
        self.run(move |files| files.entries(after.as_ref()))
    }

    fn discard<'a>(&'a self, found: &'a Stored) -> Answer<'a, ()> {
        let path = self.path_of(found);
        self.run(move |_| {
            let Some(_lock) = or_absent(seize(&path), None)? else { return Ok(()) };
            or_absent(fs::remove_file(&path).map_err(of("delete", &path)), ())
        })
    }

    fn is_abandoned<'a>(&'a self, name: &'a ObjectName) -> Answer<'a, bool> {
        let path = self.path(name);
        self.run(move |_| Ok(or_absent(seize(&path), None)?.is_some()))
    }
}

/// A file that is being written, locked.
struct FileUpload {
    files: Files,
    name: ObjectName,
    /// `None` while a thread uses it, and after a failure.
    file: Option<File>,
}

impl FileUpload {
    /// Runs work on the file on a pool thread.
    async fn run(
        &mut self,
        work: impl FnOnce(&Files, &File) -> io::Result<()> + Send + 'static,
    ) -> Result<(), Error> {
        let Some(file) = self.file.take() else {
            return Err(io::Error::other("an earlier write failed").into());
        };
        let files = self.files.clone();
        let (file, done) = self
            .files
            .pool
            .run(move || {
                let done = work(&files, &file);
                (file, done)
            })
            .await?;
        done.map_err(of("write", &self.files.path(&self.name)))?;
        self.file = Some(file);
        Ok(())
    }
}

impl Upload for FileUpload {
    fn write(&mut self, bytes: Bytes) -> Answer<'_, ()> {
        Box::pin(self.run(move |_, mut file| file.write_all(&bytes)))
    }

    fn finish(&mut self) -> Answer<'_, ()> {
        Box::pin(self.run(move |files, file| {
            file.sync_all()?;
            // Makes the name durable.
            File::open(&files.directory)?.sync_all()
        }))
    }

    fn abort(&mut self) -> Answer<'_, ()> {
        Box::pin(async move {
            let deleted = self.files.delete(&self.name).await;
            self.file = None;
            deleted
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    async fn files(directory: &Path) -> Files {
        let pool = Pool::with_waiting("image-files", 2, 100).unwrap();
        Files::open(directory, "cloud", pool).await.unwrap()
    }

    #[tokio::test]
    async fn a_lock_is_taken_on_a_file_that_is_open_for_writing() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(directory.path()).await;
        let name = ObjectName::new(uuid::Uuid::new_v4());
        let mut upload = files.create(&name).await.unwrap();
        upload.write(Bytes::from_static(b"data")).await.unwrap();
        assert!(seize(&files.path(&name)).unwrap().is_none(), "its writer has the lock");
        drop(upload);
        let file = seize(&files.path(&name)).unwrap().unwrap();
        // Only a descriptor for writing can set the length.
        file.set_len(4).unwrap();
        assert_eq!(fs::read(files.path(&name)).unwrap(), b"data");
    }

    #[tokio::test]
    async fn pages_have_every_file_once_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(directory.path()).await;
        let mut names = Vec::new();
        for _ in 0..2 * PAGE + 1 {
            let name = ObjectName::new(uuid::Uuid::new_v4());
            fs::write(files.path(&name), "").unwrap();
            names.push(name);
        }
        fs::write(directory.path().join("notes.txt"), "").unwrap();
        names.sort();
        let (mut found, mut pages) = (Vec::new(), Vec::new());
        loop {
            let page = files.list(found.last()).await.unwrap();
            pages.push(page.len());
            if page.is_empty() {
                break;
            }
            found.extend(page.into_iter().map(|stored| stored.name));
        }
        assert_eq!(pages, [PAGE, PAGE, 1, 0]);
        assert!(found == names);
    }

    #[tokio::test]
    async fn an_error_names_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(directory.path()).await;
        drop(directory);
        let name = ObjectName::new(uuid::Uuid::new_v4());
        let Err(error) = files.create(&name).await else { unreachable!("there is no directory") };
        let text = error.to_string();
        assert!(text.contains("cannot create /") && text.contains(name.as_str()), "{text}");
    }
}
