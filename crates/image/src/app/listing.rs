//! Image lists. The database applies the filters that have an index; this module applies the
//! others.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use jiff::Timestamp;
use kilonova_ids::ImageId;
use kilonova_store::Tx;
use kilonova_wire::{Context, time};

use super::sort::{Place, Sort};
use super::{Requester, VisibleImage, visible};
use crate::db::images::{self, ImageQuery};
use crate::db::members;
use crate::{Acceptance, Error, ImageRecord, Images, Visibility};

/// Maximum number of rows per database query.
const BATCH: i64 = 100;
/// The approximate size in bytes at which a page, or a database query, ends early; the next one
/// continues.
const HEAVIEST: usize = 1024 * 1024;

/// An attribute of an image that is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// The size of the data in bytes.
    Size,
    /// The size of the disk that a guest sees, in bytes.
    VirtualSize,
    /// Minimum memory of a server, in MiB.
    MinRam,
    /// Minimum disk of a server, in GiB.
    MinDisk,
}

impl Amount {
    /// The attribute of this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "size" => Self::Size,
            "virtual_size" => Self::VirtualSize,
            "min_ram" => Self::MinRam,
            "min_disk" => Self::MinDisk,
            _ => return None,
        })
    }

    fn of(self, image: &ImageRecord) -> Option<i64> {
        match self {
            Self::Size => image.size,
            Self::VirtualSize => image.virtual_size,
            Self::MinRam => Some(image.min_ram),
            Self::MinDisk => Some(image.min_disk),
        }
    }
}

/// A timestamp of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// When it was created.
    Created,
    /// When it last changed.
    Updated,
}

/// A condition on a timestamp of an image, rounded down to seconds, because the API shows seconds.
#[derive(Debug, Clone, Copy)]
pub struct TimeFilter {
    /// The timestamp to compare.
    pub moment: Moment,
    /// True if the image passes when its timestamp compares to `than` with this result.
    pub passes: fn(Ordering) -> bool,
    /// The time with which the timestamp is compared.
    pub than: Timestamp,
}

impl TimeFilter {
    fn fits(&self, image: &ImageRecord) -> bool {
        let own = match self.moment {
            Moment::Created => image.created_at,
            Moment::Updated => image.updated_at,
        };
        (self.passes)(time::start_of_second(own).cmp(&self.than))
    }
}

/// The hash algorithm of every image.
pub(crate) const HASH_ALGORITHM: &str = "sha512";

/// The filters of a list. A filter that is not set admits every image.
#[derive(Debug, Clone, Default)]
pub struct ImageFilters {
    /// The image has one of these ids.
    pub ids: Option<Vec<ImageId>>,
    /// The owning project.
    pub owner: Option<String>,
    /// The visibility.
    pub visibility: Option<Visibility>,
    /// The caller's decision about images shared with it; `None` for any.
    pub shared: Option<Acceptance>,
    /// True to include images of every visibility, including community.
    pub all: bool,
    /// Selects the hidden images if true, the others if false.
    pub hidden: bool,
    /// Selects images that are protected from deletion, or those that are not.
    pub protected: Option<bool>,
    /// The image has all of these tags.
    pub tags: BTreeSet<String>,
    /// The image has one of these names; no filter if empty.
    pub names: BTreeSet<String>,
    /// The image has one of these statuses; no filter if empty.
    pub statuses: BTreeSet<String>,
    /// The image has one of these disk formats; no filter if empty.
    pub disk_formats: BTreeSet<String>,
    /// The image has one of these container formats; no filter if empty.
    pub container_formats: BTreeSet<String>,
    /// Each of these amounts of the image is in its range.
    pub amounts: Vec<(Amount, RangeInclusive<i64>)>,
    /// The image's times pass these conditions.
    pub times: Vec<TimeFilter>,
    /// MD5 of the data.
    pub checksum: Option<String>,
    /// SHA-512 of the data.
    pub hash: Option<String>,
    /// The name of the hash algorithm.
    pub hash_algorithm: Option<String>,
    /// The image's minimum memory, in MiB.
    pub min_ram: Option<i64>,
    /// The image's minimum disk, in GiB.
    pub min_disk: Option<i64>,
    /// The image was changed at this time or later.
    pub changed_since: Option<Timestamp>,
    /// The image has all of these properties with these values.
    pub properties: BTreeSet<(String, String)>,
}

