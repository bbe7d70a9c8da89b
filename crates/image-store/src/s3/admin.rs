//! Requests that object_store lacks: creating a bucket, and listing unfinished uploads.

use http::{Method, Request, StatusCode};
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{HttpClient, HttpRequestBody};

use super::{S3Options, age_of};
use crate::{Error, ObjectName, Stored};

/// Maximum number of pages of unfinished uploads of one list. The next sweep finds the rest.
const PAGES: usize = 20;

pub(super) struct Bucket {
    client: HttpClient,
    url: String,
    region: String,
    credential: AwsCredential,
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bucket({})", self.url)
    }
}

impl Bucket {
    pub(super) fn new(client: HttpClient, options: &S3Options, url: String) -> Self {
        let credential = AwsCredential {
            key_id: options.access_key.clone(),
            secret_key: options.secret_key.0.clone(),
            token: None,
        };
        Self { client, url, region: options.region.clone(), credential }
    }

    /// Creates the bucket if it does not exist.
    pub(super) async fn create(&self) -> Result<(), Error> {
        let body = match self.region.as_str() {
            "" | "us-east-1" => String::new(),
            region => format!(
                "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
                 <LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>"
            ),
        };
        let (status, text) = self.send(Method::PUT, "", body).await?;
        match status {
            // It exists.
            StatusCode::CONFLICT => Ok(()),
            status if status.is_success() => Ok(()),
            status => Err(refused("S3: cannot create the bucket", status, &text)),
        }
    }

    /// The unfinished uploads of a cloud.
    pub(super) async fn unfinished(&self, cloud: &str) -> Result<Vec<Stored>, Error> {
        let mut found = Vec::new();
        let mut marker = String::new();
        for _ in 0..PAGES {
            let query = format!("?uploads=&prefix={cloud}%2F{marker}");
            let (status, text) = self.send(Method::GET, &query, String::new()).await?;
            if !status.is_success() {
                return Err(refused("S3: cannot list unfinished uploads", status, &text));
            }
            match page(&text, cloud, &mut found)? {
                Some(next) => marker = next,
                None => break,
            }
        }
        Ok(found)
    }

    async fn send(
        &self,
        method: Method,
        query: &str,
        body: String,
    ) -> Result<(StatusCode, String), Error> {
        let unavailable =
            |e: &dyn std::error::Error| super::classified("S3", false, &super::chain(e));
        let request = Request::builder().method(method).uri(format!("{}{query}", self.url));
        let mut request = request
            .body(HttpRequestBody::from(body))
            .map_err(|e| Error::Settings(format!("{} is not a URL: {e}", self.url)))?;
        AwsAuthorizer::new(&self.credential, "s3", &self.region)
            .try_authorize(&mut request, None)
            .map_err(|e| unavailable(&e))?;
        let answer = self.client.execute(request).await.map_err(|e| unavailable(&e))?;
        let (parts, body) = answer.into_parts();
        let bytes = body.bytes().await.map_err(|e| unavailable(&e))?;
        Ok((parts.status, String::from_utf8_lossy(&bytes).into_owned()))
    }
}

fn refused(what: &str, status: StatusCode, text: &str) -> Error {
    let text: String = text.chars().take(500).collect();
    super::classified(what, !status.is_server_error(), &format!("{status} {text}"))
}

/// Adds the uploads of a page; returns the query of the next one.
fn page(text: &str, cloud: &str, found: &mut Vec<Stored>) -> Result<Option<String>, Error> {
    let document = roxmltree::Document::parse(text)
        .map_err(|e| Error::Unavailable(format!("the list of unfinished uploads: {e}")))?;
    let child = |node: roxmltree::Node<'_, '_>, name: &str| {
        let child = node.children().find(|child| child.tag_name().name() == name)?;
        Some(child.text().unwrap_or_default().to_owned())
    };
    let root = document.root_element();
    for upload in root.children().filter(|node| node.tag_name().name() == "Upload") {
        let (Some(key), Some(id)) = (child(upload, "Key"), child(upload, "UploadId")) else {
            continue;
        };
        let own = key.strip_prefix(cloud).and_then(|rest| rest.strip_prefix('/'));
        let Some(name) = own.and_then(ObjectName::parse) else { continue };
        // Without a time its age is zero, so that a sweep keeps it.
        let begun = child(upload, "Initiated").and_then(|at| at.parse::<jiff::Timestamp>().ok());
        let age = begun.map(|at| age_of(at.as_millisecond())).unwrap_or_default();
        found.push(Stored { name, unfinished: Some(id), age });
    }
    if child(root, "IsTruncated").as_deref() != Some("true") {
        return Ok(None);
    }
    let (key, id) = (child(root, "NextKeyMarker"), child(root, "NextUploadIdMarker"));
    let mut query = String::new();
    for (name, value) in [("key-marker", key), ("upload-id-marker", id)] {
        if let Some(value) = value {
            query = format!("{query}&{name}={}", encoded(&value));
        }
    }
    Ok((!query.is_empty()).then_some(query))
}

/// A value in a query.
fn encoded(value: &str) -> String {
    value.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
        text
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_uploads_of_one_cloud() {
        let name = ObjectName::new(uuid::Uuid::new_v4());
        let text = format!(
            "<?xml version=\"1.0\"?><ListMultipartUploadsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
             <IsTruncated>true</IsTruncated><NextKeyMarker>a/b</NextKeyMarker>\
             <NextUploadIdMarker>x+y</NextUploadIdMarker>\
             <Upload><Key>own/{name}</Key><UploadId>u&amp;1</UploadId><Initiated>2020-01-01T00:00:00.000Z\
             </Initiated></Upload>\
             <Upload><Key>other/{name}</Key><UploadId>2</UploadId></Upload>\
             <Upload><Key>own/notes</Key><UploadId>3</UploadId></Upload></ListMultipartUploadsResult>"
        );
        let mut found = Vec::new();
        let next = page(&text, "own", &mut found).unwrap();
        assert_eq!(next.as_deref(), Some("&key-marker=a%2Fb&upload-id-marker=x%2By"));
        assert_eq!(found.len(), 1);
        assert_eq!((&found[0].name, found[0].unfinished.as_deref()), (&name, Some("u&1")));
        assert!(found[0].age.as_secs() > 3600);
        assert!(page("no XML", "own", &mut found).is_err());
    }
}
