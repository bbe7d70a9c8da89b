//! The image of a snapshot: created before its operation begins, filled by the host.
//!
//! ```text
//!   row creating ─► POST ─► operation (adopts the image) ─► PATCH, PUT ─► row complete
//! ```
//!
//! If the controller crashes before the operation begins, the sweep deletes the image. If it crashes during
//! the upload, the host sends the disk again, or the operation fails and discards the image.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::PoisonError;

use jiff::SignedDuration;
use kilonova_compute_db::glance_images;
use kilonova_compute_db::servers::Server;
use kilonova_glance::{Error as CallError, Image, Uploaded};
use kilonova_ids::ImageId;
use kilonova_image::ImageData;
use kilonova_keystone::Caller;
use kilonova_store::{Store, Tx};
use kilonova_wire::{Context, time};
use serde_json::{Value, json};

use super::{CloudGlance, refusal};
use crate::Error;
use crate::images::of_volumes::{VolumesImage, inherited};
use crate::images::{Snapshot, Transfer, owner};

/// How long the request that creates an image may take before the sweep deletes the image.
const ABANDONED: SignedDuration = SignedDuration::from_mins(15);
/// A request without an answer may still arrive within this time.
const LATE: SignedDuration = SignedDuration::from_mins(2);
/// Maximum number of images whose failures are counted.
const MOST_COUNTED: usize = 10_000;

impl CloudGlance {
    /// Creates the image of a snapshot for the caller.
    ///
    /// # Errors
    /// Glance's refusal; 503 if it does not answer.
    pub(in crate::images) async fn create(
        &self,
        store: &Store,
        context: &Context,
        server: &Server,
        request: &Snapshot,
    ) -> Result<ImageId, Error> {
        let image = ImageId::new_v4();
        self.record(store, context, server, image).await?;
        match self.post(context, server, request, image).await {
            Ok(()) => {
                self.tokens.keep(image, context.token.as_ref());
                Ok(image)
            }
            Err(error) => Err(self.take_back(store, image, error).await),
        }
    }

