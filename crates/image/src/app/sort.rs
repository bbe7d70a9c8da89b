//! The order of a listing, by Glance's keys and directions; pure.

use std::cmp::Reverse;

use jiff::Timestamp;
use kilonova_ids::ImageId;

use crate::ImageRecord;

/// The sort keys of a listing, from `glance.api.v2.images.ImagesController.get_sort_key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SortKey {
    Name,
    Status,
    ContainerFormat,
    DiskFormat,
    Size,
    Id,
    CreatedAt,
    UpdatedAt,
}

impl SortKey {
    /// The key of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "name" => Self::Name,
            "status" => Self::Status,
            "container_format" => Self::ContainerFormat,
            "disk_format" => Self::DiskFormat,
            "size" => Self::Size,
            "id" => Self::Id,
            "created_at" => Self::CreatedAt,
            "updated_at" => Self::UpdatedAt,
            _ => return None,
        })
    }

    fn of(self, image: &ImageRecord) -> Part {
        match self {
            Self::Name => Part::Text(image.name.clone()),
            Self::Status => Part::Text(Some(image.status.as_str().to_owned())),
            Self::ContainerFormat => Part::Text(image.container_format.clone()),
            Self::DiskFormat => Part::Text(image.disk_format.clone()),
            Self::Size => Part::Number(image.size),
            Self::Id => Part::Id(image.id),
            Self::CreatedAt => Part::Time(image.created_at),
            Self::UpdatedAt => Part::Time(image.updated_at),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Ascending,
    Descending,
}

impl Direction {
    /// Parses `asc` or `desc`.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "asc" => Some(Self::Ascending),
            "desc" => Some(Self::Descending),
            _ => None,
        }
    }
}

/// Keys with their directions. The unique id is always among them, so the order is total and a page can continue
/// another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sort(Vec<(SortKey, Direction)>);

impl Default for Sort {
    fn default() -> Self {
        Self::new(Vec::new(), Direction::Descending)
    }
}

impl Sort {
    /// Sorts by `keys`, then by time of creation and id in the direction `rest`, as in Glance. A key that is repeated
    /// cannot change the order and is dropped, so that the place of an image is small.
    pub fn new(keys: Vec<(SortKey, Direction)>, rest: Direction) -> Self {
        let mut kept: Vec<(SortKey, Direction)> = Vec::new();
        for key in keys.into_iter().chain([(SortKey::CreatedAt, rest), (SortKey::Id, rest)]) {
            if kept.iter().all(|(have, _)| *have != key.0) {
                kept.push(key);
            }
        }
        Self(kept)
    }

    /// True for the order in which the database lists images: newest first.
    pub fn is_newest_first(&self) -> bool {
        *self == Self::default()
    }

    /// An image's place in the order. Images are listed by ascending places.
    pub fn place(&self, image: &ImageRecord) -> Place {
        let part = |(key, direction): &(SortKey, Direction)| match direction {
            Direction::Ascending => Step::Up(key.of(image)),
            Direction::Descending => Step::Down(Reverse(key.of(image))),
        };
        Place(self.0.iter().map(part).collect())
    }
}

/// An image's place in one order. Places in different orders are not comparable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Up(Part),
    Down(Reverse<Part>),
}

/// An attribute's value. An absent value sorts before all others, as in Glance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Text(Option<String>),
    Number(Option<i64>),
    Time(Timestamp),
    Id(ImageId),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_key_is_dropped() {
        let keys =
            [SortKey::Name, SortKey::Id, SortKey::Name].map(|key| (key, Direction::Ascending));
        let many = keys.iter().copied().cycle().take(3000).collect();
        assert_eq!(
            Sort::new(many, Direction::Descending),
            Sort(vec![
                (SortKey::Name, Direction::Ascending),
                (SortKey::Id, Direction::Ascending),
                (SortKey::CreatedAt, Direction::Descending),
            ])
        );
    }
}
