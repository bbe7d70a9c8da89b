//! The server actions that pages offer, from the compute service's table of actions.
//!
//! The table decides when an action is allowed and by which rule. This file only adds how a page requests it.

use kilonova_compute_app::Compute;
use kilonova_compute_app::actions::ServerAction;
use kilonova_compute_app::states::State;
use kilonova_wire::Context;
use serde_json::{Value, json};

use crate::texts;

/// The question that a page asks before it requests an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Nothing: the action loses nothing and can be undone.
    Nothing,
    /// A confirmation of what is lost or interrupted.
    Confirm(&'static str),
    /// A name for the image.
    ImageName,
    /// Another flavor.
    Flavor,
    /// A new name and description.
    Name,
    /// The name of a backup, its kind, and how many are kept.
    Backup,
    /// A network, or a port that belongs to no server.
    Network,
    /// One of the server's ports.
    Port,
    /// The id of a volume.
    Volume,
    /// One of the server's volumes.
    Attached,
    /// All metadata of the server.
    Metadata,
    /// All tags of the server.
    Tags,
}

impl Ask {
    /// A sentence about what is lost.
    pub fn loses(self) -> Option<&'static str> {
        match self {
            Self::Confirm(loses) => Some(loses),
            Self::Backup => Some(texts::BACKUP_LOSES),
            Self::Port => Some(texts::DETACH_PORT_LOSES),
            Self::Attached => Some(texts::DETACH_VOLUME_LOSES),
            Self::Nothing
            | Self::ImageName
            | Self::Flavor
            | Self::Name
            | Self::Network
            | Self::Volume
            | Self::Metadata
            | Self::Tags => None,
        }
    }
}

/// An action as pages offer it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer {
    /// The action.
    pub action: ServerAction,
    /// The group of its button.
    pub group: Group,
    /// Its name in URLs.
    pub slug: &'static str,
    /// Its name on buttons.
    pub label: &'static str,
    /// The question that is asked before it.
    pub ask: Ask,
    /// True if it is shown as dangerous.
    pub danger: bool,
}

/// The groups of buttons on a server's page, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    /// The state of its guest.
    State,
    /// Its images and its flavor.
    Image,
    /// Its ports, volumes, name, metadata, tags and lock.
    Details,
    /// Moves and repairs, for administrators.
    Admin,
    /// Its deletion.
    Removal,
}

impl Group {
    /// Its label.
    pub fn label(self) -> &'static str {
        match self {
            Self::State => texts::ACTIONS_STATE,
            Self::Image => texts::ACTIONS_IMAGE,
            Self::Details => texts::ACTIONS_DETAILS,
            Self::Admin => texts::ACTIONS_ADMIN,
            Self::Removal => texts::ACTIONS_REMOVAL,
        }
    }
}

const fn plain(
    action: ServerAction,
    group: Group,
    slug: &'static str,
    label: &'static str,
) -> Offer {
    Offer { action, group, slug, label, ask: Ask::Nothing, danger: false }
}

const fn asking(
    action: ServerAction,
    group: Group,
    slug: &'static str,
    label: &'static str,
    ask: Ask,
) -> Offer {
    Offer { action, group, slug, label, ask, danger: false }
}

const fn dangerous(
    action: ServerAction,
    group: Group,
    slug: &'static str,
    label: &'static str,
    loses: &'static str,
) -> Offer {
    Offer { action, group, slug, label, ask: Ask::Confirm(loses), danger: true }
}