fn among(allowed: &BTreeSet<String>, value: Option<&str>) -> bool {
    allowed.is_empty() || value.is_some_and(|value| allowed.contains(value))
}

fn equal(wanted: Option<&String>, value: Option<&str>) -> bool {
    wanted.is_none_or(|wanted| value == Some(wanted))
}

impl ImageFilters {
    /// True if policy allows the caller to read the image and the image passes the filters.
    fn fits(&self, image: &ImageRecord, caller: &Requester) -> bool {
        let own = caller.context.project_id == image.owner;
        let visible = match self.visibility {
            Some(visibility) => image.visibility == visibility,
            None => {
                // An administrator's list has no community images of other projects either, as in `_image_get_all` of
                // `glance/db/sqlalchemy/api.py`.
                self.all || own || image.visibility != Visibility::Community
            }
        };
        let member = (image.visibility == Visibility::Shared && !own)
            .then_some(caller.context.project_id.as_str());
        visible
            && image.hidden == self.hidden
            && self.owner.as_ref().is_none_or(|owner| *owner == image.owner)
            && self.protected.is_none_or(|protected| protected == image.protected)
            && self.tags.iter().all(|tag| image.tags.contains(tag))
            && among(&self.names, image.name.as_deref())
            && among(&self.statuses, Some(image.status.as_str()))
            && among(&self.disk_formats, image.disk_format.as_deref())
            && among(&self.container_formats, image.container_format.as_deref())
            && self.amounts.iter().all(|(amount, range)| {
                amount.of(image).is_some_and(|number| range.contains(&number))
            })
            && self.times.iter().all(|filter| filter.fits(image))
            && equal(self.checksum.as_ref(), image.checksum.as_deref())
            && equal(self.hash.as_ref(), image.hash.as_deref())
            && equal(self.hash_algorithm.as_ref(), image.hash.as_ref().map(|_| HASH_ALGORITHM))
            && self.min_ram.is_none_or(|megabytes| image.min_ram == megabytes)
            && self.min_disk.is_none_or(|gigabytes| image.min_disk == gigabytes)
            && self.changed_since.is_none_or(|since| image.updated_at >= since)
            && self.properties.iter().all(|(key, value)| image.properties.get(key) == Some(value))
            && caller.allows("get_image", image, member)
    }
}

impl Images {
    /// One page in Glance's default order, and whether more images follow. The caller must already
    /// have passed the policy rule `get_images`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a marker that is not visible to the caller.
    pub async fn list(
        &self,
        context: &Context,
        filters: ImageFilters,
        marker: Option<ImageId>,
        limit: usize,
    ) -> Result<(Vec<ImageRecord>, bool), Error> {
        self.list_sorted(context, filters, Sort::default(), marker, limit).await
    }

    /// [`Images::list`] in the order of `sort`.
    pub(crate) async fn list_sorted(
        &self,
        context: &Context,
        filters: ImageFilters,
        sort: Sort,
        marker: Option<ImageId>,
        limit: usize,
    ) -> Result<(Vec<ImageRecord>, bool), Error> {
        let caller = self.requester(context);
        self.store
            .read(move |tx| {
                let after = match marker {
                    None => None,
                    Some(id) => {
                        let seen = visible(tx, &caller.context, id)?;
                        let seen = seen.ok_or_else(|| {
                            Error::Invalid(format!("Marker {id} is not an image."))
                        })?;
                        Some(seen.image)
                    }
                };
                let mut page = Page { images: Vec::new(), weight: 0, limit, more: false };
                let after = after.as_ref();
                match &filters.ids {
                    Some(ids) => named(tx, &caller, &filters, &sort, ids, after, &mut page)?,
                    None if sort.is_newest_first() => all(tx, &caller, &filters, after, &mut page)?,
                    None => sorted(tx, &caller, &filters, &sort, after, &mut page)?,
                }
                Ok((page.images, page.more))
            })
            .await
    }
}

struct Page {
    images: Vec<ImageRecord>,
    weight: usize,
    limit: usize,
    /// True if an image did not fit.
    more: bool,
}

