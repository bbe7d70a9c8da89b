//! An image as it is kept.

use std::collections::BTreeMap;

use kilonova_ids::ImageId;
use kilonova_wire::Context;

/// The disk formats that the hypervisors here can use.
pub const DISK_FORMATS: [&str; 6] = ["raw", "qcow2", "iso", "aki", "ami", "ari"];
/// The containers: none, and the three of a kernel with its parts.
pub const CONTAINER_FORMATS: [&str; 4] = ["bare", "aki", "ami", "ari"];

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$item:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$item])* $variant,)* }

        impl $name {
            /// The word on the wire and in the database.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// Reads the word.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => None }
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, word: &&str) -> bool {
                self.as_str() == *word
            }
        }
    };
}

words! {
    /// Whether an image has its bytes.
    Status {
        /// It has none yet.
        Queued = "queued",
        /// They are arriving.
        Saving = "saving",
        /// It can be used.
        Active = "active",
        /// It has its bytes, and nobody but administrators may have them.
        Deactivated = "deactivated",
    }
}

words! {
    /// Who sees an image.
    Visibility {
        /// Everyone, in every listing.
        Public = "public",
        /// Everyone who knows its id or asks for such images.
        Community = "community",
        /// Its project, and those it is shared with.
        Shared = "shared",
        /// Its project.
        Private = "private",
    }
}

words! {
    /// What a project says of an image that is shared with it.
    Acceptance {
        /// Nothing yet.
        Pending = "pending",
        /// It wants to see it in its lists.
        Accepted = "accepted",
        /// It does not.
        Rejected = "rejected",
    }
}

/// A project with which an image is shared.
#[derive(Debug, Clone)]
pub struct Member {
    /// The project.
    pub project: String,
    /// What it says of that.
    pub status: Acceptance,
    /// Microseconds since 1970.
    pub created_at: i64,
    /// Microseconds since 1970.
    pub updated_at: i64,
}

/// An image as it is kept.
#[derive(Debug, Clone)]
pub struct ImageRecord {
    /// Its id.
    pub id: ImageId,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The project it belongs to.
    pub owner: String,
    /// Whether it has its bytes.
    pub status: Status,
    /// Who sees it.
    pub visibility: Visibility,
    /// `raw`, `qcow2`, …
    pub disk_format: Option<String>,
    /// `bare`, …
    pub container_format: Option<String>,
    /// MiB of memory that a server needs for it.
    pub min_ram: i64,
    /// GiB of disk that a server needs for it.
    pub min_disk: i64,
    /// Whether it cannot be deleted.
    pub protected: bool,
    /// Whether default listings leave it out.
    pub hidden: bool,
    /// Bytes of its data.
    pub size: Option<i64>,
    /// Bytes that a guest sees.
    pub virtual_size: Option<i64>,
    /// MD5 of its data.
    pub checksum: Option<String>,
    /// SHA-512 of its data.
    pub hash: Option<String>,
    /// The file that holds, or is to hold, its data.
    pub data: Option<String>,
    /// Its tags, sorted.
    pub tags: Vec<String>,
    /// What else was said of it (`hw_…`, `trait:…`, `os_…`).
    pub properties: BTreeMap<String, String>,
    /// Microseconds since 1970.
    pub created_at: i64,
    /// Microseconds since 1970.
    pub updated_at: i64,
}

impl ImageRecord {
    /// A new image of a project, without bytes.
    pub fn new(id: ImageId, owner: String, now: i64) -> Self {
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
            data: None,
            tags: Vec::new(),
            properties: BTreeMap::new(),
            created_at: now,
            updated_at: now,
        }
    }

    /// Whether the caller may know of it, though it is not shared with the caller's project.
    pub(crate) fn open_to(&self, context: &Context) -> bool {
        matches!(self.visibility, Visibility::Public | Visibility::Community)
            || context.may_see(&self.owner)
    }

    /// About how many bytes it takes to tell of it.
    pub(crate) fn weight(&self) -> usize {
        let properties = self.properties.iter().map(|(key, value)| key.len() + value.len());
        1024 + properties.sum::<usize>() + self.tags.iter().map(String::len).sum::<usize>()
    }
}
