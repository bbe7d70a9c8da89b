//! An object store that refuses: a wrong key, no bucket, a certificate that is not accepted, an object
//! that is gone. The user gets a 503 that reveals nothing about the store; the operator's text names what to check.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use kilonova_ids::ImageId;
use kilonova_image::{ImageOptions, Images, S3Options, StoreOptions};
use kilonova_image_store::{ImageStore as _, S3};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, crypto};
use tower::ServiceExt as _;

use crate::controllers::{file_of, is_clean};
use crate::proxy::{HANGS, Proxy, USUAL, behind_proxies};
use crate::shelf::{self, ANNA, Shelf, bucket, bytes, shelves_with};

const MIB: usize = 1 << 20;

/// Asserts that uploads and reads get 503, that the image stays queued, and that the operator's text
/// has the advice.
async fn refuses(shelf: &Shelf, kept: &str, advice: &str) {
    let id = shelf.make(ANNA, json!({})).await;
    for reply in [
        shelf.put(ANNA, &id, "data").await,
        shelf.put(ANNA, &id, bytes(6 * MIB)).await,
        shelf.get(ANNA, &file_of(kept)).await,
    ] {
        assert_eq!(reply.status, 503, "{}", reply.body);
        assert_eq!(reply.headers["retry-after"], "10");
        assert_eq!(reply.body["message"], "The image store is unavailable. Try again later.");
    }
    assert_eq!(shelf.status(&id).await, "queued");
    let image: ImageId = kept.parse().unwrap();
    let error = shelf.images.read(image, 0, 10).await.unwrap_err().to_string();
    assert!(error.starts_with("S3: ") && error.contains(advice), "{error}");
    let error = shelf.images.sweep().await.unwrap_err().to_string();
    assert!(error.contains(advice), "{error}");
}

/// An active image, and the same controller with another bucket.
async fn with_other(shelf: Shelf, change: impl FnOnce(&mut S3Options)) -> (Shelf, String) {
    let kept = shelf.make(ANNA, json!({})).await;
    assert_eq!(shelf.put(ANNA, &kept, "kept").await.status, 204);
    let mut stores = shelf.options.stores.clone();
    change(stores.s3.as_mut().unwrap());
    (shelf.with_stores(stores).await, kept)
}

