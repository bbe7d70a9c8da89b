//! `/images`: lists the images that the project may use; creates, uploads and deletes the project's own.
//!
//! Data passes through to the image service as the browser sends it and is never in memory as a whole. An image whose
//! upload ends early has no data, and its page offers another upload. A browser that is still sending may miss the
//! answer, so its script first checks whether the service would accept the file.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use http::{StatusCode, header};
use kilonova_wire::query::{Query, escaped};
use multer::{Constraints, Field, Multipart, SizeLimit};
use serde_json::{Value, json};
use sha2::{Digest, Sha256, Sha512};

use super::PATH;
use super::answers::{Html, Refusal, forbidden, refusal_for_form};
use super::form::{CSRF, Fields, Form};
use super::listing::Rows;
use super::removal::Removal;
use super::servers::may_launch;
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::app::session::equal;
use crate::error::Error;
use crate::texts;
use crate::views::images as page;

const IMAGES: &str = "/image/v2/images";
const CREATE: &str = "add_image";
const PUBLISH: &str = "publicize_image";
const UPLOAD: &str = "upload_image";
const DELETE: &str = "delete_image";
/// How long the fields before the data may take.
const FIELDS_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a field before the data, in bytes.
const FIELD: u64 = 4096;
/// Maximum number of bytes of a form that are read before its data begins, not counting the last chunk. A browser sends
/// the first data together with the fields before them, and the parser requests more at each field.
const HEAD: usize = 4 * 1024 * 1024;
/// The formats that the form offers.
pub(crate) const FORMATS: [&str; 6] = ["qcow2", "raw", "iso", "vmdk", "vhdx", "vdi"];

pub(super) fn routes() -> Router<Dashboard> {
    Router::new()
        .route("/images", get(list))
        .route("/new/image", get(new).post(create))
        .route("/images/{id}", get(show))
        .route("/images/{id}/file", post(upload))
        .route("/images/{id}/file/trial", post(attempt))
        .route("/images/{id}/delete", get(ask).post(remove))
}

/// True if the rule lets the user act on an image with this owner and visibility.
fn may(dashboard: &Dashboard, viewer: &Viewer, rule: &str, owner: &str, visibility: &str) -> bool {
    let target = [("project_id", owner), ("owner", owner), ("visibility", visibility)];
    dashboard.0.policies.image.allows(&viewer.context, rule, &target)
}

fn may_with(dashboard: &Dashboard, viewer: &Viewer, rule: &str, image: &Value) -> bool {
    let text = |key: &str| image[key].as_str().unwrap_or_default();
    may(dashboard, viewer, rule, text("owner"), text("visibility"))
}

fn may_create(dashboard: &Dashboard, viewer: &Viewer) -> bool {
    may(dashboard, viewer, CREATE, &viewer.session.project, "shared")
}

fn path_of(id: &str) -> String {
    format!("{IMAGES}/{}", escaped(id))
}

async fn find(dashboard: &Dashboard, viewer: &Viewer, id: &str) -> Result<Value, Error> {
    dashboard.0.cloud.get(&viewer.caller, &path_of(id)).await
}

async fn list(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    query: Query,
) -> Result<Html, Refusal> {
    let path = format!("{IMAGES}?sort_key=created_at&sort_dir=desc");
    let rows = Rows::read(&dashboard, &viewer, &path, "images", &query).await?;
    let creates = may_create(&dashboard, &viewer);
    Ok(Html(page::list(&viewer.session, &rows, creates)))
}

async fn show(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let image = find(&dashboard, &viewer, &id).await?;
    Ok(shown(&dashboard, &viewer, &image, StatusCode::OK, None))
}

fn shown(
    dashboard: &Dashboard,
    viewer: &Viewer,
    image: &Value,
    status: StatusCode,
    refused: Option<&str>,
) -> Response {
    let empty = image["status"] == "queued";
    let page = page::page(&page::Shown {
        session: &viewer.session,
        image,
        uploads: empty && may_with(dashboard, viewer, UPLOAD, image),
        deletes: may_with(dashboard, viewer, DELETE, image),
        launches: image["status"] == "active" && may_launch(dashboard, viewer),
        refused,
    });
    (status, Html(page)).into_response()
}

async fn new(State(dashboard): State<Dashboard>, viewer: Viewer) -> Result<Response, Refusal> {
    if !may_create(&dashboard, &viewer) {
        return Err(forbidden(&dashboard.0.policies.image, CREATE));
    }
    Ok(form(&dashboard, &viewer, &Fields(Query::default()), StatusCode::OK, None))
}

