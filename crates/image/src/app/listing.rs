//! Which images a listing shows. The database cuts by what has an index; the rest is cut here.

use kilonova_ids::ImageId;
use kilonova_store::Tx;
use kilonova_wire::Context;

use super::{Seen, Who, visible};
use crate::db::images::{self, Wanted};
use crate::db::members;
use crate::{Acceptance, Error, ImageRecord, Images, Visibility};

/// Rows that are asked of the database at a time.
const BATCH: i64 = 100;
/// A page ends early when its images have about so many bytes; the next page begins with the rest.
const HEAVIEST: usize = 1024 * 1024;

/// What a caller wants to see.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filters {
    /// Only these, if given.
    pub ids: Option<Vec<ImageId>>,
    pub owner: Option<String>,
    pub visibility: Option<Visibility>,
    /// What the caller's project said of images that are shared with it; `None` for anything.
    pub shared: Option<Acceptance>,
    /// Whether all visibilities are wanted, community images too.
    pub all: bool,
    pub hidden: bool,
    pub protected: Option<bool>,
    /// Every one of them.
    pub tags: Vec<String>,
    /// Any of them; no filter when empty.
    pub names: Vec<String>,
    pub statuses: Vec<String>,
    pub disk_formats: Vec<String>,
    pub container_formats: Vec<String>,
    pub size_min: Option<i64>,
    pub size_max: Option<i64>,
    pub properties: Vec<(String, String)>,
}

fn among(wanted: &[String], have: Option<&str>) -> bool {
    wanted.is_empty() || have.is_some_and(|have| wanted.iter().any(|w| w == have))
}

impl Filters {
    /// Whether an image that the caller may see is wanted.
    fn fits(&self, image: &ImageRecord, who: &Who) -> bool {
        let own = who.context.project_id == image.owner;
        let visible = match self.visibility {
            Some(visibility) => image.visibility == visibility,
            None => {
                self.all
                    || own
                    || who.context.is_admin()
                    || image.visibility != Visibility::Community
            }
        };
        let member = (image.visibility == Visibility::Shared && !own)
            .then_some(who.context.project_id.as_str());
        visible
            && who.allows("get_image", image, member)
            && image.hidden == self.hidden
            && self.owner.as_ref().is_none_or(|owner| *owner == image.owner)
            && self.protected.is_none_or(|protected| protected == image.protected)
            && self.tags.iter().all(|tag| image.tags.contains(tag))
            && among(&self.names, image.name.as_deref())
            && among(&self.statuses, Some(image.status.as_str()))
            && among(&self.disk_formats, image.disk_format.as_deref())
            && among(&self.container_formats, image.container_format.as_deref())
            && self.size_min.is_none_or(|least| image.size.is_some_and(|size| size >= least))
            && self.size_max.is_none_or(|most| image.size.is_some_and(|size| size <= most))
            && self.properties.iter().all(|(key, value)| image.properties.get(key) == Some(value))
    }
}

impl Images {
    /// One page, newest first, and whether more follow.
    pub(crate) async fn list(
        &self,
        context: &Context,
        filters: Filters,
        marker: Option<ImageId>,
        limit: usize,
    ) -> Result<(Vec<ImageRecord>, bool), Error> {
        let who = self.who(context);
        self.store
            .read(move |tx| {
                let after = match marker {
                    None => None,
                    Some(id) => {
                        let seen = visible(tx, &who.context, id)?;
                        let seen = seen
                            .ok_or_else(|| Error::Invalid(format!("Marker {id} is no image.")))?;
                        Some((seen.image.created_at, id))
                    }
                };
                let mut page = Page { images: Vec::new(), weight: 0, limit, more: false };
                match &filters.ids {
                    Some(ids) => named(tx, &who, &filters, ids, after, &mut page)?,
                    None => all(tx, &who, &filters, after, &mut page)?,
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
    /// Whether there is one that has no room.
    more: bool,
}

impl Page {
    /// Takes an image; `false` when there is no room for it.
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

fn named(
    tx: &mut Tx<'_>,
    who: &Who,
    filters: &Filters,
    ids: &[ImageId],
    after: Option<(i64, ImageId)>,
    page: &mut Page,
) -> Result<(), Error> {
    let mut found = Vec::new();
    for id in ids {
        let Some(Seen { image, member }) = visible(tx, &who.context, *id)? else { continue };
        let shared = image.visibility == Visibility::Shared && !image.open_to(&who.context);
        let said = match (&member, filters.shared) {
            (Some(project), Some(wanted)) if shared => {
                members::one(tx, *id, project)?.is_some_and(|member| member.status == wanted)
            }
            _ => true,
        };
        let follows = after.is_none_or(|after| (image.created_at, image.id) < after);
        if said && follows && filters.fits(&image, who) {
            found.push(image);
        }
    }
    found.sort_by_key(|image| std::cmp::Reverse((image.created_at, image.id)));
    found.dedup_by_key(|image| image.id);
    for image in found {
        if !page.take(image) {
            break;
        }
    }
    Ok(())
}

fn all(
    tx: &mut Tx<'_>,
    who: &Who,
    filters: &Filters,
    after: Option<(i64, ImageId)>,
    page: &mut Page,
) -> Result<(), Error> {
    let name = match filters.names.as_slice() {
        [name] => Some(name.clone()),
        _ => None,
    };
    let mut wanted = Wanted {
        viewer: (!who.context.is_admin()).then(|| who.context.project_id.clone()),
        shared: filters.shared.map(Acceptance::as_str),
        name,
        owner: filters.owner.clone(),
        after,
        limit: BATCH,
    };
    loop {
        let batch = images::list(tx, &wanted)?;
        let last = batch.len() < BATCH as usize;
        wanted.after = batch.last().map(|image| (image.created_at, image.id));
        for image in batch {
            if filters.fits(&image, who) && !page.take(image) {
                return Ok(());
            }
        }
        if last {
            return Ok(());
        }
    }
}
