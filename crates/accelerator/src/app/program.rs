//! Programming a deployable: checks of the request, and the result of the order.

use kilonova_ids::{ImageId, OperationId, parse_uuid_like};
use kilonova_store::Tx;
use serde_json::Value;

use super::grammar::shown;
use crate::Error;
use crate::db::orders;
use crate::states::OrderState;

const INTERNAL: [&str; 7] =
    ["/created_at", "/id", "/links", "/name", "/num_accelerators", "/updated_at", "/uuid"];

/// Checks the steps of `PATCH /v2/deployables/{uuid}/program`.
pub(crate) fn check(body: &Value) -> Result<ImageId, Error> {
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
        Some(text) => parse_uuid_like(text)
            .map_or_else(|| wrong(format!("Expected a uuid but received {}.", shown(text))), Ok),
        None => wrong("The value of /program must be a list of one object with image_uuid.".into()),
    }
}

/// The result of an order; `None` while it is open.
pub(crate) fn ended(
    tx: &mut Tx<'_>,
    order: OperationId,
) -> Result<Option<Result<(), String>>, Error> {
    let row = orders::by_uuid(tx, order)?
        .ok_or_else(|| Error::not_found("Device order", "uuid", order))?;
    Ok(match row.state {
        OrderState::Open => None,
        OrderState::Done => Some(Ok(())),
        OrderState::Failed => Some(Err(row.message.unwrap_or_default())),
    })
}