fn form(
    dashboard: &Dashboard,
    viewer: &Viewer,
    typed: &Fields,
    status: StatusCode,
    refused: Option<&str>,
) -> Response {
    let publishes = may(dashboard, viewer, PUBLISH, &viewer.session.project, "public");
    let typed = |name: &str| typed.raw(name).to_owned();
    (status, Html(page::form(&viewer.session, &typed, publishes, refused))).into_response()
}

async fn create(State(dashboard): State<Dashboard>, form_: Form) -> Result<Response, Refusal> {
    let Form { viewer, fields } = form_;
    let refused =
        |why: &str| form(&dashboard, &viewer, &fields, StatusCode::BAD_REQUEST, Some(why));
    let Some(name) = fields.text("name") else { return Ok(refused(texts::NAME_MISSING)) };
    let mut image = json!({
        "name": name,
        "container_format": "bare",
        "disk_format": fields.text("disk_format").unwrap_or(FORMATS[0]),
        "visibility": fields.text("visibility").unwrap_or("shared"),
    });
    for key in ["min_disk", "min_ram"] {
        let Some(text) = fields.text(key) else { continue };
        let Ok(number) = text.parse::<u32>() else { return Ok(refused(texts::NUMBER_WRONG)) };
        image[key] = number.into();
    }
    match dashboard.0.cloud.post(&viewer.caller, IMAGES, image).await {
        Ok(made) => {
            let id = made["id"].as_str().unwrap_or_default();
            Ok(Redirect::to(&format!("{PATH}/images/{}", escaped(id))).into_response())
        }
        Err(error) => {
            let (status, why) = refusal_for_form(error)?;
            Ok(form(&dashboard, &viewer, &fields, status, Some(&why)))
        }
    }
}

/// The checksum that the user expects, and the hash of the data received so far.
enum Sum {
    Sha256(Sha256, String),
    Sha512(Box<Sha512>, String),
}

impl Sum {
    /// Parses hexadecimal digits, whose number determines the algorithm.
    fn of(text: &str) -> Option<Self> {
        let digits = text.to_ascii_lowercase();
        match digits.len() {
            _ if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => None,
            64 => Some(Self::Sha256(Sha256::new(), digits)),
            128 => Some(Self::Sha512(Box::default(), digits)),
            _ => None,
        }
    }

    fn update(&mut self, data: &[u8]) {
        match self {
            Self::Sha256(hash, _) => hash.update(data),
            Self::Sha512(hash, _) => hash.update(data),
        }
    }

    fn matches(&self) -> bool {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        match self {
            Self::Sha256(hash, wanted) => hex(&hash.clone().finalize()) == *wanted,
            Self::Sha512(hash, wanted) => hex(&hash.clone().finalize()) == *wanted,
        }
    }
}

/// The data. If it does not match the checksum, it ends with an error, so that the service keeps none of it, and the
/// flag is set.
fn checked(
    data: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    sum: Sum,
    differs: Arc<AtomicBool>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let sum = Arc::new(Mutex::new(sum));
    let last = Arc::clone(&sum);
    let end = stream::once(async move {
        let matches = last.lock().unwrap_or_else(PoisonError::into_inner).matches();
        (!matches).then(|| {
            differs.store(true, Ordering::Release);
            Err(io::Error::other("the checksum differs"))
        })
    });
    let data = data.inspect_ok(move |chunk| {
        sum.lock().unwrap_or_else(PoisonError::into_inner).update(chunk);
    });
    data.chain(end.filter_map(std::future::ready))
}

/// The body of a form, one chunk at a time and with a bound on the part before the data: the parser reads as much as
/// it can at once, and keeps everything before the data in memory.
fn one_by_one(
    body: Body,
    has_begun: Arc<AtomicBool>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let mut before = 0_usize;
    body.into_data_stream().map_err(io::Error::other).then(move |chunk| {
        let is_long = before > HEAD && !has_begun.load(Ordering::Acquire);
        let chunk = if is_long { Err(io::Error::other("the data do not begin")) } else { chunk };
        before = before.saturating_add(chunk.as_ref().map_or(0, Bytes::len));
        async {
            tokio::task::yield_now().await;
            chunk
        }
    })
}

/// The form of an upload: the secret of the session, the checksum, the size, and the data last.
struct Upload {
    sum: Option<String>,
    /// The size of the file, which only a script can send before the data.
    size: Option<u64>,
    data: Field<'static>,
}