/// The actions, in the order of their buttons: by group.
pub(crate) const OFFERS: &[Offer] = &[
    plain(ServerAction::Start, Group::State, "start", texts::START),
    plain(ServerAction::Unpause, Group::State, "unpause", texts::UNPAUSE),
    plain(ServerAction::Resume, Group::State, "resume", texts::RESUME),
    plain(ServerAction::Unshelve, Group::State, "unshelve", texts::UNSHELVE),
    plain(ServerAction::Unrescue, Group::State, "unrescue", texts::UNRESCUE),
    plain(ServerAction::Restore, Group::State, "restore", texts::RESTORE),
    asking(ServerAction::Stop, Group::State, "stop", texts::STOP, Ask::Confirm(texts::STOP_LOSES)),
    asking(
        ServerAction::Reboot,
        Group::State,
        "reboot",
        texts::REBOOT,
        Ask::Confirm(texts::REBOOT_LOSES),
    ),
    asking(
        ServerAction::RebootHard,
        Group::State,
        "hard-reboot",
        texts::HARD_REBOOT,
        Ask::Confirm(texts::HARD_REBOOT_LOSES),
    ),
    plain(ServerAction::Pause, Group::State, "pause", texts::PAUSE),
    plain(ServerAction::Suspend, Group::State, "suspend", texts::SUSPEND),
    asking(
        ServerAction::Rescue,
        Group::State,
        "rescue",
        texts::RESCUE,
        Ask::Confirm(texts::RESCUE_LOSES),
    ),
    asking(
        ServerAction::Shelve,
        Group::State,
        "shelve",
        texts::SHELVE,
        Ask::Confirm(texts::SHELVE_LOSES),
    ),
    asking(
        ServerAction::ConfirmResize,
        Group::Image,
        "confirm-resize",
        texts::CONFIRM_RESIZE,
        Ask::Confirm(texts::CONFIRM_RESIZE_LOSES),
    ),
    asking(
        ServerAction::RevertResize,
        Group::Image,
        "revert-resize",
        texts::REVERT_RESIZE,
        Ask::Confirm(texts::REVERT_RESIZE_LOSES),
    ),
    asking(ServerAction::CreateImage, Group::Image, "snapshot", texts::SNAPSHOT, Ask::ImageName),
    asking(ServerAction::CreateBackup, Group::Image, "backup", texts::BACKUP, Ask::Backup),
    asking(ServerAction::Resize, Group::Image, "resize", texts::RESIZE, Ask::Flavor),
    dangerous(ServerAction::Rebuild, Group::Image, "rebuild", texts::REBUILD, texts::REBUILD_LOSES),
    asking(
        ServerAction::AttachInterface,
        Group::Details,
        "attach-port",
        texts::ATTACH_PORT,
        Ask::Network,
    ),
    asking(
        ServerAction::DetachInterface,
        Group::Details,
        "detach-port",
        texts::DETACH_PORT,
        Ask::Port,
    ),
    asking(
        ServerAction::AttachVolume,
        Group::Details,
        "attach-volume",
        texts::ATTACH_VOLUME,
        Ask::Volume,
    ),
    asking(
        ServerAction::DetachVolume,
        Group::Details,
        "detach-volume",
        texts::DETACH_VOLUME,
        Ask::Attached,
    ),
    asking(ServerAction::Update, Group::Details, "rename", texts::RENAME, Ask::Name),
    asking(
        ServerAction::ChangeMetadata,
        Group::Details,
        "metadata",
        texts::CHANGE_METADATA,
        Ask::Metadata,
    ),
    asking(ServerAction::ChangeTags, Group::Details, "tags", texts::CHANGE_TAGS, Ask::Tags),
    plain(ServerAction::Lock, Group::Details, "lock", texts::LOCK),
    plain(ServerAction::Unlock, Group::Details, "unlock", texts::UNLOCK),
    plain(ServerAction::LiveMigrate, Group::Admin, "live-migrate", texts::LIVE_MIGRATE),
    asking(
        ServerAction::Migrate,
        Group::Admin,
        "migrate",
        texts::MIGRATE,
        Ask::Confirm(texts::MIGRATE_LOSES),
    ),
    asking(
        ServerAction::AbortLiveMigration,
        Group::Admin,
        "abort-migration",
        texts::ABORT_MIGRATION,
        Ask::Confirm(texts::ABORT_MIGRATION_LOSES),
    ),
    asking(
        ServerAction::ForceComplete,
        Group::Admin,
        "complete-migration",
        texts::COMPLETE_MIGRATION,
        Ask::Confirm(texts::COMPLETE_MIGRATION_LOSES),
    ),
    plain(ServerAction::ShelveOffload, Group::Admin, "offload", texts::OFFLOAD),
    asking(
        ServerAction::Evacuate,
        Group::Admin,
        "evacuate",
        texts::EVACUATE,
        Ask::Confirm(texts::EVACUATE_LOSES),
    ),
    asking(
        ServerAction::ResetState,
        Group::Admin,
        "reset-state",
        texts::RESET_STATE,
        Ask::Confirm(texts::RESET_STATE_LOSES),
    ),
    dangerous(ServerAction::Delete, Group::Removal, "delete", texts::DELETE, texts::DELETE_LOSES),
    dangerous(
        ServerAction::ForceDelete,
        Group::Removal,
        "force-delete",
        texts::FORCE_DELETE,
        texts::DELETE_LOSES,
    ),
];

