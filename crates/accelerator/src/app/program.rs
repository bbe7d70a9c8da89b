//! Programming a deployable: the checks of the request, and the refusal.

use kilonova_ids::{DeployableId, parse_uuid_like};
use kilonova_store::Tx;
use serde_json::Value;
use uuid::Uuid;

use super::grammar::shown;
use crate::Error;
use crate::db::deployables;

const INTERNAL: [&str; 7] =
    ["/created_at", "/id", "/links", "/name", "/num_accelerators", "/updated_at", "/uuid"];

/// Checks the steps of `PATCH /v2/deployables/{uuid}/program`.
pub(crate) fn check(body: &Value) -> Result<(), Error> {
    let wrong = |text: String| Err(Error::Invalid(text));
    let Some(steps) = body.as_array() else {
        return wrong("The body must be a list of steps.".into());
    };
    for step in steps {
        let op = step.get("op").and_then(Value::as_str).unwrap_or_default();
        if !["replace", "remove", "add"].contains(&op) {
            return wrong(format!(
                "Invalid input for field/attribute op. Value: '{}'. Value should be one of: \
                 replace, remove, add",
                shown(op)
            ));
        }
        let path = step.get("path").and_then(Value::as_str).unwrap_or_default();
        if INTERNAL.contains(&path) {
            return wrong(format!("'{path}' is an internal attribute and can not be updated"));
        }
        if path != "/program" {
            return wrong(format!("{} cannot be programmed, only /program can", shown(path)));
        }
    }
    let Some(first) = steps.first() else {
        return wrong("The list of steps is empty: name an image to program.".into());
    };
    let image = first.get("value").and_then(|value| value.get(0)?.get("image_uuid")?.as_str());
    match image {
        Some(text) if parse_uuid_like::<Uuid>(text).is_some() => Ok(()),
        Some(text) => wrong(format!("Expected a uuid but received {}.", shown(text))),
        None => wrong("The value of /program must be a list of one object with image_uuid.".into()),
    }
}

/// Why the deployable cannot be programmed.
pub(crate) fn refusal(tx: &mut Tx<'_>, uuid: DeployableId) -> Result<Error, Error> {
    let row = deployables::by_uuid(tx, uuid)?
        .ok_or_else(|| Error::not_found("Deployable", "uuid", uuid))?;
    Ok(Error::NotProgrammable { uuid, driver: row.driver })
}
