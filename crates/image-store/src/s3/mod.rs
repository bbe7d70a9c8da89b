//! Objects in a bucket of an S3-compatible object store.
//!
//! ```text
//!   small:  PUT
//!   large:  CreateMultipartUpload ─► UploadPart … ─► CompleteMultipartUpload
//! ```
//!
//! The key of an object is `<cloud>/<name>`, so clouds may share a bucket: a sweep lists the keys
//! of its own cloud only. A failed request is retried a few times within seconds. If the store does
//! not answer, a call ends after its time limit plus those seconds.

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
use http::Trust;
use upload::{PartSizes, S3Upload};

/// Maximum number of entries of one [`ImageStore::list`].
const PAGE: usize = 1000;
/// Minimum size of a part in S3's protocol.
pub const LEAST_PART: u64 = 5 << 20;

/// A secret text, which is never formatted.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
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
    /// The region. Most S3-compatible servers accept any.
    pub region: String,
    /// The bucket.
    pub bucket: String,
    /// True if the bucket is part of the host name, false if it is part of the path.
    pub virtual_hosted: bool,
    /// True if a missing bucket is created.
    pub create_bucket: bool,
    /// The id of the access key.
    pub access_key: String,
    /// The secret access key.
    pub secret_key: Secret,
    /// A PEM file with the authorities that verify the server's certificate; the system's authorities for
    /// `None`. An `http://` endpoint needs neither.
    pub cacert: Option<PathBuf>,
    /// Bytes per part. Later parts of large objects are larger.
    pub part_size: u64,
    /// Maximum wait for the head of an answer, and for the next bytes of its body.
    pub timeout: Duration,
}

/// A bucket; cheap to clone.
#[derive(Debug, Clone)]
pub struct S3 {
    store: Arc<AmazonS3>,
    bucket: Arc<Bucket>,
    cloud: Arc<str>,
    sizes: PartSizes,
    /// True if a missing bucket is created before its first use.
    create_bucket: Arc<AtomicBool>,
}

impl S3 {
    /// A bucket for the objects of a cloud, of at most `largest` bytes each. This sends no request.
    ///
    /// # Errors
    /// [`Error::Settings`], with a message for the operator.
    pub fn open(options: &S3Options, cloud: &str, largest: u64) -> Result<Self, Error> {
        let url = bucket_url(options)?;
        let trust = match &options.cacert {
            _ if !url.starts_with("https:") => Trust::NoAuthorities,
            Some(cacert) => Trust::File(cacert),
            None => Trust::System,
        };
        let client = http::client(trust, options.timeout)?;
        let sizes = PartSizes::new(options.part_size.max(LEAST_PART), largest)?;
        let builder = AmazonS3Builder::new()
            .with_http_connector(http::Connector(client.clone()))
            .with_endpoint(if options.virtual_hosted { &url } else { &options.endpoint })
            .with_virtual_hosted_style_request(options.virtual_hosted)
            .with_allow_http(true)
            // TLS protects the data; without TLS the signature covers it.
            .with_unsigned_payload(url.starts_with("https:"))
            // Not every server can delete several objects with one request.
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
            sizes,
            create_bucket: Arc::new(AtomicBool::new(options.create_bucket)),
        })
    }

    /// Checks access to the bucket with a request for an object of the cloud. Creates nothing.
    /// Returns false if the bucket does not exist yet, and its first use will create it.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Refused`].
    pub async fn check(&self) -> Result<bool, Error> {
        let prefix = Path::from(&*self.cloud);
        let found = self.store.list(Some(&prefix)).take(1).try_collect::<Vec<_>>().await;
        match found {
            Ok(_) => Ok(true),
            Err(error)
                if self.create_bucket.load(Ordering::Relaxed)
                    && chain(&error).contains(NO_BUCKET) =>
            {
                Ok(false)
            }
            Err(error) => Err(general("cannot list objects", error)),
        }
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
        let named = list.try_filter_map(|object| async move {
            let name = object.location.filename().and_then(ObjectName::parse);
            let age = age_of(object.last_modified.timestamp_millis());
            Ok(name.map(|name| Stored { name, unfinished: None, age }))
        });
        named.take(PAGE).try_collect().await.map_err(|e| general("S3: cannot list objects", e))
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

/// The error of a request for an object.
fn failure(error: object_store::Error, name: &ObjectName) -> Error {
    match error {
        object_store::Error::NotFound { .. } if !chain(&error).contains(NO_BUCKET) => {
            Error::Missing(format!("the bucket has no object {name}"))
        }
        other => general(&format!("S3: object {name}"), other),
    }
}

/// S3's error code for a bucket that does not exist.
const NO_BUCKET: &str = "NoSuchBucket";

/// The error codes of full servers: Ceph's, MinIO's, and the HTTP status.
const FULL: [&str; 3] = ["QuotaExceeded", "XMinioStorageFull", "507 Insufficient Storage"];

/// The error of any request.
fn general(what: &str, error: object_store::Error) -> Error {
    let text = chain(&error);
    let refused = matches!(
        error,
        object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. }
            | object_store::Error::NotFound { .. }
    );
    classified(what, refused, &text)
}

