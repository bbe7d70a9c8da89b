//! Objects in a bucket of an S3-compatible object store.
//!
//! ```text
//!   small:  PUT
//!   large:  CreateMultipartUpload ─► UploadPart … ─► CompleteMultipartUpload
//! ```
//!
//! The key of an object is `<cloud>/<name>`, so clouds may share a bucket: a sweep lists the keys of its
//! own cloud only. Requests are retried a few times within seconds; no call waits longer for a store
//! that does not answer.

mod admin;
mod http;
mod upload;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{
    BackoffConfig, GetOptions, GetRange, ObjectStore, ObjectStoreExt as _, RetryConfig,
};

use crate::data::exactly;
use crate::{Answer, Error, ImageStore, Object, ObjectName, Stored, Upload};
use admin::Bucket;
use upload::S3Upload;

/// The most entries of one [`ImageStore::list`].
const PAGE: usize = 1000;
/// The least size of a part in S3's protocol.
pub const LEAST_PART: u64 = 5 << 20;

/// A text that no message shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret.
    pub fn new(text: String) -> Self {
        Self(text)
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// The settings of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Options {
    /// The URL of the server, without the bucket.
    pub endpoint: String,
    /// The region; servers of one's own usually accept any.
    pub region: String,
    /// The bucket.
    pub bucket: String,
    /// True if the bucket is part of the host's name, not of the path.
    pub virtual_hosted: bool,
    /// True if a missing bucket is created.
    pub create_bucket: bool,
    /// The id of the key.
    pub access_key: String,
    /// The key.
    pub secret_key: Secret,
    /// The authorities that the server's certificate is verified with; the system's without it.
    pub cacert: Option<PathBuf>,
    /// Bytes per part; later parts of large images are larger.
    pub part_size: u64,
    /// The longest wait for an answer, and between two pieces of it.
    pub timeout: Duration,
}

/// A bucket; cheap to clone.
#[derive(Debug, Clone)]
pub struct S3 {
    store: Arc<AmazonS3>,
    bucket: Arc<Bucket>,
    cloud: Arc<str>,
    part_size: u64,
    /// True if a missing bucket is created before its first use.
    create_bucket: Arc<AtomicBool>,
}

impl S3 {
    /// A bucket for a cloud. The server is not asked for anything yet.
    ///
    /// # Errors
    /// [`Error::Settings`], with a message for the operator.
    pub fn open(options: &S3Options, cloud: &str) -> Result<Self, Error> {
        let client = http::client(options.cacert.as_deref(), options.timeout)?;
        let url = bucket_url(options)?;
        let builder = AmazonS3Builder::new()
            .with_http_connector(http::Connector(client.clone()))
            .with_endpoint(if options.virtual_hosted { &url } else { &options.endpoint })
            .with_virtual_hosted_style_request(options.virtual_hosted)
            .with_allow_http(true)
            // TLS protects what it carries; without it the signature does.
            .with_unsigned_payload(url.starts_with("https:"))
            // Deletion of one object is known to every server, of many at once it is not.
            .with_disable_bulk_delete(true)
            .with_region(&options.region)
            .with_bucket_name(&options.bucket)
            .with_access_key_id(&options.access_key)
            .with_secret_access_key(&options.secret_key.0)
            .with_retry(RetryConfig {
                backoff: BackoffConfig {
                    init_backoff: Duration::from_millis(100),
                    max_backoff: Duration::from_secs(2),
                    base: 2.,
                },
                max_retries: 4,
                retry_timeout: Duration::from_secs(15),
            });
        let store = builder.build().map_err(|e| Error::Settings(format!("S3: {e}")))?;
        Ok(Self {
            store: Arc::new(store),
            bucket: Arc::new(Bucket::new(client, options, url)),
            cloud: cloud.into(),
            part_size: options.part_size.max(LEAST_PART),
            create_bucket: Arc::new(AtomicBool::new(options.create_bucket)),
        })
    }

    fn key(&self, name: &ObjectName) -> Path {
        Path::from(format!("{}/{name}", self.cloud))
    }

