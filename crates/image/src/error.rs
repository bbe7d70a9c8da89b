//! Errors of this service and their faults.

use axum::http::{HeaderValue, StatusCode, header};
use kilonova_store::Trouble;
use kilonova_wire::Fault;

/// A failure of the image service.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image does not exist for the caller.
    #[error("No image found with ID {0}")]
    NotFound(String),
    /// The image is not shared with this project.
    #[error("{0} not found in the member list of the image {1}.")]
    NoMember(String, kilonova_ids::ImageId),
    /// Policy, or the image itself, forbids this.
    #[error("{0}")]
    Forbidden(String),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The image's state does not allow this.
    #[error("{0}")]
    Conflict(String),
    /// A limit on bytes or numbers is exceeded.
    #[error("{0}")]
    TooLarge(String),
    /// The data or the body is not of the declared type.
    #[error("{0}")]
    Unsupported(String),
    /// The image was deleted during its upload.
    #[error("Image {0} was deleted while its data was being uploaded.")]
    Gone(String),
    /// The client disconnected.
    #[error("the upload was interrupted: {0}")]
    BrokenOff(String),
    /// The client sends too slowly.
    #[error("{0}")]
    TooSlow(String),
    /// Too many transfers are in progress.
    #[error("{0}")]
    Busy(String),
    /// The thread pool for image files is full.
    #[error("image files: {0}")]
    Threads(#[from] kilonova_threads::Error),
    /// The image directory is unusable; the text is for the operator.
    #[error("{0}")]
    Directory(String),
    /// Reading or writing an image failed.
    #[error("image data: {0}")]
    Io(#[from] std::io::Error),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] kilonova_store::Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::NotFound(_) | Error::NoMember(..) => Self::not_found(text),
            Error::Forbidden(_) => Self::forbidden(text),
            Error::Invalid(_) => Self::bad_request(text),
            Error::Conflict(_) => Self::conflict(text),
            Error::TooLarge(_) => Self::new(StatusCode::PAYLOAD_TOO_LARGE, text),
            Error::Unsupported(_) => Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text),
            Error::Gone(_) => Self::new(StatusCode::GONE, text),
            Error::BrokenOff(_) => {
                Self::bad_request("The image data ended prematurely.").with_internal(text)
            }
            Error::TooSlow(_) => Self::new(StatusCode::REQUEST_TIMEOUT, text),
            Error::Busy(_) => busy(text),
            Error::Threads(kilonova_threads::Error::Full(_)) => {
                busy("The image service is overloaded. Try again later.".into()).with_internal(text)
            }
            Error::Io(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "The storage for image data is full.")
                    .with_internal(text)
            }
            Error::Store(error) => match error.trouble() {
                Trouble::Full => Self::no_space(error),
                Trouble::Passing => Self::unavailable(error),
                Trouble::Lasting => Self::internal(error),
            },
            Error::Directory(_) | Error::Io(_) | Error::Threads(_) => Self::internal(text),
        }
    }
}

/// Seconds after which a client may retry.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("10");

fn busy(text: String) -> Fault {
    Fault::new(StatusCode::SERVICE_UNAVAILABLE, text).with_header(header::RETRY_AFTER, RETRY_AFTER)
}