/// A server that refuses every request as Amazon does if the key's id is unknown.
async fn refusing_keys() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let body = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>InvalidAccessKeyId</Code><Message>The AWS Access \
                Key Id you provided does not exist in our records.</Message></Error>";
    let answer = format!(
        "HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut buffer = vec![0; 64 * 1024];
                // Answers immediately, then reads the body of the request to its end.
                if matches!(client.read(&mut buffer).await, Ok(1..)) {
                    let _ = client.write_all(answer.as_bytes()).await;
                    while matches!(client.read(&mut buffer).await, Ok(1..)) {}
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn a_wrong_key_is_a_503_and_the_operator_learns_the_option() {
    for (shelf, _) in behind_proxies(USUAL).await {
        let url = refusing_keys().await;
        let (shelf, kept) = with_other(shelf, |s3| s3.endpoint = url).await;
        refuses(&shelf, &kept, "s3_store_access_key").await;
    }
}

#[tokio::test]
async fn a_missing_bucket_is_a_503_and_the_operator_learns_the_option() {
    for (shelf, _) in behind_proxies(USUAL).await {
        let (shelf, kept) = with_other(shelf, |s3| {
            s3.bucket = format!("missing-{}", uuid::Uuid::new_v4());
            s3.create_bucket = false;
        })
        .await;
        refuses(&shelf, &kept, "s3_store_create_bucket_on_put").await;
    }
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// TLS of a server at 127.0.0.1.
    fn server(&self) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config =
            ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certificate.der().clone()], key)
                .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

#[tokio::test]
async fn a_server_whose_certificate_has_another_authority_is_not_used() {
    if bucket(None).is_none() {
        return;
    }
    for shelf in shelves_with(ImageOptions::default()).await {
        let (own, other) = (Authority::new(), Authority::new());
        let proxy = Proxy::start(Some(own.server())).await.unwrap();
        let mut stores = bucket(Some(proxy.url.clone())).unwrap();
        let (right, wrong) = (shelf.directory.join("right.pem"), shelf.directory.join("wrong.pem"));
        std::fs::write(&right, &own.pem).unwrap();
        std::fs::write(&wrong, &other.pem).unwrap();
        stores.s3.as_mut().unwrap().cacert = Some(right);
        let shelf = shelf.with_stores(stores).await;
        let id = shelf.make(ANNA, json!({})).await;
        let data = bytes(6 * MIB);
        assert_eq!(shelf.put(ANNA, &id, data.clone()).await.status, 204);
        assert!(shelf.receive(ANNA, &file_of(&id)).await.unwrap() == data);
        assert!(!proxy.methods().is_empty(), "the requests went through TLS");

        let (shelf, kept) = with_other(shelf, |s3| s3.cacert = Some(wrong)).await;
        refuses(&shelf, &kept, "s3_store_cacert").await;
        assert_eq!(proxy.methods(), ["PUT"], "the wrong authority lets no request through");

        // Without any authority a controller does not start: every transfer would fail.
        let mut stores: StoreOptions = shelf.options.stores.clone();
        stores.s3.as_mut().unwrap().cacert = Some(shelf.directory.join("missing.pem"));
        let options = ImageOptions { stores, ..shelf.options.clone() };
        let opened = Images::open_with(shelf.store.clone(), &shelf.directory, options).await;
        let Err(error) = opened else { panic!("a missing file was accepted") };
        assert!(error.to_string().contains("missing.pem"), "{error}");
    }
}

/// Deletes every object of the cloud, bypassing the controller.
async fn empty_bucket(shelf: &Shelf) {
    let mut options = shelf.options.stores.s3.clone().unwrap();
    options.endpoint = shelf::server().unwrap();
    let sql = "SELECT cloud FROM image_clouds";
    let cloud: Result<String, kilonova_store::Error> = shelf
        .store
        .read(move |tx| tx.row(sql, kilonova_store::params![])?.unwrap().string("cloud"))
        .await;
    let s3 = S3::open(&options, &cloud.unwrap(), 1 << 40).unwrap();
    let all = s3.list(None).await.unwrap();
    assert!(!all.is_empty());
    for stored in all {
        s3.delete(&stored.name).await.unwrap();
    }
}

#[tokio::test]
async fn an_object_that_disappears_breaks_the_download() {
    for (shelf, proxy) in behind_proxies(USUAL).await {
        let id = shelf.make(ANNA, json!({})).await;
        assert_eq!(shelf.put(ANNA, &id, bytes(12 * MIB)).await.status, 204);
        let image: ImageId = id.parse().unwrap();
        assert_eq!(shelf.images.read(image, 0, 4 * MIB).await.unwrap().bytes.len(), 4 * MIB);
        // The connection breaks after two thirds. The object is gone when the rest is requested, because at
        // most a few chunks are read ahead of the client.
        proxy.set(8 * MIB as u64);
        let request = Request::get(format!("/image{}", file_of(&id))).header("x-auth-token", ANNA);
        let request = request.body(Body::empty()).unwrap();
        let mut body = shelf.router.clone().oneshot(request).await.unwrap().into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        empty_bucket(&shelf).await;
        let (mut received, mut broken) = (first.len(), false);
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => received += frame.into_data().unwrap().len(),
                Err(_) => broken = true,
            }
        }
        assert!(broken && received <= 8 * MIB, "{received} bytes");
        // A new transfer fails, and so does the next read by a host in the middle of the image.
        assert_eq!(shelf.get(ANNA, &file_of(&id)).await.status, 503);
        let error = shelf.images.read(image, 4 * MIB as u64, 4 * MIB).await.unwrap_err();
        assert!(error.to_string().contains("the bucket has no object"), "{error}");
        assert_eq!(shelf.status(&id).await, "active");
        assert_eq!(shelf.delete(ANNA, &id).await.status, 204);
        assert!(is_clean(&shelf).await);
    }
}

#[tokio::test]
async fn a_ranged_read_of_a_store_that_does_not_answer_costs_one_time_limit() {
    for (shelf, proxy) in behind_proxies(Duration::from_secs(1)).await {
        let id = shelf.make(ANNA, json!({})).await;
        assert_eq!(shelf.put(ANNA, &id, bytes(1000)).await.status, 204);
        let image: ImageId = id.parse().unwrap();
        for (state, what) in [(HANGS, "hangs"), (0, "refuses")] {
            proxy.set(state);
            proxy.methods();
            let begun = Instant::now();
            shelf.images.read(image, 10, 10).await.unwrap_err();
            assert!(begun.elapsed() < Duration::from_secs(25), "{what}: {:?}", begun.elapsed());
            let methods = proxy.methods();
            assert!(methods.iter().all(|method| method == "GET"), "{what}: {methods:?}");
        }
        proxy.set(crate::proxy::PASSES);
        assert_eq!(shelf.images.read(image, 990, 20).await.unwrap().bytes, bytes(1000)[990..]);
        assert_eq!(shelf.images.read(image, 1000, 20).await.unwrap().bytes, b"");
    }
}
