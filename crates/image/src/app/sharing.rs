//! Sharing images with projects. Only the owner adds members; each member project accepts or rejects
//! the image for its lists. The policy cannot change this. Glance without `enforce_new_defaults`
//! enforces the same (`_check_visibility_and_ownership` of `glance/api/v2/image_members.py`).

use kilonova_ids::ImageId;
use kilonova_store::Tx;
use kilonova_wire::{Context, time};

use super::{Requester, VisibleImage, readable};
use crate::db::members;
use crate::{Acceptance, Error, Images, Member, Visibility};

/// One image that the caller may read. Refused unless it is shared, because other images have no members.
fn shared(
    tx: &mut Tx<'_>,
    caller: &Requester,
    id: ImageId,
    otherwise: &str,
) -> Result<VisibleImage, Error> {
    let seen = readable(tx, caller, id)?;
    if seen.image.visibility == Visibility::Shared {
        return Ok(seen);
    }
    Err(Error::Forbidden(format!("{otherwise} {id}: Only shared images have members.")))
}

/// One member, if the caller may see it. The image's owner and administrators see every member;
/// other callers see only their own project.
fn member(
    tx: &mut Tx<'_>,
    caller: &Requester,
    seen: &VisibleImage,
    project: &str,
) -> Result<Member, Error> {
    let id = seen.image.id;
    if !caller.allows("get_member", &seen.image, seen.member.as_deref()) {
        return Err(Error::Forbidden(format!(
            "You are not authorized to lookup the members of the image {id}."
        )));
    }
    let own = caller.context.may_see(&seen.image.owner) || caller.context.project_id == project;
    let found = if own { members::one(tx, id, project)? } else { None };
    found.ok_or_else(|| Error::NoMember(project.escape_debug().to_string(), id))
}

impl Images {
    pub(crate) async fn add_member(
        &self,
        context: &Context,
        id: ImageId,
        project: String,
    ) -> Result<Member, Error> {
        const REFUSED: &str = "Not allowed to create members for image";
        let caller = self.requester(context);
        self.store
            .write(move |tx| {
                let seen = shared(tx, &caller, id, REFUSED)?;
                let owns = caller.context.may_see(&seen.image.owner);
                if !owns || !caller.allows("add_member", &seen.image, seen.member.as_deref()) {
                    return Err(Error::Forbidden(format!("{REFUSED} {id}.")));
                }
                // Serializes concurrent additions on the owner's row.
                crate::db::images::lock_owner(tx, &seen.image.owner)?;
                if members::one(tx, id, &project)?.is_some() {
                    return Err(Error::Conflict(format!(
                        "Member {} is duplicated for image {id}",
                        project.escape_debug()
                    )));
                }
                let attempted = members::count(tx, id)? + 1;
                if let Some(most) = caller.options.members.filter(|most| attempted > *most as i64) {
                    return Err(Error::TooLarge(format!(
                        "Image member limit exceeded for image {id}: The limit has been exceeded on \
                         the number of allowed image members for this image. Attempted: {attempted}, \
                         Maximum: {most}"
                    )));
                }
                let now = time::now();
                let member = Member {
                    project: project.clone(),
                    status: Acceptance::Pending,
                    created_at: now,
                    updated_at: now,
                };
                members::insert(tx, id, &member)?;
                Ok(member)
            })
            .await
    }

    pub(crate) async fn members(
        &self,
        context: &Context,
        id: ImageId,
    ) -> Result<Vec<Member>, Error> {
        const REFUSED: &str = "Not allowed to list members for image";
        let caller = self.requester(context);
        self.store
            .read(move |tx| {
                let seen = shared(tx, &caller, id, REFUSED)?;
                if !caller.allows("get_members", &seen.image, seen.member.as_deref()) {
                    return Err(Error::Forbidden(format!("{REFUSED} {id}.")));
                }
                if caller.context.may_see(&seen.image.owner) {
                    return Ok(members::of_image(tx, id)?);
                }
                Ok(members::one(tx, id, &caller.context.project_id)?.into_iter().collect())
            })
            .await
    }

    pub(crate) async fn member(
        &self,
        context: &Context,
        id: ImageId,
        project: String,
    ) -> Result<Member, Error> {
        let caller = self.requester(context);
        let found = self
            .store
            .read(move |tx| {
                let seen = shared(tx, &caller, id, "Not allowed to show members for image")?;
                member(tx, &caller, &seen, &project)
            })
            .await;
        match found {
            Err(Error::Forbidden(_)) => Err(Error::NotFound(id.to_string())),
            found => found,
        }
    }

    pub(crate) async fn set_member_status(
        &self,
        context: &Context,
        id: ImageId,
        project: String,
        status: Acceptance,
    ) -> Result<Member, Error> {
        const REFUSED: &str = "Not allowed to update members for image";
        let caller = self.requester(context);
        self.store
            .write(move |tx| {
                let seen = shared(tx, &caller, id, REFUSED)?;
                let mut member = member(tx, &caller, &seen, &project)?;
                let context = &caller.context;
                let owns = !context.is_admin() && context.project_id == seen.image.owner;
                if owns || !caller.allows("modify_member", &seen.image, Some(&project)) {
                    return Err(Error::Forbidden(format!("{REFUSED} {id}.")));
                }
                (member.status, member.updated_at) = (status, time::now());
                members::set_status(tx, id, &project, status, member.updated_at)?;
                Ok(member)
            })
            .await
    }

    pub(crate) async fn remove_member(
        &self,
        context: &Context,
        id: ImageId,
        project: String,
    ) -> Result<(), Error> {
        const REFUSED: &str = "Not allowed to delete members for image";
        let caller = self.requester(context);
        self.store
            .write(move |tx| {
                let seen = shared(tx, &caller, id, REFUSED)?;
                member(tx, &caller, &seen, &project)?;
                let owns = caller.context.may_see(&seen.image.owner);
                if !owns || !caller.allows("delete_member", &seen.image, seen.member.as_deref()) {
                    return Err(Error::Forbidden(format!("{REFUSED} {id}.")));
                }
                members::delete(tx, id, &project)?;
                Ok(())
            })
            .await
    }
}
