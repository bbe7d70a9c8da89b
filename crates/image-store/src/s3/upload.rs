//! One upload into a bucket. At most one part is in flight while the next one is collected, so an upload
//! holds at most two parts in memory. [`PartSizes`] bounds a part.

use bytes::Bytes;
use object_store::multipart::{MultipartStore as _, PartId};
use object_store::{ObjectStoreExt as _, PutPayload};
use tokio::task::JoinHandle;

use super::{S3, failure};
use crate::{Answer, Error, ImageStore as _, ObjectName, Upload};

/// Maximum number of parts of an object in S3's protocol.
const MOST_PARTS: u64 = 10_000;
/// The size of parts doubles after this many parts.
const DOUBLED_AFTER: u64 = 250;
/// Maximum size of a part in S3's protocol.
const GREATEST_PART: u64 = 5 << 30;
/// Number of parts of the final size that hold the largest object. The other 2000 parts leave room
/// for the smaller sizes before it.
const GREATEST_PARTS: u64 = 8000;

/// The sizes of an object's parts. They grow with the received bytes, never with the size that a
/// client announces, because an announcement costs the client nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartSizes {
    first: u64,
    greatest: u64,
}

impl PartSizes {
    /// The sizes for objects of at most `largest` bytes, from a first size of `first` bytes.
    pub(super) fn new(first: u64, largest: u64) -> Result<Self, Error> {
        let greatest = first.max(largest.div_ceil(GREATEST_PARTS)).min(GREATEST_PART);
        let sizes = Self { first, greatest };
        let room = sizes.room();
        if room < largest {
            return Err(Error::Settings(format!(
                "image_size_cap allows images of {largest} bytes, and an object has at most {room}: reduce \
                 image_size_cap, or increase s3_store_large_object_chunk_size"
            )));
        }
        Ok(sizes)
    }

    /// The size of a part by its number, from 0.
    fn of(self, number: u64) -> u64 {
        let doublings = u32::try_from(number / DOUBLED_AFTER).unwrap_or(u32::MAX);
        let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
        self.first.saturating_mul(factor).min(self.greatest)
    }

    /// The bytes of all parts that an object may have.
    fn room(self) -> u64 {
        (0..MOST_PARTS).fold(0, |sum: u64, number| sum.saturating_add(self.of(number)))
    }
}

pub(super) struct S3Upload {
    s3: S3,
    name: ObjectName,
    collected: Vec<Bytes>,
    /// Bytes of `collected`.
    size: u64,
    /// Bytes of the object so far.
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
    pub(super) fn new(s3: S3, name: ObjectName) -> Self {
        Self {
            s3,
            name,
            collected: Vec::new(),
            size: 0,
            written: 0,
            id: None,
            parts: Vec::new(),
            in_flight: None,
            state: State::Writing,
        }
    }

    /// The size of the part being collected. `parts` does not include the one in flight.
    fn wanted(&self) -> u64 {
        let sent = self.parts.len() + usize::from(self.in_flight.is_some());
        self.s3.sizes.of(sent as u64)
    }

    /// Waits for the part in flight.
    async fn settle(&mut self) -> Result<(), Error> {
        if let Some(task) = self.in_flight.take() {
            let sent = task.await.map_err(|e| Error::Io(std::io::Error::other(e)))?;
            self.parts.push(sent?);
        }
        Ok(())
    }

    fn payload(&mut self) -> PutPayload {
        self.size = 0;
        std::mem::take(&mut self.collected).into_iter().collect()
    }

    /// Sends the collected bytes as a part.
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
        // If the answer to a successful request is lost, the server no longer knows the upload when
        // the request is retried. The object is then complete.
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
            self.collected.push(bytes);
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
                // A part that arrives after the abort would stay in the bucket.
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const TIB: u64 = 1 << 40;

    #[test]
    fn parts_grow_with_the_bytes_that_were_received() {
        let sizes = PartSizes::new(10 * MIB, TIB).unwrap();
        assert_eq!(
            [0, 249, 250, 749, 750].map(|number| sizes.of(number) / MIB),
            [10, 10, 20, 40, 80]
        );
        // At most 131.1 MiB.
        assert_eq!((sizes.of(1000), sizes.of(9999)), (TIB / 8000 + 1, TIB / 8000 + 1));
        let small = PartSizes::new(10 * MIB, 1000 * MIB).unwrap();
        assert_eq!(small.of(9999), 10 * MIB);
    }

    #[test]
    fn the_parts_hold_the_largest_object() {
        for first in [5, 10, 64, 1024] {
            for largest in [0, 1, 50 << 30, 100 << 30, TIB, 5 * TIB, 10 * TIB] {
                assert!(PartSizes::new(first * MIB, largest).unwrap().room() >= largest);
            }
        }
        let error = PartSizes::new(5 * MIB, 1 << 50).unwrap_err().to_string();
        assert!(error.contains("s3_store_large_object_chunk_size"), "{error}");
        let greatest = PartSizes::new(1024 * MIB, 45 * TIB).unwrap().of(9999);
        assert_eq!(greatest, GREATEST_PART);
    }
}
