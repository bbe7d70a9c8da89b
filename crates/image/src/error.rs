//! Errors of this service and their faults.

use kilonova_image_store::Error as DataError;
use kilonova_store::Severity;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{IntoRefusal, Refusal};

/// An error of the image service.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image does not exist or is not visible to the caller.
    #[error("No image found with ID {0}")]
    NotFound(String),
    /// The image is not shared with this project.
    #[error("{0} not found in the member list of the image {1}.")]
    NoMember(String, kilonova_ids::ImageId),
    /// Policy, or an attribute of the image, forbids the request.
    #[error("{0}")]
    Forbidden(String),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The state of the image does not allow the request.
    #[error("{0}")]
    Conflict(String),
    /// A limit on a size or a number is exceeded.
    #[error("{0}")]
    TooLarge(String),
    /// The data or the body is not of the declared type.
    #[error("{0}")]
    Unsupported(String),
    /// The image was deleted, or another upload replaced this one, before its data was complete.
    #[error("Image {0} was deleted while its data was being uploaded.")]
    Gone(String),
    /// The client disconnected.
    #[error("the upload was interrupted: {0}")]
    Interrupted(String),
    /// The client sends too slowly.
    #[error("{0}")]
    TooSlow(String),
    /// Too many transfers are in progress.
    #[error("{0}")]
    Busy(String),
    /// The thread pool for image files is full.
    #[error("image files: {0}")]
    Threads(#[from] kilonova_threads::Error),
    /// The image store failed. The text is for the operator.
    #[error(transparent)]
    Data(#[from] kilonova_image_store::Error),
    /// The object in the store does not have the size that the image's row states.
    #[error(
        "the size of object {object} is not the size of image {image}: the object was changed or truncated; \
         restore it or upload the image again"
    )]
    Damaged {
        /// The image.
        image: kilonova_ids::ImageId,
        /// The object with its data.
        object: String,
    },
    /// Reading or writing an image failed.
    #[error("image data: {0}")]
    Io(#[from] std::io::Error),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] kilonova_store::Error),
}

impl IntoRefusal for Error {
    fn into_refusal(self) -> Refusal {
        let text = self.to_string();
        match self {
            Self::NotFound(_) | Self::NoMember(..) => Refusal::not_found(text),
            Self::Forbidden(_) => Refusal::forbidden(text),
            Self::Invalid(_) => Refusal::bad_request(text),
            Self::Conflict(_) => Refusal::conflict(text),
            Self::TooLarge(_) => Refusal::new(Kind::TooLarge, text),
            Self::Unsupported(_) => Refusal::new(Kind::UnsupportedMediaType, text),
            Self::Gone(_) => Refusal::new(Kind::Gone, text),
            Self::Interrupted(_) => {
                Refusal::bad_request("The image data ended prematurely.").with_internal(text)
            }
            Self::TooSlow(_) => Refusal::new(Kind::Timeout, text),
            Self::Busy(_) => busy(text),
            Self::Threads(error @ kilonova_threads::Error::Full(_)) => {
                data(&DataError::Threads(error), text)
            }
            Self::Store(error) => match error.severity() {
                Severity::DiskFull => Refusal::no_space(error),
                Severity::Temporary => Refusal::unavailable(error),
                Severity::Permanent => Refusal::internal(error),
            },
            Self::Data(error) => data(&error, text),
            Self::Damaged { .. } | Self::Io(_) | Self::Threads(_) => Refusal::internal(text),
        }
    }
}

/// The refusal for an error of a store. Its message reveals nothing about the store itself.
fn data(error: &DataError, text: String) -> Refusal {
    let message = match error {
        _ if error.is_full() => return full(text),
        DataError::Missing(_) => "The data of the image is not available here. Try again later.",
        DataError::Unavailable(_)
        | DataError::Refused(_)
        | DataError::Full(_)
        | DataError::Io(_) => "The image store is unavailable. Try again later.",
        DataError::Threads(kilonova_threads::Error::Full(_)) => {
            "The image service is overloaded. Try again later."
        }
        DataError::Settings(_) | DataError::Threads(kilonova_threads::Error::Panicked(_)) => {
            return Refusal::internal(text);
        }
    };
    busy(message.into()).with_internal(text)
}

fn full(text: String) -> Refusal {
    Refusal::new(Kind::NoSpace, "The storage for image data is full.").with_internal(text)
}

/// Seconds after which a client may retry.
const RETRY_AFTER: u64 = 10;

fn busy(text: String) -> Refusal {
    Refusal::new(Kind::Unavailable, text).with_retry_after(RETRY_AFTER)
}