    /// Adds the row of an image that is about to be created.
    async fn record(
        &self,
        store: &Store,
        context: &Context,
        server: &Server,
        image: ImageId,
    ) -> Result<(), Error> {
        let (id, project) = (server.id, owner(context, server).to_owned());
        let add = move |tx: &mut Tx<'_>| {
            let now = time::now();
            let due = time::after(now, ABANDONED);
            Ok::<_, Error>(glance_images::add(tx, image, id, &project, due, now)?)
        };
        store.write(add).await
    }

    /// Marks an image as unwanted after Glance refused to create it, or did not answer and may have created it.
    async fn take_back(&self, store: &Store, image: ImageId, error: CallError) -> Error {
        let is_sent = !matches!(error, CallError::Unavailable { is_sent: false, .. });
        let due = if is_sent { LATE } else { SignedDuration::ZERO };
        self.discard_after(store, image, due).await;
        refusal(error)
    }

    async fn post(
        &self,
        context: &Context,
        server: &Server,
        request: &Snapshot,
        image: ImageId,
    ) -> Result<(), CallError> {
        let request_id = context.request_id.map(|_| context.request_id_text());
        let caller = context.token.as_ref().map_or(Caller::Own, Caller::User);
        let by = (caller, request_id.as_deref());
        let base = match server.spec.image {
            Some(base) => match self.client.show(by, base).await {
                Ok(base) => Some(base),
                Err(CallError::NotFound(_) | CallError::NotAuthorized(_)) => None,
                Err(error) => return Err(error),
            },
            None => None,
        };
        let mut body = self.describe(context, server, request, base.as_ref());
        body["id"] = json!(image);
        if context.token.is_none() {
            body["owner"] = json!(owner(context, server));
        }
        self.client.create(by, image, &body).await?;
        // If a user of another project makes the snapshot, the server's project gets access to it.
        if owner(context, server) != server.project_id {
            self.client.add_member(by, image, &server.project_id).await?;
        }
        Ok(())
    }

    /// The image in Nova's form: without formats, which the host sets.
    fn describe(
        &self,
        context: &Context,
        server: &Server,
        request: &Snapshot,
        base: Option<&Image>,
    ) -> Value {
        let mut properties =
            inherited(&server.spec.image_properties, &self.options.non_inheritable);
        let kind = if request.backup.is_some() { "backup" } else { "snapshot" };
        let mut set = |key: &str, value: &str| properties.insert(key.to_owned(), value.to_owned());
        if let Some(base) = server.spec.image {
            set("base_image_ref", &base.to_string());
        }
        set("instance_uuid", &server.id.to_string());
        set("user_id", &context.user_id);
        set("image_type", kind);
        set("owner_id", &server.project_id);
        for (key, value) in server.spec.creator.snapshot_properties() {
            set(key, &value);
        }
        properties.extend(request.metadata.clone());
        if let Some(backup) = &request.backup {
            properties.insert("backup_type".to_owned(), backup.backup_type.clone());
        }
        let attributes = json!({
            "name": request.name,
            "visibility": visibility(context, server),
            "min_ram": base.map_or(0, |base| base.min_ram),
            "min_disk": base.map_or(0, |base| base.min_disk).max(server.spec.flavor.disk),
        });
        with_properties(attributes, &properties)
    }

    /// Creates an active image that consists only of properties and has no data. The sweep deletes it unless the
    /// caller's transaction adopts it.
    pub(in crate::images) async fn create_empty(
        &self,
        store: &Store,
        context: &Context,
        server: &Server,
        image: &VolumesImage,
    ) -> Result<(), Error> {
        self.record(store, context, server, image.id).await?;
        self.tokens.keep(image.id, context.token.as_ref());
        match self.post_empty(context, server, image).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.take_back(store, image.id, error).await),
        }
    }

    async fn post_empty(
        &self,
        context: &Context,
        server: &Server,
        image: &VolumesImage,
    ) -> Result<(), CallError> {
        let request_id = context.request_id.map(|_| context.request_id_text());
        let caller = context.token.as_ref().map_or(Caller::Own, Caller::User);
        let by = (caller, request_id.as_deref());
        // Glance 33 and later refuse data that does not match the image's format. Empty data matches only `raw`; Nova's
        // `qcow2` results in a 415.
        let attributes = json!({
            "id": image.id, "name": image.name, "visibility": visibility(context, server),
            "disk_format": "raw", "container_format": "bare", "min_ram": 0,
            "min_disk": image.min_disk,
        });
        let mut body = with_properties(attributes, &image.properties);
        if context.token.is_none() {
            body["owner"] = json!(owner(context, server));
        }
        self.client.create(by, image.id, &body).await?;
        if owner(context, server) != server.project_id {
            self.client.add_member(by, image.id, &server.project_id).await?;
        }
        let sent = self.client.upload(by, image.id, ImageData::empty()).await?;
        compare(&self.client.show(by, image.id).await?, &sent)
    }

    /// Marks an image as unwanted outside of the transaction in progress. If that fails too, its row becomes due later
    /// anyway.
    pub(in crate::images) async fn discard_after(
        &self,
        store: &Store,
        image: ImageId,
        delay: SignedDuration,
    ) {
        let discard = move |tx: &mut Tx<'_>| {
            let due = time::after(time::now(), delay);
            Ok::<_, Error>(glance_images::discard(tx, image, due)?)
        };
        if let Err(error) = store.write(discard).await {
            tracing::warn!(%image, %error, "cannot record that an image is unwanted; the sweep deletes it later");
        }
        self.work.notify_one();
    }

    /// A file on this machine, as image data.
    pub(in crate::images) async fn file(&self, path: PathBuf) -> Result<ImageData, Transfer> {
        let shown = path.display().to_string();
        let opened = self.threads.run(move || std::fs::File::open(path)).await;
        let refused = |why: String| Transfer::Refused(format!("{shown}: {why}"));
        let file =
            opened.map_err(|e| refused(e.to_string()))?.map_err(|e| refused(e.to_string()))?;
        Ok(ImageData::file(self.threads.clone(), file))
    }

    /// Receives the bytes of a snapshot from its host.
    pub(in crate::images) async fn receive<D: Into<ImageData>>(
        &self,
        store: &Store,
        image: ImageId,
        format: &str,
        bytes: impl FnOnce() -> D,
    ) -> Result<(), Transfer> {
        let Ok(_slot) = self.snapshots.try_acquire() else {
            let why = "all slots for snapshots are taken; try again";
            return Err(Transfer::Unavailable(why.into()));
        };
        match self.fill(image, format, bytes).await {
            Ok(()) => {
                self.counted(image, false);
            }
            Err(error) => return Err(self.not_filled(image, error)),
        }
        let fill = move |tx: &mut Tx<'_>| Ok::<_, Error>(glance_images::fill(tx, image)?);
        let filled = store.write(fill).await;
        match filled.map_err(|e| Transfer::Unavailable(e.to_string()))? {
            true => Ok(()),
            false => Err(Transfer::Refused(format!("no operation needs image {image} any more"))),
        }
    }

    async fn fill<D: Into<ImageData>>(
        &self,
        image: ImageId,
        format: &str,
        bytes: impl FnOnce() -> D,
    ) -> Result<(), CallError> {
        let token = self.tokens.of(image);
        let token = token.as_ref();
        let show = |caller| self.client.show((caller, None), image);
        let before = Self::for_user(token, show).await?;
        match before.status.as_str() {
            "queued" => {}
            // An earlier upload of the same disk is complete; only its record is missing.
            "active" => return Ok(()),
            other => {
                let why = format!("it is {other}");
                return Err(CallError::Conflict { image, why });
            }
        }
        let operations = json!([
            {"op": "replace", "path": "/disk_format", "value": format},
            {"op": "replace", "path": "/container_format", "value": "bare"},
            {"op": "add", "path": "/image_location", "value": "snapshot"},
            {"op": "add", "path": "/image_state", "value": "available"},
        ]);
        let patch = |caller| self.client.patch((caller, None), image, &operations);
        Self::for_user(token, patch).await?;
        // The bytes can be sent only once, so the user's token is tested first.
        let caller = match token {
            Some(token)
                if self.client.show((Caller::Vouched(token), None), image).await.is_ok() =>
            {
                Caller::Vouched(token)
            }
            Some(_) | None => Caller::Own,
        };
        let sent = self.client.upload((caller, None), image, bytes().into()).await?;
        let stored = Self::for_user(token, show).await?;
        compare(&stored, &sent)
    }

    /// The answer to a host whose upload failed. After more than `num_retries` failures, the operation
    /// fails.
    fn not_filled(&self, image: ImageId, error: CallError) -> Transfer {
        match error {
            CallError::Interrupted { .. } => Transfer::Unavailable(error.to_string()),
            CallError::Unavailable { .. } | CallError::Conflict { .. } => {
                if self.counted(image, true) > self.client.options().retries {
                    self.counted(image, false);
                    return Transfer::Refused(error.to_string());
                }
                Transfer::Unavailable(error.to_string())
            }
            CallError::NotFound(_)
            | CallError::NotAuthorized(_)
            | CallError::Refused { .. }
            | CallError::TooLarge(_)
            | CallError::Damaged { .. }
            | CallError::Unexpected { .. } => Transfer::Refused(error.to_string()),
        }
    }

    /// Counts a failed upload, or resets the failures of an image.
    fn counted(&self, image: ImageId, failed: bool) -> u32 {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if !failed {
            failures.remove(&image);
            return 0;
        }
        if failures.len() >= MOST_COUNTED {
            failures.clear();
        }
        let count = failures.entry(image).or_default();
        *count += 1;
        *count
    }
}