/// The action with this name in URLs.
pub(crate) fn by_slug(slug: &str) -> Option<&'static Offer> {
    OFFERS.iter().find(|offer| offer.slug == slug)
}

/// The actions that the server's state allows and that the user may perform, in the order of buttons.
///
/// The services decide again when the action is requested; this only hides actions that they would refuse.
pub(crate) fn offered(compute: &Compute, user: &Context, server: &Value) -> Vec<&'static Offer> {
    let text = |key: &str| server[key].as_str().unwrap_or_default();
    let state = State {
        vm_state: text("OS-EXT-STS:vm_state"),
        task_state: server["OS-EXT-STS:task_state"].as_str(),
        locked: server["locked"].as_bool().unwrap_or(false),
        launched: !server["OS-SRV-USG:launched_at"].is_null(),
        // All users see the host id, which a server without a host lacks.
        on_host: !text("hostId").is_empty(),
    };
    let target = [
        ("project_id", text("tenant_id")),
        ("tenant_id", text("tenant_id")),
        ("user_id", text("user_id")),
    ];
    let admin = compute.policy.allows(user, "context_is_admin", &target);
    let fits = |offer: &&Offer| {
        let rule = rule_of(offer.action);
        // A server is evacuated only after its host has failed.
        let failed = text("host_status") != "UP";
        // Actions without an effect are not offered.
        let useful = match offer.action {
            ServerAction::Lock => !state.locked,
            ServerAction::Unlock => state.locked,
            ServerAction::Evacuate => failed,
            ServerAction::Rebuild => server["image"]["id"].is_string(),
            ServerAction::DetachInterface => has_any(&server["addresses"]),
            ServerAction::AttachVolume => compute.volumes.is_some(),
            ServerAction::DetachVolume => has_any(&server["os-extended-volumes:volumes_attached"]),
            // Only a soft-deleted server, which can still be restored, needs a forced deletion.
            ServerAction::ForceDelete => state.vm_state == "soft-delete",
            // The state of a server that is neither failed nor busy needs no reset.
            ServerAction::ResetState => state.vm_state == "error" || state.task_state.is_some(),
            _ => true,
        };
        useful
            && state.forbids(offer.action, admin).is_none()
            && rule.is_none_or(|rule| compute.policy.allows(user, rule, &target))
    };
    OFFERS.iter().filter(fits).collect()
}

/// The policy rule for an action as pages request it.
fn rule_of(action: ServerAction) -> Option<&'static str> {
    match action {
        // Pages replace all metadata.
        ServerAction::ChangeMetadata => Some("os_compute_api:server-metadata:update_all"),
        _ => action.row().rules.first().map(|rule| rule.name),
    }
}

