//! Nova's image proxy API (`/images` up to 2.35, its metadata up to 2.38): lists, shows and changes the images of our
//! own service, or those of the external Glance with the caller's token. The service applies its own policy.

use std::collections::BTreeMap;

use kilonova_glance::{Error as CallError, is_attribute};
use kilonova_ids::ImageId;
use kilonova_image::{Error as OwnError, ImageFilters, ImageRecord};
use kilonova_keystone::Caller;
use kilonova_wire::{Context, Refusal, time};
use serde_json::{Value, json};

use super::ImageService;
use super::glance::{CloudGlance, record, refusal};
use crate::Error;

/// The properties of an image.
type Properties = BTreeMap<String, String>;

impl ImageService {
    /// Returns a page of the images that the caller can see, and whether there are more.
    ///
    /// # Errors
    /// The service's refusal; 503 if it does not answer.
    pub async fn list(
        &self,
        context: &Context,
        filters: ImageFilters,
        marker: Option<ImageId>,
        limit: usize,
    ) -> Result<(Vec<ImageRecord>, bool), Refusal> {
        match self {
            Self::Elsewhere => Err(missing()),
            Self::Own(images) => {
                images.list(context, filters, marker, limit).await.map_err(own_refusal)
            }
            Self::Glance(glance) => glance.list(context, &filters, marker, limit).await,
        }
    }

    /// Returns an image.
    ///
    /// # Errors
    /// 404 unless the caller can see it.
    pub async fn show(&self, context: &Context, id: ImageId) -> Result<ImageRecord, Refusal> {
        match self {
            Self::Elsewhere => Err(missing()),
            Self::Own(images) => images.show(context, id).await.map_err(own_refusal),
            Self::Glance(glance) => glance.show(context, id).await,
        }
    }

    /// Changes the properties of an image. `change` may run more than once.
    ///
    /// # Errors
    /// 403, 404 and exceeded limits, as the service reports them.
    pub async fn change_properties<F>(
        &self,
        context: &Context,
        id: ImageId,
        change: F,
    ) -> Result<ImageRecord, Refusal>
    where
        F: Fn(&mut Properties) + Send + 'static,
    {
        match self {
            Self::Elsewhere => Err(missing()),
            Self::Own(images) => {
                let change = move |properties: &mut Properties| {
                    change(properties);
                    Ok(())
                };
                images.change_properties(context, id, change).await.map_err(own_refusal)
            }
            Self::Glance(glance) => glance.change_properties(context, id, change).await,
        }
    }

    /// Deletes an image.
    ///
    /// # Errors
    /// 403 if the image is protected or not the caller's, 404 if it does not exist, 409 if it is in use.
    pub async fn delete(&self, context: &Context, id: ImageId) -> Result<(), Refusal> {
        let forbidden = || Refusal::forbidden("You are not allowed to delete the image.");
        match self {
            Self::Elsewhere => Err(missing()),
            Self::Own(images) => images.delete(context, id).await.map_err(|error| match error {
                OwnError::Forbidden(_) => forbidden(),
                error => own_refusal(error),
            }),
            Self::Glance(glance) => {
                let caller = caller(context)?;
                match glance.client.delete((caller, request_id(context).as_deref()), id).await {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(missing()),
                    Err(CallError::NotAuthorized(_)) => Err(forbidden()),
                    Err(error) => Err(refused(error)),
                }
            }
        }
    }

    /// The URL of the external Glance, for links; `None` for our own service.
    pub async fn location(&self) -> Option<String> {
        match self {
            Self::Elsewhere | Self::Own(_) => None,
            Self::Glance(glance) => glance.client.location().await,
        }
    }
}