/// The visibility of a caller's snapshot: shared with the server's project if the caller is of another project.
fn visibility(context: &Context, server: &Server) -> &'static str {
    if owner(context, server) == server.project_id { "private" } else { "shared" }
}

/// Adds properties to the attributes of an image. A property cannot replace an attribute.
fn with_properties(mut attributes: Value, properties: &BTreeMap<String, String>) -> Value {
    if let Some(all) = attributes.as_object_mut() {
        for (key, value) in properties {
            all.entry(key.clone()).or_insert(Value::String(value.clone()));
        }
    }
    attributes
}

/// Compares the stored data with the sent data.
fn compare(stored: &Image, sent: &Uploaded) -> Result<(), CallError> {
    let damaged = |why: String| Err(CallError::Damaged { image: stored.id, why });
    if !stored.is_active() {
        return damaged(format!("it is {} after the upload", stored.status));
    }
    if let Some(size) = stored.size.filter(|size| u64::try_from(*size) != Ok(sent.size)) {
        return damaged(format!("{} bytes were sent, but {size} are stored", sent.size));
    }
    let hash = stored.hash.as_ref().filter(|hash| hash.algorithm == "sha512");
    if hash.is_some_and(|hash| !hash.value.eq_ignore_ascii_case(&sent.sha512)) {
        return damaged("the SHA-512 hash differs".into());
    }
    if stored.checksum.as_ref().is_some_and(|md5| !md5.eq_ignore_ascii_case(&sent.md5)) {
        return damaged("the MD5 checksum differs".into());
    }
    Ok(())
}
