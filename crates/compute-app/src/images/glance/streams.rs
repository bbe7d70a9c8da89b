//! Downloads of images by hosts: a host requests one chunk after the other, and all of them come
//! from one response of Glance. A request for another offset, or to another controller, starts a
//! new range request.
//!
//! A host verifies SHA-512 itself. Other hashes are verified here, before the last chunk is
//! returned.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kilonova_glance::{Digest, Download, Error as CallError, Expected, Image};
use kilonova_ids::{HostName, ImageId};
use kilonova_image::DataRange;

use super::CloudGlance;
use crate::images::Transfer;

/// Maximum number of downloads in progress; beyond it, the one that has been idle longest is
/// dropped.
const MOST: usize = 256;
/// A download that no host continues ends after this time.
const IDLE: Duration = Duration::from_secs(120);

/// The downloads in progress.
#[derive(Default)]
pub(super) struct Streams(Mutex<HashMap<(HostName, ImageId), Used>>);

/// A slot, and the time of its last use.
type Used = (Arc<Slot>, Instant);

type Slot = tokio::sync::Mutex<Option<Stream>>;

/// A host's download of an image.
struct Stream {
    size: u64,
    format: Option<String>,
    sha512: Option<String>,
    /// The hash that this controller verifies, and the number of bytes hashed so far.
    verified: Option<(Expected, Digest, u64)>,
    download: Option<Download>,
    /// Number of failures since bytes were last received.
    failures: u32,
}

impl Streams {
    fn slot(&self, host: &HostName, image: ImageId) -> Arc<Slot> {
        let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (host.clone(), image);
        if let Some((slot, used)) = streams.get_mut(&key) {
            *used = Instant::now();
            return Arc::clone(slot);
        }
        streams.retain(|_, (slot, used)| Arc::strong_count(slot) > 1 || used.elapsed() < IDLE);
        if streams.len() >= MOST {
            let idle = streams.iter().filter(|(_, (slot, _))| Arc::strong_count(slot) == 1);
            let oldest = idle.min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                streams.remove(&oldest);
            }
        }
        let slot = Arc::new(Slot::default());
        streams.insert(key, (Arc::clone(&slot), Instant::now()));
        slot
    }

    fn end(&self, host: &HostName, image: ImageId) {
        let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        streams.remove(&(host.clone(), image));
    }
}

impl CloudGlance {
    /// Reads up to `most` bytes of an image, starting at an offset, for a host.
    pub(in crate::images) async fn read(
        &self,
        host: &HostName,
        image: ImageId,
        offset: u64,
        most: usize,
    ) -> Result<DataRange, Transfer> {
        let slot = self.streams.slot(host, image);
        let mut held = slot.lock().await;
        let read = self.chunk(&mut held, image, offset, most).await;
        match read {
            Ok(range) => {
                if offset + range.bytes.len() as u64 >= range.size {
                    self.streams.end(host, image);
                }
                Ok(range)
            }
            Err(error) => {
                let failures = held.as_mut().map_or(0, |stream| {
                    stream.download = None;
                    stream.failures += 1;
                    stream.failures
                });
                let is_temporary = matches!(error, CallError::Unavailable { .. });
                // A failure to read the image's description is not counted: the client has already
                // retried.
                if is_temporary && failures > 0 && failures <= self.client.options().retries {
                    return Err(Transfer::Unavailable(error.to_string()));
                }
                self.streams.end(host, image);
                Err(Transfer::Refused(error.to_string()))
            }
        }
    }

    async fn chunk(
        &self,
        held: &mut Option<Stream>,
        image: ImageId,
        offset: u64,
        most: usize,
    ) -> Result<DataRange, CallError> {
        let token = self.tokens.of(image);
        let token = token.as_ref();
        if held.is_none() {
            let show = |caller| self.client.show((caller, None), image);
            *held = Some(Stream::of(&Self::for_user(token, show).await?)?);
        }
        let Some(stream) = held else {
            let why = "it has no description".into();
            return Err(CallError::Damaged { image, why });
        };
        let mut bytes = Vec::new();
        if offset < stream.size {
            if stream.download.as_ref().is_none_or(|download| download.offset() != offset) {
                stream.download = None;
                let open = |caller| self.client.download((caller, None), image, offset);
                stream.download = Some(Self::for_user(token, open).await?);
            }
            if let Some(download) = &mut stream.download {
                bytes = download.take(most).await?;
            }
            if bytes.is_empty() {
                let why = format!("it ends after {offset} of {} bytes", stream.size);
                return Err(CallError::Damaged { image, why });
            }
            stream.failures = 0;
        }
        stream.verify(image, offset, &bytes)?;
        Ok(DataRange {
            size: stream.size,
            format: stream.format.clone(),
            hash: stream.sha512.clone(),
            bytes,
        })
    }
}

impl Stream {
    fn of(image: &Image) -> Result<Self, CallError> {
        let damaged = |why: String| CallError::Damaged { image: image.id, why };
        if !image.is_active() && image.status != "deactivated" {
            return Err(damaged(format!("it is {}", image.status)));
        }
        let size = image.size.and_then(|size| u64::try_from(size).ok());
        let size = size.ok_or_else(|| damaged("it has no size".into()))?;
        let is_sha512 = |hash: &Expected| hash.algorithm.eq_ignore_ascii_case("sha512");
        let sha512 = image.hash.as_ref().filter(|hash| is_sha512(hash));
        let checksum = image.checksum.clone();
        let md5 = checksum.map(|value| Expected { algorithm: "md5".into(), value });
        let verified = match (&sha512, image.hash.clone()) {
            (Some(_), _) => None,
            (None, hash) => {
                let known = [hash.clone(), md5].into_iter().flatten();
                let first = known.into_iter().find_map(|one| Some((one.digest()?, one)));
                if let (None, Some(hash)) = (&first, &hash) {
                    let why = format!("its hash algorithm {} is not supported", hash.algorithm);
                    return Err(damaged(why));
                }
                first.map(|(digest, expected)| (expected, digest, 0))
            }
        };
        Ok(Self {
            size,
            format: image.disk_format.clone(),
            sha512: sha512.map(|hash| hash.value.clone()),
            verified,
            download: None,
            failures: 0,
        })
    }

    /// Adds the bytes to the hash; after the last byte, compares it with the expected hash.
    fn verify(&mut self, image: ImageId, offset: u64, bytes: &[u8]) -> Result<(), CallError> {
        let size = self.size;
        let Some((expected, digest, end)) = &mut self.verified else { return Ok(()) };
        if offset == 0 {
            let Some(new) = expected.digest() else { return Ok(()) };
            (*digest, *end) = (new, 0);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        if *end != offset {
            let why = format!(
                "its {} hash can be verified only from its first byte on; the download begins at {offset}",
                expected.algorithm
            );
            return Err(CallError::Damaged { image, why });
        }
        digest.update(bytes);
        *end += bytes.len() as u64;
        if *end >= size && !digest.clone().finish().eq_ignore_ascii_case(&expected.value) {
            return Err(CallError::Damaged {
                image,
                why: format!("the {} hash differs", expected.algorithm),
            });
        }
        Ok(())
    }
}
