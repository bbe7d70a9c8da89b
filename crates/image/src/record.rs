//! A stored image.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kilonova_ids::ImageId;
use kilonova_image_store::ObjectName;
use kilonova_wire::Context;

/// The disk formats that the hypervisors support.
pub const DISK_FORMATS: [&str; 6] = ["raw", "qcow2", "iso", "aki", "ami", "ari"];
/// The container formats, as in `glance/common/config.py`. They have no effect: hosts read the data in the disk format, as
/// Nova does.
pub const CONTAINER_FORMATS: [&str; 8] =
    ["ami", "ari", "aki", "bare", "ovf", "ova", "docker", "compressed"];

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$item:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$item])* $variant,)* }

        impl $name {
            /// The name on the wire and in the database.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// Parses the name.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

words! {
    /// The state of an image.
    Status {
        /// Without data.
        Queued = "queued",
        /// An upload is in progress.
        Saving = "saving",
        /// Usable.
        Active = "active",
        /// Its data is available to administrators only.
        Deactivated = "deactivated",
    }
}

words! {
    /// The visibility of an image.
    Visibility {
        /// Visible to everyone and in every list.
        Public = "public",
        /// Visible to everyone, but listed only on request.
        Community = "community",
        /// Visible to its project and its members.
        Shared = "shared",
        /// Visible to its project.
        Private = "private",
    }
}

words! {
    /// A member project's decision about a shared image.
    Acceptance {
        /// Undecided.
        Pending = "pending",
        /// The project's lists show the image.
        Accepted = "accepted",
        /// The project's lists hide the image.
        Rejected = "rejected",
    }
}

words! {
    /// A kind of store, by Glance's name.
    StoreName {
        /// Files in a directory.
        File = "file",
        /// An S3-compatible object store.
        S3 = "s3",
    }
}

/// The location of an image's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The store.
    pub store: StoreName,
    /// The object in the store.
    pub name: ObjectName,
}

/// A project with which an image is shared.
#[derive(Debug, Clone)]
pub struct Member {
    /// The project.
    pub project: String,
    /// Its decision.
    pub status: Acceptance,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// A stored image.
#[derive(Debug, Clone)]
pub struct ImageRecord {
    /// Its id.
    pub id: ImageId,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The owning project.
    pub owner: String,
    /// Its state.
    pub status: Status,
    /// Its visibility.
    pub visibility: Visibility,
    /// `raw`, `qcow2`, …
    pub disk_format: Option<String>,
    /// `bare`, …
    pub container_format: Option<String>,
    /// Minimum memory of a server, in MiB.
    pub min_ram: i64,
    /// Minimum disk of a server, in GiB.
    pub min_disk: i64,
    /// True if deletion is refused.
    pub protected: bool,
    /// True if default lists omit it.
    pub hidden: bool,
    /// The size of the data in bytes.
    pub size: Option<i64>,
    /// The size of the disk that a guest sees, in bytes.
    pub virtual_size: Option<i64>,
    /// MD5 of the data.
    pub checksum: Option<String>,
    /// SHA-512 of the data.
    pub hash: Option<String>,
    /// The location of its data; set when an upload begins.
    pub location: Option<Location>,
    /// Its tags, sorted.
    pub tags: Vec<String>,
    /// Other properties (`hw_…`, `trait:…`, `os_…`).
    pub properties: BTreeMap<String, String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

impl ImageRecord {
    /// A new image of a project, without data.
    pub fn new(id: ImageId, owner: String, now: Timestamp) -> Self {
        Self {
            id,
            name: None,
            owner,
            status: Status::Queued,
            visibility: Visibility::Shared,
            disk_format: None,
            container_format: None,
            min_ram: 0,
            min_disk: 0,
            protected: false,
            hidden: false,
            size: None,
            virtual_size: None,
            checksum: None,
            hash: None,
            location: None,
            tags: Vec::new(),
            properties: BTreeMap::new(),
            created_at: now,
            updated_at: now,
        }
    }

    /// The location of the image's data, if the data is complete.
    pub(crate) fn complete(&self) -> Option<&Location> {
        match self.status {
            Status::Active | Status::Deactivated => self.location.as_ref(),
            Status::Queued | Status::Saving => None,
        }
    }

    /// True if the caller may see the image without being a member.
    pub(crate) fn open_to(&self, context: &Context) -> bool {
        matches!(self.visibility, Visibility::Public | Visibility::Community)
            || context.may_see(&self.owner)
    }

    /// The approximate size of its view in bytes.
    pub(crate) fn weight(&self) -> usize {
        let properties = self.properties.iter().map(|(key, value)| key.len() + value.len());
        1024 + properties.sum::<usize>() + self.tags.iter().map(String::len).sum::<usize>()
    }
}
