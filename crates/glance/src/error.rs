//! Errors in communication with Glance.

use kilonova_ids::ImageId;

/// An error of a request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image does not exist for the caller's token.
    #[error("Image {0} could not be found.")]
    NotFound(ImageId),
    /// The caller's token does not allow this.
    #[error("Not authorized for image {0}.")]
    NotAuthorized(ImageId),
    /// The image service refuses the request, with its message.
    #[error("the image service refuses the request for image {image} ({status}): {why}")]
    Refused {
        /// The image.
        image: ImageId,
        /// The status of the answer.
        status: u16,
        /// The message of the answer.
        why: String,
    },
    /// A quota or a limit on sizes is exceeded.
    #[error("Quota exceeded or out of space for image {0} in the image service.")]
    TooLarge(ImageId),
    /// The image's state does not allow this.
    #[error("the state of image {image} does not allow the request: {why}")]
    Conflict {
        /// The image.
        image: ImageId,
        /// The message of the answer.
        why: String,
    },
    /// All attempts failed: they got no answer, or the answer that the service is unavailable.
    #[error("Connection to glance host {host} failed: {cause}")]
    Unavailable {
        /// The URL of the service.
        host: String,
        /// The reason, for the operator.
        cause: String,
        /// True if the service may have carried out the request.
        is_sent: bool,
    },
    /// The bytes do not match the image.
    #[error("the bytes of image {image} do not match the image service's description: {why}")]
    Damaged {
        /// The image.
        image: ImageId,
        /// The difference.
        why: String,
    },
    /// The source of an upload failed.
    #[error("the upload of image {image} was interrupted: {why}")]
    Interrupted {
        /// The image.
        image: ImageId,
        /// The reason.
        why: String,
    },
    /// The answer is not a valid answer of Glance.
    #[error("{host} answered {what}")]
    Unexpected {
        /// The URL of the service.
        host: String,
        /// The problem with the answer.
        what: String,
    },
}