/// True for a list or an object with a member.
fn has_any(value: &Value) -> bool {
    value.as_array().is_some_and(|all| !all.is_empty())
        || value.as_object().is_some_and(|all| !all.is_empty())
}

/// The body of `POST /servers/{id}/action`; `None` for an action with a route of its own, or if the form lacks a value
/// that the action needs.
pub(crate) fn body(
    offer: &Offer,
    server: &Value,
    given: impl Fn(&str) -> Option<String>,
) -> Option<Value> {
    let key = offer.action.row().key();
    Some(match offer.action {
        ServerAction::Reboot => json!({"reboot": {"type": "SOFT"}}),
        ServerAction::RebootHard => json!({"reboot": {"type": "HARD"}}),
        ServerAction::CreateImage => json!({"createImage": {"name": given("name")?}}),
        ServerAction::CreateBackup => json!({"createBackup": {
            "name": given("name")?,
            "backup_type": given("kind")?,
            "rotation": given("keep")?.parse::<u32>().ok()?,
        }}),
        ServerAction::Resize => json!({"resize": {"flavorRef": given("flavor")?}}),
        ServerAction::Rebuild => json!({"rebuild": {"imageRef": server["image"]["id"]}}),
        ServerAction::LiveMigrate => {
            json!({"os-migrateLive": {"host": null, "block_migration": "auto"}})
        }
        ServerAction::Migrate => json!({"migrate": null}),
        ServerAction::Evacuate => json!({"evacuate": {}}),
        ServerAction::ResetState => {
            let failed = server["OS-EXT-STS:vm_state"] == "error";
            json!({"os-resetState": {"state": if failed { "active" } else { "error" }}})
        }
        _ => {
            let key = key?;
            json!({key: null})
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_action_has_a_name_of_its_own() {
        let slugs: BTreeSet<_> = OFFERS.iter().map(|offer| offer.slug).collect();
        let labels: BTreeSet<_> = OFFERS.iter().map(|offer| offer.label).collect();
        assert_eq!((slugs.len(), labels.len()), (OFFERS.len(), OFFERS.len()));
        assert!(OFFERS.is_sorted_by_key(|offer| offer.group), "a group has one row of buttons");
        for offer in OFFERS {
            assert!(!offer.action.row().rules.is_empty(), "{} has a rule", offer.slug);
            assert_eq!(by_slug(offer.slug).map(|found| found.action), Some(offer.action));
        }
    }

    #[test]
    fn every_offer_without_a_route_of_its_own_has_a_body() {
        let server = json!({"image": {"id": "i"}});
        let routed = [
            ServerAction::Delete,
            ServerAction::AbortLiveMigration,
            ServerAction::ForceComplete,
            ServerAction::AttachInterface,
            ServerAction::DetachInterface,
            ServerAction::AttachVolume,
            ServerAction::DetachVolume,
            ServerAction::Update,
            ServerAction::ChangeMetadata,
            ServerAction::ChangeTags,
        ];
        let given =
            |name: &str| Some(if name == "keep" { "7".into() } else { format!("a {name}") });
        for offer in OFFERS {
            let body = body(offer, &server, given);
            assert_eq!(body.is_none(), routed.contains(&offer.action), "{}", offer.slug);
        }
        let reset = by_slug("reset-state").expect("it is offered");
        for (state, becomes) in [("error", "active"), ("active", "error")] {
            let body = body(reset, &json!({"OS-EXT-STS:vm_state": state}), |_| None);
            assert_eq!(body, Some(json!({"os-resetState": {"state": becomes}})));
        }
        let snapshot = by_slug("snapshot").expect("it is offered");
        assert_eq!(body(snapshot, &server, |_| None), None, "it has no name");
        let backup = by_slug("backup").expect("it is offered");
        for wrong in ["-1", "many", "4294967296"] {
            let given = |name: &str| Some(if name == "keep" { wrong } else { "daily" }.to_owned());
            assert_eq!(body(backup, &server, given), None, "{wrong}");
        }
    }
}