impl Upload {
    async fn read(secret: &str, media: &str, body: Body) -> Result<Self, Error> {
        let boundary = multer::parse_boundary(media);
        let boundary = boundary.map_err(|_| Error::Unreadable("It is not a form with a file."))?;
        let limits = SizeLimit::new().for_field(CSRF, FIELD).for_field("sum", FIELD);
        let limits = limits.for_field("size", FIELD);
        let limits = Constraints::new().size_limit(limits);
        let has_begun = Arc::new(AtomicBool::new(false));
        let body = one_by_one(body, Arc::clone(&has_begun));
        let mut form = Multipart::with_constraints(body, boundary, limits);
        let wrong = |_| Error::Unreadable("It is not complete.");
        let (mut known, mut sum, mut size) = (false, None, None);
        while let Some(field) = form.next_field().await.map_err(wrong)? {
            match field.name() {
                Some(CSRF) => {
                    let sent = field.text().await.map_err(wrong)?;
                    known = equal(sent.as_bytes(), secret.as_bytes());
                }
                Some("sum") => {
                    let text = field.text().await.map_err(wrong)?;
                    sum = Some(text.trim().to_owned()).filter(|text| !text.is_empty());
                }
                Some("size") => size = field.text().await.map_err(wrong)?.trim().parse().ok(),
                Some("file") if known => {
                    has_begun.store(true, Ordering::Release);
                    return Ok(Self { sum, size, data: field });
                }
                Some("file") => return Err(Error::Forged),
                _ => return Err(Error::Unreadable("It has an unknown field.")),
            }
        }
        Err(if known { Error::Unreadable(texts::FILE_MISSING) } else { Error::Forged })
    }
}

