//! A download of an image's bytes from an offset on.

use bytes::Bytes;
use http::header;
use kilonova_ids::ImageId;
use kilonova_keystone::Streaming;

use crate::Error;
use crate::client::failed;

/// A download in progress.
pub struct Download {
    image: ImageId,
    host: String,
    answer: Streaming,
    /// Bytes that were received but not yet returned.
    held: Bytes,
    offset: u64,
    /// An error after received bytes; the next call returns it.
    failed: Option<Error>,
}

impl Download {
    /// The answer to a request for a range.
    pub(crate) fn part(
        image: ImageId,
        host: String,
        offset: u64,
        answer: Streaming,
    ) -> Result<Self, Error> {
        let range = answer.headers.get(header::CONTENT_RANGE).and_then(|value| value.to_str().ok());
        let begins = range
            .and_then(|range| range.strip_prefix("bytes ")?.split('-').next()?.parse::<u64>().ok());
        if begins.is_some_and(|begins| begins != offset) {
            let what = format!("a range that does not start at byte {offset}");
            return Err(Error::Unexpected { host, what });
        }
        Ok(Self { image, host, answer, held: Bytes::new(), offset, failed: None })
    }

    /// The answer with all bytes. Skips the bytes before the offset, because a store without random
    /// access does not support ranges.
    pub(crate) async fn whole(
        image: ImageId,
        host: String,
        offset: u64,
        answer: Streaming,
    ) -> Result<Self, Error> {
        let mut download =
            Self { image, host, answer, held: Bytes::new(), offset: 0, failed: None };
        while download.offset < offset {
            let most = usize::try_from(offset - download.offset).unwrap_or(usize::MAX);
            if download.next(most).await?.is_empty() {
                let why = format!("it ends before byte {offset}");
                return Err(Error::Damaged { image, why });
            }
        }
        Ok(download)
    }

    /// The offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The image.
    pub fn image(&self) -> ImageId {
        self.image
    }

    /// The next bytes, at most `most`; empty at the end.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if Glance stops sending.
    pub async fn next(&mut self, most: usize) -> Result<Bytes, Error> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        while self.held.is_empty() {
            match self.answer.next().await.map_err(|e| failed(&self.host, e))? {
                Some(bytes) => self.held = bytes,
                None => return Ok(Bytes::new()),
            }
        }
        let taken = self.held.split_to(most.min(self.held.len()));
        self.offset += taken.len() as u64;
        Ok(taken)
    }

    /// Up to `most` bytes: fewer only at the end, or before an error, which the next call returns.
    ///
    /// # Errors
    /// As [`Download::next`].
    pub async fn take(&mut self, most: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        while bytes.len() < most {
            match self.next(most - bytes.len()).await {
                Ok(next) if next.is_empty() => break,
                Ok(next) => bytes.extend_from_slice(&next),
                Err(error) if bytes.is_empty() => return Err(error),
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
        }
        Ok(bytes)
    }
}
