//! One upload into a bucket. At most one part is on its way while the next one is collected.

use bytes::Bytes;
use object_store::multipart::{MultipartStore as _, PartId};
use object_store::{ObjectStoreExt as _, PutPayload};
use tokio::task::JoinHandle;

use super::{S3, failure};
use crate::{Answer, Error, ImageStore as _, ObjectName, Upload};

/// The protocol's most parts of an object.
const MOST_PARTS: u64 = 10_000;
/// Parts double in size after so many of them, so that an image of unknown size fits.
const DOUBLED_AFTER: usize = 1000;

pub(super) struct S3Upload {
    s3: S3,
    name: ObjectName,
    /// Bytes of the first parts.
    part_size: u64,
    gathered: Vec<Bytes>,
    size: u64,
    written: u64,
    /// The upload's id once it has parts.
    id: Option<String>,
    parts: Vec<PartId>,
    in_flight: Option<JoinHandle<Result<PartId, Error>>>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Writing,
    /// The object may exist.
    Finished,
}

impl S3Upload {
    pub(super) fn new(s3: S3, name: ObjectName, announced: Option<u64>) -> Self {
        let needed = announced.map_or(0, |bytes| bytes.div_ceil(MOST_PARTS));
        Self {
            part_size: s3.part_size.max(needed),
            s3,
            name,
            gathered: Vec::new(),
            size: 0,
            written: 0,
            id: None,
            parts: Vec::new(),
            in_flight: None,
            state: State::Writing,
        }
    }

    fn wanted(&self) -> u64 {
        let doublings = u32::try_from(self.parts.len() / DOUBLED_AFTER).unwrap_or(u32::MAX);
        self.part_size.saturating_mul(1_u64.checked_shl(doublings).unwrap_or(u64::MAX))
    }

    /// Waits for the part on its way.
    async fn settle(&mut self) -> Result<(), Error> {
        if let Some(task) = self.in_flight.take() {
            let sent = task.await.map_err(|e| Error::Io(std::io::Error::other(e)))?;
            self.parts.push(sent?);
        }
        Ok(())
    }

    fn payload(&mut self) -> PutPayload {
        self.size = 0;
        std::mem::take(&mut self.gathered).into_iter().collect()
    }

    /// Sends the gathered bytes as a part.
    async fn flush(&mut self) -> Result<(), Error> {
        self.settle().await?;
        let key = self.s3.key(&self.name);
        let id = match &self.id {
            Some(id) => id.clone(),
            None => {
                let made = self.s3.store.create_multipart(&key).await;
                let id = made.map_err(|e| failure(e, &self.name))?;
                self.id.insert(id).clone()
            }
        };
        let (store, name) = (self.s3.store.clone(), self.name.clone());
        let (number, payload) = (self.parts.len(), self.payload());
        self.in_flight = Some(tokio::spawn(async move {
            store.put_part(&key, &id, number, payload).await.map_err(|e| failure(e, &name))
        }));
        Ok(())
    }

    async fn complete(&mut self) -> Result<(), Error> {
        let key = self.s3.key(&self.name);
        let Some(id) = self.id.clone() else {
            let payload = self.payload();
            self.state = State::Finished;
            let put = self.s3.store.put(&key, payload).await;
            return put.map(|_| ()).map_err(|e| failure(e, &self.name));
        };
        if self.size > 0 {
            self.flush().await?;
        }
        self.settle().await?;
        self.state = State::Finished;
        let parts = std::mem::take(&mut self.parts);
        let Err(error) = self.s3.store.complete_multipart(&key, &id, parts).await else {
            return Ok(());
        };
        // The answer of a request that succeeded may be lost. The upload is unknown to a second one.
        if self.s3.size(&self.name).await.unwrap_or_default() == Some(self.written) {
            return Ok(());
        }
        Err(failure(error, &self.name))
    }
}

impl Upload for S3Upload {
    fn write(&mut self, bytes: Bytes) -> Answer<'_, ()> {
        Box::pin(async move {
            if bytes.is_empty() {
                return Ok(());
            }
            self.size += bytes.len() as u64;
            self.written += bytes.len() as u64;
            self.gathered.push(bytes);
            if self.size < self.wanted() {
                return Ok(());
            }
            self.flush().await
        })
    }

    fn finish(&mut self) -> Answer<'_, ()> {
        Box::pin(self.complete())
    }

    fn abort(&mut self) -> Answer<'_, ()> {
        Box::pin(async move {
            if let Some(task) = self.in_flight.take() {
                task.abort();
                // A part that is still being sent would outlive the upload that is aborted.
                let _ = task.await;
            }
            if self.state == State::Finished {
                self.s3.delete(&self.name).await?;
            }
            match &self.id {
                Some(id) => abort(&self.s3, &self.name, id).await,
                None => Ok(()),
            }
        })
    }
}

impl Drop for S3Upload {
    fn drop(&mut self) {
        if let Some(task) = &self.in_flight {
            task.abort();
        }
    }
}

/// Ends an unfinished upload; success if there is none.
pub(super) async fn abort(s3: &S3, name: &ObjectName, id: &str) -> Result<(), Error> {
    let aborted = s3.store.abort_multipart(&s3.key(name), &id.to_owned()).await;
    match aborted.map_err(|e| failure(e, name)) {
        Ok(()) | Err(Error::Missing(_)) => Ok(()),
        Err(other) => Err(other),
    }
}