async fn upload(
    State(dashboard): State<Dashboard>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Response> {
    let (mut parts, body) = request.into_parts();
    let viewer = Viewer::from_request_parts(&mut parts, &dashboard).await?;
    let media = parts.headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
    let read = Upload::read(&viewer.session.csrf, media.unwrap_or_default(), body);
    let read = tokio::time::timeout(FIELDS_TIMEOUT, read).await;
    let read = read.unwrap_or(Err(Error::Unreadable("It did not arrive in time.")));
    let form = read.map_err(|error| Refusal(error).into_response())?;
    keep(&dashboard, &viewer, &id, form).await.map_err(IntoResponse::into_response)
}

/// Passes the data of a form to the image service.
async fn keep(
    dashboard: &Dashboard,
    viewer: &Viewer,
    id: &str,
    form: Upload,
) -> Result<Response, Refusal> {
    let image = find(dashboard, viewer, id).await?;
    let refuse = |why: &str| shown(dashboard, viewer, &image, StatusCode::BAD_REQUEST, Some(why));
    let Upload { sum, size, data } = form;
    if data.file_name().is_some_and(str::is_empty) {
        return Ok(refuse(texts::FILE_MISSING));
    }
    let differs = Arc::new(AtomicBool::new(false));
    let data = data.map_err(io::Error::other);
    let data = match sum {
        None => Body::from_stream(data),
        Some(sum) => match Sum::of(&sum) {
            Some(sum) => Body::from_stream(checked(data, sum, Arc::clone(&differs))),
            None => return Ok(refuse(texts::SUM_WRONG)),
        },
    };
    match dashboard.0.cloud.put_data(&viewer.caller, &data_of(id), size, data).await {
        Ok(()) => Ok(Redirect::to(&format!("{PATH}/images/{}", escaped(id))).into_response()),
        Err(_) if differs.load(Ordering::Acquire) => {
            let image = find(dashboard, viewer, id).await?;
            let (status, why) = (StatusCode::CONFLICT, Some(texts::SUM_DIFFERS));
            Ok(shown(dashboard, viewer, &image, status, why))
        }
        Err(error) => refusal(dashboard, viewer, id, error).await,
    }
}

/// The page of an image whose data the service refused, with its reason.
async fn refusal(
    dashboard: &Dashboard,
    viewer: &Viewer,
    id: &str,
    error: Error,
) -> Result<Response, Refusal> {
    let (status, why) = refusal_for_form(error)?;
    let image = find(dashboard, viewer, id).await?;
    Ok(shown(dashboard, viewer, &image, status, Some(&why)))
}

/// The address of an image's data in the image service.
fn data_of(id: &str) -> String {
    format!("{}/file", path_of(id))
}

/// Checks whether the image service would accept a file of this size, and answers with no content or with its refusal.
/// The request is that of an upload, but its data ends with an error as soon as the service reads it.
async fn attempt(
    State(dashboard): State<Dashboard>,
    Path(id): Path<String>,
    form: Form,
) -> Result<Response, Refusal> {
    let Form { viewer, fields } = form;
    if fields.text("sum").is_some_and(|sum| Sum::of(sum).is_none()) {
        let image = find(&dashboard, &viewer, &id).await?;
        let (status, why) = (StatusCode::BAD_REQUEST, Some(texts::SUM_WRONG));
        return Ok(shown(&dashboard, &viewer, &image, status, why));
    }
    let size = fields.text("size").and_then(|size| size.parse().ok());
    let reads = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&reads);
    let nothing = stream::once(async move {
        flag.store(true, Ordering::Release);
        Err::<Bytes, _>(io::Error::other("a trial without data"))
    });
    let data = Body::from_stream(nothing);
    match dashboard.0.cloud.put_data(&viewer.caller, &data_of(&id), size, data).await {
        Err(error) if !reads.load(Ordering::Acquire) => {
            refusal(&dashboard, &viewer, &id, error).await
        }
        Ok(()) | Err(_) => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

fn removal(id: &str, image: &Value) -> Removal {
    let name = image["name"].as_str().filter(|name| !name.is_empty()).unwrap_or(id);
    let (path, name, id) = (path_of(id), name.to_owned(), escaped(id));
    Removal {
        name,
        loses: texts::IMAGE_LOSES,
        path,
        here: format!("{PATH}/images/{id}/delete"),
        back: format!("{PATH}/images/{id}"),
        list: format!("{PATH}/images"),
    }
}

async fn ask(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let image = find(&dashboard, &viewer, &id).await?;
    if !may_with(&dashboard, &viewer, DELETE, &image) {
        return Err(forbidden(&dashboard.0.policies.image, DELETE));
    }
    Ok(removal(&id, &image).ask(&viewer))
}

async fn remove(
    State(dashboard): State<Dashboard>,
    Path(id): Path<String>,
    form: Form,
) -> Result<Response, Refusal> {
    let image = find(&dashboard, &form.viewer, &id).await?;
    removal(&id, &image).perform(&dashboard, &form.viewer).await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Reads a form with this beginning and this many chunks of one size. Returns how many were read.
    async fn read(
        begin: &'static str,
        chunks: usize,
        size: usize,
    ) -> (Result<Upload, Error>, usize) {
        let taken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&taken);
        let more = stream::repeat_with(move || {
            count.fetch_add(1, Ordering::Relaxed);
            Bytes::from(vec![b'x'; size])
        });
        let begin = stream::once(std::future::ready(Bytes::from_static(begin.as_bytes())));
        let sent = begin.chain(more.take(chunks)).map(Ok::<_, io::Error>);
        let form = Upload::read("s", "multipart/form-data; boundary=xyz", Body::from_stream(sent));
        let form = form.await;
        (form, taken.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn a_form_whose_data_do_not_begin_is_not_kept() {
        for begin in [
            "no form",
            "--xyz",
            "--xyz\r\nContent-Disposition: ",
            "--xyz\r\nContent-Disposition: form-data; name=\"csrf\"\r\n\r\n",
        ] {
            let (form, taken) = read(begin, 200, 1 << 20).await;
            assert!(matches!(form, Err(Error::Unreadable(_))), "{begin}");
            assert!(taken < 10, "{begin}: {taken}");
        }
    }

    #[tokio::test]
    async fn data_are_read_one_chunk_at_a_time() {
        let form = "--xyz\r\nContent-Disposition: form-data; name=\"csrf\"\r\n\r\ns\r\n--xyz\r\n\
                    Content-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n";
        let (form, taken) = read(form, 100, 10_000).await;
        assert!(taken < 10, "{taken}");
        let Ok(Upload { mut data, .. }) = form else { panic!("it is a form") };
        let mut length = 0;
        while let Ok(Some(chunk)) = data.chunk().await {
            assert!(chunk.len() <= 100_000, "{}", chunk.len());
            length += chunk.len();
        }
        // The form has no end, so the last chunk does not belong to the file.
        assert_eq!(length, 990_000, "data beyond the bound on the fields arrives too");
    }

    #[tokio::test]
    async fn data_that_are_not_those_of_the_checksum_break_off_at_their_end() {
        const ABC: &str = "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD";
        for (sent, fits) in [(["a", "bc"], true), (["a", "bd"], false)] {
            let differs = Arc::new(AtomicBool::new(false));
            let data = stream::iter(sent.map(|part| Ok(Bytes::from_static(part.as_bytes()))));
            let sum = Sum::of(ABC).expect("it is a checksum");
            let came: Vec<_> = checked(data, sum, Arc::clone(&differs)).collect().await;
            let whole: io::Result<Vec<Bytes>> = came.into_iter().collect();
            assert_eq!((whole.is_ok(), differs.load(Ordering::Acquire)), (fits, !fits));
        }
        assert!(Sum::of(&"0".repeat(128)).is_some());
        for wrong in ["", "abc", &"g".repeat(64), &"0".repeat(32)] {
            assert!(Sum::of(wrong).is_none(), "{wrong}");
        }
    }
}