    async fn make_bucket(&self) -> Result<(), Error> {
        if self.create_bucket.load(Ordering::Relaxed) {
            self.bucket.create().await?;
            self.create_bucket.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn get(&self, name: &ObjectName, range: Option<GetRange>) -> Result<Object, Error> {
        let options = GetOptions { range, ..GetOptions::default() };
        let found = self.store.get_opts(&self.key(name), options).await;
        let found = found.map_err(|error| failure(error, name))?;
        let (size, expected) = (found.meta.size, found.range.end - found.range.start);
        let own = name.clone();
        let bytes = found.into_stream().map(move |chunk| chunk.map_err(|e| failure(e, &own)));
        Ok(Object { size, bytes: exactly(Box::pin(bytes), expected) })
    }

    async fn objects(&self, after: Option<&ObjectName>) -> Result<Vec<Stored>, Error> {
        let prefix = Path::from(&*self.cloud);
        let list = match after {
            None => self.store.list(Some(&prefix)),
            Some(after) => self.store.list_with_offset(Some(&prefix), &self.key(after)),
        };
        let found: Vec<_> =
            list.take(PAGE).try_collect().await.map_err(|e| general("cannot list objects", e))?;
        let named = found.into_iter().filter_map(|object| {
            let name = ObjectName::parse(object.location.filename()?)?;
            let age = age_of(object.last_modified.timestamp_millis());
            Some(Stored { name, unfinished: None, age })
        });
        Ok(named.collect())
    }
}

/// The URL of the bucket.
fn bucket_url(options: &S3Options) -> Result<String, Error> {
    let endpoint = options.endpoint.trim_end_matches('/');
    let Some((scheme, host)) = endpoint.split_once("://") else {
        return Err(Error::Settings(format!("{endpoint} is not a URL")));
    };
    Ok(if options.virtual_hosted {
        format!("{scheme}://{}.{host}", options.bucket)
    } else {
        format!("{endpoint}/{}", options.bucket)
    })
}

/// The time since a time in milliseconds since 1970.
fn age_of(milliseconds: i64) -> Duration {
    let at = Duration::from_millis(u64::try_from(milliseconds).unwrap_or_default());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(at)
}

/// The failure of a request for an object.
fn failure(error: object_store::Error, name: &ObjectName) -> Error {
    match error {
        object_store::Error::NotFound { .. } if !is_of_bucket(&error) => {
            Error::Missing(format!("the bucket has no object {name}"))
        }
        other => general("S3", other),
    }
}

fn is_of_bucket(error: &object_store::Error) -> bool {
    chain(error).contains("NoSuchBucket")
}

/// The failure of any request.
fn general(what: &str, error: object_store::Error) -> Error {
    let text = format!("{what}: {}", chain(&error));
    match error {
        object_store::Error::PermissionDenied { .. }
        | object_store::Error::Unauthenticated { .. }
        | object_store::Error::NotFound { .. } => Error::Refused(text),
        _ => Error::Unavailable(text),
    }
}

/// An error with its causes, each once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

impl ImageStore for S3 {
    fn create<'a>(
        &'a self,
        name: &'a ObjectName,
        announced: Option<u64>,
    ) -> Answer<'a, Box<dyn Upload>> {
        Box::pin(async move {
            self.make_bucket().await?;
            Ok(Box::new(S3Upload::new(self.clone(), name.clone(), announced)) as Box<dyn Upload>)
        })
    }

    fn read<'a>(
        &'a self,
        name: &'a ObjectName,
        from: u64,
        most: Option<u64>,
    ) -> Answer<'a, Object> {
        Box::pin(async move {
            let range = match (from, most) {
                (0, None) => None,
                (_, None) => Some(GetRange::Offset(from)),
                (_, Some(most)) => Some(GetRange::Bounded(from..from.saturating_add(most.max(1)))),
            };
            let ranged = range.is_some();
            match self.get(name, range).await {
                Err(Error::Unavailable(error)) if ranged => {
                    // The protocol has no empty range at the end of an object.
                    match self.size(name).await? {
                        Some(size) if from >= size => {
                            let bytes = exactly(Box::pin(futures_util::stream::empty()), 0);
                            Ok(Object { size, bytes })
                        }
                        _ => Err(Error::Unavailable(error)),
                    }
                }
                other => other,
            }
        })
    }

    fn size<'a>(&'a self, name: &'a ObjectName) -> Answer<'a, Option<u64>> {
        Box::pin(async move {
            match self.store.head(&self.key(name)).await {
                Ok(found) => Ok(Some(found.size)),
                Err(error) => match failure(error, name) {
                    Error::Missing(_) => Ok(None),
                    other => Err(other),
                },
            }
        })
    }

    fn delete<'a>(&'a self, name: &'a ObjectName) -> Answer<'a, ()> {
        Box::pin(async move {
            match self.store.delete(&self.key(name)).await.map_err(|e| failure(e, name)) {
                Ok(()) | Err(Error::Missing(_)) => Ok(()),
                Err(other) => Err(other),
            }
        })
    }

    fn list<'a>(&'a self, after: Option<&'a ObjectName>) -> Answer<'a, Vec<Stored>> {
        Box::pin(async move {
            self.make_bucket().await?;
            let mut page = Vec::new();
            if after.is_none() {
                page = self.bucket.unfinished(&self.cloud).await?;
            }
            page.extend(self.objects(after).await?);
            Ok(page)
        })
    }

    fn discard<'a>(&'a self, found: &'a Stored) -> Answer<'a, ()> {
        Box::pin(async move {
            match &found.unfinished {
                None => self.delete(&found.name).await,
                Some(id) => upload::abort(self, &found.name, id).await,
            }
        })
    }

    fn is_abandoned<'a>(&'a self, _name: &'a ObjectName) -> Answer<'a, bool> {
        Box::pin(async { Ok(false) })
    }
}