impl CloudGlance {
    async fn list(
        &self,
        context: &Context,
        filters: &ImageFilters,
        marker: Option<ImageId>,
        limit: usize,
    ) -> Result<(Vec<ImageRecord>, bool), Refusal> {
        let caller = caller(context)?;
        let mut query: Vec<(&str, String)> = vec![("limit", limit.max(1).to_string())];
        query.extend(marker.map(|marker| ("marker", marker.to_string())));
        query.extend(filters.names.iter().map(|name| ("name", name.clone())));
        query.extend(filters.statuses.iter().map(|status| ("status", status.clone())));
        query.extend(filters.min_ram.map(|least| ("min_ram", least.to_string())));
        query.extend(filters.min_disk.map(|least| ("min_disk", least.to_string())));
        let since = filters.changed_since.map(|since| format!("gte:{}", time::zulu(since)));
        query.extend(since.map(|since| ("updated_at", since)));
        query.extend(filters.properties.iter().map(|(key, value)| (&**key, value.clone())));
        let query: Vec<(&str, &str)> = query.iter().map(|(key, value)| (*key, &**value)).collect();
        let request_id = request_id(context);
        let listed = self.client.list((caller, request_id.as_deref()), &query, limit).await;
        match listed {
            Ok((images, more)) => Ok((images.into_iter().map(record).collect(), more)),
            // Nova's answer for an unknown marker.
            Err(CallError::NotFound(_)) if marker.is_some() => {
                let marker = marker.unwrap_or_default();
                Err(Refusal::bad_request(format!("marker [{marker}] not found")))
            }
            Err(error) => Err(refused(error)),
        }
    }

    async fn show(&self, context: &Context, id: ImageId) -> Result<ImageRecord, Refusal> {
        let caller = caller(context)?;
        let shown = self.client.show((caller, request_id(context).as_deref()), id).await;
        shown.map(record).map_err(refused)
    }

    async fn change_properties(
        &self,
        context: &Context,
        id: ImageId,
        change: impl Fn(&mut Properties),
    ) -> Result<ImageRecord, Refusal> {
        let caller = caller(context)?;
        let before = self.show(context, id).await?;
        let mut properties = before.properties.clone();
        change(&mut properties);
        let operations = patch(&before.properties, &properties)?;
        if operations.is_empty() {
            return Ok(before);
        }
        let by = (caller, request_id(context));
        let by = (by.0, by.1.as_deref());
        let changed = self.client.patch(by, id, &Value::Array(operations)).await;
        changed.map(record).map_err(refused)
    }
}

/// The JSON patch from one set of properties to another.
fn patch(before: &Properties, after: &Properties) -> Result<Vec<Value>, Refusal> {
    let path = |key: &str| format!("/{}", key.replace('~', "~0").replace('/', "~1"));
    let mut operations = Vec::new();
    for (key, value) in after {
        let op = match before.get(key) {
            Some(known) if known == value => continue,
            Some(_) => "replace",
            None => "add",
        };
        if is_attribute(key) {
            let key = key.escape_debug();
            let why = format!("{key} is an attribute of an image, which metadata cannot change.");
            return Err(Refusal::bad_request(why));
        }
        operations.push(json!({"op": op, "path": path(key), "value": value}));
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        operations.push(json!({"op": "remove", "path": path(key)}));
    }
    Ok(operations)
}

/// The caller, identified by the request's token.
fn caller(context: &Context) -> Result<Caller<'_>, Refusal> {
    let token = context.token.as_ref().map(Caller::User);
    let why = "The request has no token that the image service could check.";
    token.ok_or_else(|| Refusal::unauthorized(why))
}

fn request_id(context: &Context) -> Option<String> {
    context.request_id.map(|_| context.request_id_text())
}

fn missing() -> Refusal {
    Refusal::not_found("Image not found.")
}

pub(super) fn own_refusal(error: OwnError) -> Refusal {
    match error {
        OwnError::NotFound(_) => missing(),
        OwnError::TooLarge(why) => Refusal::forbidden(why),
        other => other.into(),
    }
}

fn refused(error: CallError) -> Refusal {
    match error {
        CallError::NotFound(_) => missing(),
        other => match refusal(other) {
            Error::Refused(refusal) => *refusal,
            other => other.into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_has_each_change_of_a_property_and_no_attribute() {
        let of = |pairs: &[(&str, &str)]| -> Properties {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let before = of(&[("a/b", "1"), ("stays", "1"), ("~", "1"), ("changes", "1")]);
        let after = of(&[("new", "2"), ("stays", "1"), ("changes", "2")]);
        assert_eq!(
            Value::Array(patch(&before, &after).expect("it is valid")),
            json!([
                {"op": "replace", "path": "/changes", "value": "2"},
                {"op": "add", "path": "/new", "value": "2"},
                {"op": "remove", "path": "/a~1b"},
                {"op": "remove", "path": "/~0"},
            ])
        );
        for key in ["visibility", "owner", "virtual_size"] {
            let refused = patch(&before, &of(&[(key, "public")])).expect_err("it is refused");
            assert!(refused.message.contains(key), "{}", refused.message);
        }
    }
}