/// An error, with advice for the operator if its text identifies the cause.
fn classified(what: &str, refused: bool, text: &str) -> Error {
    let is_full = FULL.iter().any(|code| text.contains(code));
    let advice = if text.contains(NO_BUCKET) {
        "the bucket does not exist: create it, or set s3_store_create_bucket_on_put = true: "
    } else if text.contains("invalid peer certificate") {
        "the server's certificate is not accepted: check s3_store_host, and that s3_store_cacert \
         contains its authority: "
    } else if refused && !is_full {
        "the server refuses the request: check s3_store_access_key, its secret key, the region and the \
         permissions of the bucket: "
    } else {
        ""
    };
    let text = format!("{what}: {advice}{text}");
    match (is_full, refused) {
        (true, _) => Error::Full(text),
        (false, true) => Error::Refused(text),
        (false, false) => Error::Unavailable(text),
    }
}

/// True if the server refused a range because it starts at the object's end or after it.
fn is_after_end(error: &Error) -> bool {
    matches!(error, Error::Unavailable(text) if text.contains("416 Range Not Satisfiable"))
}

/// The texts of an error and its causes, each once.
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
    fn create<'a>(&'a self, name: &'a ObjectName) -> Answer<'a, Box<dyn Upload>> {
        Box::pin(async move {
            self.make_bucket().await?;
            Ok(Box::new(S3Upload::new(self.clone(), name.clone())) as Box<dyn Upload>)
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
            match self.get(name, range).await {
                // S3 has no empty range. Only this answer justifies a second request, because a
                // store that is down would cost the time limit twice.
                Err(error) if is_after_end(&error) => {
                    let size = self.size(name).await?.filter(|size| from >= *size).ok_or(error)?;
                    let bytes = exactly(Box::pin(futures_util::stream::empty()), 0);
                    Ok(Object { size, bytes })
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

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]
mod tests {
    use std::process::Command;

    use super::*;

    fn options(endpoint: &str) -> S3Options {
        S3Options {
            endpoint: endpoint.into(),
            region: "us-east-1".into(),
            bucket: "images".into(),
            virtual_hosted: false,
            create_bucket: false,
            access_key: "id".into(),
            secret_key: Secret::new("key".into()),
            cacert: None,
            part_size: LEAST_PART,
            timeout: Duration::from_secs(1),
        }
    }

    /// Set in the child process of this test, which finds no authorities of the system.
    const WITHOUT: &str = "KILONOVA_TEST_WITHOUT_AUTHORITIES";

    #[test]
    fn a_server_without_tls_needs_no_authorities_on_this_machine() {
        if std::env::var_os(WITHOUT).is_none() {
            let empty = tempfile::tempdir().unwrap();
            let name = "s3::tests::a_server_without_tls_needs_no_authorities_on_this_machine";
            let mut again = Command::new(std::env::current_exe().unwrap());
            again.args(["--exact", name, "--nocapture"]).env(WITHOUT, "1");
            again.env("SSL_CERT_FILE", "/dev/null").env("SSL_CERT_DIR", empty.path());
            let done = again.output().unwrap();
            let text = String::from_utf8_lossy(&done.stdout).into_owned();
            assert!(done.status.success() && text.contains("1 passed"), "{text}");
            return;
        }
        let refused = S3::open(&options("https://127.0.0.1:1"), "cloud", 1).unwrap_err();
        assert!(refused.to_string().contains("install ca-certificates"), "{refused}");
        S3::open(&options("http://127.0.0.1:1"), "cloud", 1).unwrap();
    }

    #[test]
    fn an_error_tells_the_operator_what_to_check() {
        for (refused, text, advice) in [
            (true, "404 Not Found: <Code>NoSuchBucket</Code>", "s3_store_create_bucket_on_put"),
            (true, "403 Forbidden: <Code>InvalidAccessKeyId</Code>", "s3_store_access_key"),
            (false, "invalid peer certificate: UnknownIssuer", "s3_store_cacert"),
        ] {
            let error = classified("S3", refused, text);
            assert_eq!(matches!(error, Error::Refused(_)), refused);
            let error = error.to_string();
            assert!(error.contains(advice) && error.ends_with(text), "{error}");
        }
        let full = classified("S3", true, "403 Forbidden: <Code>QuotaExceeded</Code>");
        assert!(matches!(&full, Error::Full(_)) && !full.to_string().contains("key"), "{full}");
    }
}
