//! `os-start`, `os-stop`, `reboot`.

use std::sync::LazyLock;

use axum::response::Response;
use kilonova_wire::Fault;
use kilonova_wire::schema::Schema;
use serde_json::{Value, json};

use super::Asked;
use crate::flows::{PowerCommand, change_power};

static REBOOT: LazyLock<Schema> = LazyLock::new(|| {
    Schema::new(&json!({
        "properties": {"reboot": {
            "type": "object",
            "properties": {
                "type": {"type": "string", "enum": ["HARD", "Hard", "hard", "SOFT", "Soft", "soft"]},
            },
            "required": ["type"],
            "additionalProperties": false,
        }},
    }))
});

pub(super) async fn act(asked: Asked) -> Result<Response, Fault> {
    let change = match asked.name.as_str() {
        "reboot" => reboot(&asked.argument)?,
        other => {
            asked.nothing()?;
            if other == "os-start" { PowerCommand::Start } else { PowerCommand::Stop }
        }
    };
    asked
        .begin(move |tx, asked, server, now| {
            change_power(tx, &asked.compute, &asked.context, server, change, now)
        })
        .await
}

fn reboot(argument: &Value) -> Result<PowerCommand, Fault> {
    REBOOT.check(&json!({"reboot": argument}))?;
    let is_hard = argument["type"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("HARD"));
    Ok(if is_hard { PowerCommand::RebootHard } else { PowerCommand::RebootSoft })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reboot_names_its_type_and_nothing_else() {
        assert!(matches!(reboot(&json!({"type": "Hard"})), Ok(PowerCommand::RebootHard)));
        assert!(matches!(reboot(&json!({"type": "SOFT"})), Ok(PowerCommand::RebootSoft)));
        for wrong in [
            json!(null),
            json!({}),
            json!({"type": "warm"}),
            json!({"type": "hArD"}),
            json!({"type": "SOFT", "wait": true}),
        ] {
            assert!(reboot(&wrong).is_err_and(|fault| fault.status == 400), "{wrong}");
        }
    }
}