impl Page {
    /// Adds an image; `false` if it does not fit.
    fn take(&mut self, image: ImageRecord) -> bool {
        let heavy = !self.images.is_empty() && self.weight + image.weight() > HEAVIEST;
        if heavy || self.images.len() >= self.limit {
            self.more = true;
            return false;
        }
        self.weight += image.weight();
        self.images.push(image);
        true
    }
}

/// Adds to the page the images with these ids that follow `after`.
fn named(
    tx: &mut Tx<'_>,
    caller: &Requester,
    filters: &ImageFilters,
    sort: &Sort,
    ids: &[ImageId],
    after: Option<&ImageRecord>,
    page: &mut Page,
) -> Result<(), Error> {
    let mut first = First::new(sort, after, page.limit);
    for id in ids {
        let Some(VisibleImage { image, member }) = visible(tx, &caller.context, *id)? else {
            continue;
        };
        let shared = image.visibility == Visibility::Shared && !image.open_to(&caller.context);
        let decided = match (&member, filters.shared) {
            (Some(project), Some(status)) if shared => {
                members::one(tx, *id, project)?.is_some_and(|member| member.status == status)
            }
            _ => true,
        };
        if decided && filters.fits(&image, caller) {
            first.add(&image);
        }
    }
    first.fill(tx, page)
}

/// Adds to the page the images that follow `after` in the newest-first order.
fn all(
    tx: &mut Tx<'_>,
    caller: &Requester,
    filters: &ImageFilters,
    after: Option<&ImageRecord>,
    page: &mut Page,
) -> Result<(), Error> {
    let after = after.map(|image| (image.created_at, image.id));
    each(tx, caller, filters, after, |image| page.take(image))
}

/// Adds to the page the images that follow `after` in another order. Examines every image that the
/// caller may see.
fn sorted(
    tx: &mut Tx<'_>,
    caller: &Requester,
    filters: &ImageFilters,
    sort: &Sort,
    after: Option<&ImageRecord>,
    page: &mut Page,
) -> Result<(), Error> {
    let mut first = First::new(sort, after, page.limit);
    each(tx, caller, filters, None, |image| {
        first.add(&image);
        true
    })?;
    first.fill(tx, page)
}

/// The positions of the first images after the marker. Stores only sort keys and ids, so that a caller
/// with many images costs time but little memory.
struct First<'a> {
    sort: &'a Sort,
    after: Option<Place>,
    /// One more than the page size, to detect whether more images follow.
    most: usize,
    places: BTreeMap<Place, ImageId>,
}

impl<'a> First<'a> {
    fn new(sort: &'a Sort, after: Option<&ImageRecord>, limit: usize) -> Self {
        let after = after.map(|image| sort.place(image));
        Self { sort, after, most: limit + 1, places: BTreeMap::new() }
    }

    /// Adds an image if it follows the marker and is among the first.
    fn add(&mut self, image: &ImageRecord) {
        let place = self.sort.place(image);
        if self.after.as_ref().is_none_or(|after| place > *after) {
            self.places.insert(place, image.id);
            if self.places.len() > self.most {
                self.places.pop_last();
            }
        }
    }

    /// Reads the images into the page.
    fn fill(self, tx: &mut Tx<'_>, page: &mut Page) -> Result<(), Error> {
        for id in self.places.into_values() {
            let image = images::by_id(tx, id)?;
            if image.is_some_and(|image| !page.take(image)) {
                break;
            }
        }
        Ok(())
    }
}

/// Calls `take` with the matching images, newest first, until it returns `false`.
fn each(
    tx: &mut Tx<'_>,
    caller: &Requester,
    filters: &ImageFilters,
    after: Option<(Timestamp, ImageId)>,
    mut take: impl FnMut(ImageRecord) -> bool,
) -> Result<(), Error> {
    let only = filters.names.first().filter(|_| filters.names.len() == 1);
    let mut query = ImageQuery {
        viewer: (!caller.context.is_admin()).then(|| caller.context.project_id.clone()),
        shared: filters.shared.map(Acceptance::as_str),
        name: only.cloned(),
        owner: filters.owner.clone(),
        after,
        limit: BATCH,
    };
    loop {
        let (batch, more) = images::list(tx, &query, HEAVIEST as i64)?;
        query.after = batch.last().map(|image| (image.created_at, image.id));
        for image in batch {
            if filters.fits(&image, caller) && !take(image) {
                return Ok(());
            }
        }
        if !more {
            return Ok(());
        }
    }
}
