//! A plan as a text page.

use serde_json::Value;

use crate::operate::text::{list, of, plain, row, table};

/// Formats the page.
pub fn page(plan: &Value) -> String {
    let mut page = String::new();
    let moves: Vec<&Value> = list(&plan["moves"]).collect();
    if moves.is_empty() {
        page.push_str(&format!("No moves. {}\n", of(&plan["reason"])));
    } else {
        let mut rows = vec![row(["", "server", "id", "from", "to", "memory"])];
        for (at, one) in moves.iter().enumerate() {
            rows.push(vec![
                (at + 1).to_string(),
                of(&one["name"]),
                of(&one["server"]),
                of(&one["from"]),
                of(&one["to"]),
                format!("{} MiB", of(&one["memory_mb"])),
            ]);
        }
        page.push_str(&format!("Live migrations, one after the other\n{}", table(&rows)));
    }
    if let Some(saved) = plan["saved_devices"].as_f64() {
        page.push_str(&format!("\nThey save the cost of {saved:.1} free devices.\n"));
    }
    page.push_str(&gains(plan));
    let drain = &plan["drain"];
    if !drain.is_null() {
        page.push_str(&format!(
            "\nA drain of {} ({} server(s)) makes room for {} more.\n",
            of(&drain["host"]),
            of(&drain["servers"]),
            of(&drain["gain"])
        ));
    }
    if let Some(reached) = plan["limits"]["reached"].as_str() {
        page.push_str(&format!("\nNo move can begin now: {}\n", plain(reached)));
    }
    page
}

/// The flavors of a plan, with the number of servers that it gains.
fn gains(plan: &Value) -> String {
    let mut rows = vec![row(["flavor", "servers that fit now", "after the moves"])];
    for flavor in list(&plan["flavors"]) {
        rows.push(vec![
            of(&flavor["name"]),
            of(&flavor["servers_before"]),
            match flavor["servers_after"].as_u64() {
                Some(after) => after.to_string(),
                None => format!("{:+}", flavor["gain"].as_i64().unwrap_or_default()),
            },
        ]);
    }
    if rows.len() > 1 { format!("\n{}", table(&rows)) } else { String::new() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn moves_and_gains_are_in_columns() {
        let page = page(&json!({
            "moves": [{"server": "7c0a", "name": "vm-1", "from": "gpu-1", "to": "gpu-2", "memory_mb": 2048}],
            "flavors": [
                {"name": "gpu8", "servers_before": 0, "servers_after": 1, "gain": 1},
                {"name": "gpu1", "servers_before": null, "servers_after": null, "gain": -1},
            ],
            "saved_devices": 2.25,
            "drain": {"host": "gpu-1", "servers": 2, "gain": 1},
            "limits": {"reached": null},
        }));
        assert_eq!(
            page,
            "Live migrations, one after the other
     server  id    from   to     memory
  1  vm-1    7c0a  gpu-1  gpu-2  2048 MiB

They save the cost of 2.2 free devices.

  flavor  servers that fit now  after the moves
  gpu8    0                     1
  gpu1    -                     -1

A drain of gpu-1 (2 server(s)) makes room for 1 more.
"
        );
    }

    #[test]
    fn a_page_without_moves_says_why_and_names_a_limit() {
        let page = page(&json!({
            "moves": [], "flavors": [], "reason": "Nothing can move.", "saved_devices": null,
            "limits": {"reached": "2 moves are in progress."},
        }));
        assert_eq!(
            page,
            "No moves. Nothing can move.\n\nNo move can begin now: 2 moves are in progress.\n"
        );
    }
}
