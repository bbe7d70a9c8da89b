//! Which images a listing shows. The database cuts by what has an index; the rest is cut here.

use kilonova_ids::ImageId;
use kilonova_wire::Context;

use crate::db::images::{self, Wanted};
use crate::{Error, ImageRecord, Images, Visibility};

/// Rows that are asked of the database at a time.
const BATCH: i64 = 500;

/// What a caller wants to see.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filters {
    /// Only these, if given.
    pub ids: Option<Vec<ImageId>>,
    pub owner: Option<String>,
    pub visibility: Option<Visibility>,
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
    fn fits(&self, image: &ImageRecord, context: &Context) -> bool {
        let own = context.project_id == image.owner;
        let visible = image.visible_to(context)
            && match self.visibility {
                Some(visibility) => image.visibility == visibility,
                None => {
                    self.all
                        || own
                        || context.is_admin()
                        || image.visibility != Visibility::Community
                }
            };
        visible
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
        let context = context.clone();
        self.store
            .read(move |tx| {
                let after = match marker {
                    None => None,
                    Some(id) => {
                        let image = images::by_id(tx, id)?
                            .filter(|image| image.visible_to(&context))
                            .ok_or_else(|| Error::Invalid(format!("Marker {id} is no image.")))?;
                        Some((image.created_at, id))
                    }
                };
                let mut found = Vec::new();
                if let Some(ids) = &filters.ids {
                    for id in ids {
                        let image = images::by_id(tx, *id)?;
                        found.extend(image.filter(|image| {
                            after.is_none_or(|after| (image.created_at, image.id) < after)
                                && filters.fits(image, &context)
                        }));
                    }
                    found.sort_by_key(|image| std::cmp::Reverse((image.created_at, image.id)));
                    found.dedup_by_key(|image| image.id);
                } else {
                    let name = match filters.names.as_slice() {
                        [name] => Some(name.clone()),
                        _ => None,
                    };
                    let mut wanted = Wanted {
                        viewer: (!context.is_admin()).then(|| context.project_id.clone()),
                        name,
                        owner: filters.owner.clone(),
                        after,
                        limit: BATCH,
                    };
                    while found.len() <= limit {
                        let batch = images::list(tx, &wanted)?;
                        let last = batch.len() < BATCH as usize;
                        wanted.after = batch.last().map(|image| (image.created_at, image.id));
                        found.extend(batch.into_iter().filter(|i| filters.fits(i, &context)));
                        if last {
                            break;
                        }
                    }
                }
                let more = found.len() > limit;
                found.truncate(limit);
                Ok((found, more))
            })
            .await
    }
}
