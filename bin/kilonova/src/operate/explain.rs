//! The explanation of a server as a text page: its state, operations, reasons and next steps.

use std::collections::HashSet;

use serde_json::Value;

use super::text::{list, of, plain, row, table};

/// Sentences that the page contains already: the API repeats a reason in several places.
#[derive(Default)]
struct Printed(HashSet<String>);

impl Printed {
    /// One line for each new sentence.
    fn new_sentences(&mut self, text: &str, indent: &str) -> String {
        let mut page = String::new();
        for sentence in text.split_inclusive(". ").map(str::trim_end) {
            if !sentence.is_empty() && self.0.insert(sentence.to_owned()) {
                page.push_str(&format!("{indent}{sentence}\n"));
            }
        }
        page
    }
}

/// Formats the page.
pub fn page(server: &Value) -> String {
    let mut printed = Printed::default();
    let mut page = format!("{}\n", of(&server["summary"]));
    page.push_str("\nNext\n");
    for step in list(&server["next"]) {
        page.push_str(&format!("  {}\n", of(step)));
    }
    part(&mut page, "Server", &about(server));
    part(&mut page, "In progress", &operation(&server["operation"]));
    part(&mut page, "Devices", &devices(server));
    part(&mut page, "Claim", &claims(server));
    part(&mut page, "Moves", &moves(server));
    if !server["fault"].is_null() {
        let fault = &server["fault"];
        page.push_str(&format!("\nFault, {}\n", of(&fault["created_at"])));
        page.push_str(&printed.new_sentences(&of(&fault["message"]), "  "));
        if !fault["details"].is_null() {
            page.push_str(&printed.new_sentences(&of(&fault["details"]), "  "));
        }
    }
    let room = &server["room_now"];
    if !room.is_null() {
        let text = room["text"].as_str().map(plain).unwrap_or_default();
        let now = printed.new_sentences(&text, "  ");
        page.push_str("\nHosts with room for it now\n");
        page.push_str(match (now.is_empty(), room["is_there"] == true) {
            (false, _) => &now,
            (true, true) => "  There is room for it.\n",
            (true, false) => "  None, for the same reason.\n",
        });
    }
    page.push_str(&actions(server, &mut printed));
    page.push_str(&past(server));
    page
}

fn part(page: &mut String, title: &str, rows: &[Vec<String>]) {
    if !rows.is_empty() {
        page.push_str(&format!("\n{title}\n{}", table(rows)));
    }
}

fn about(server: &Value) -> Vec<Vec<String>> {
    let mut rows = vec![row([
        "status",
        &format!(
            "{} (vm_state {}, power state {})",
            of(&server["status"]),
            of(&server["vm_state"]),
            of(&server["power_state"])
        ),
    ])];
    if !server["task_state"].is_null() {
        rows.push(row(["task", &of(&server["task_state"])]));
    }
    for host in list(&server["hosts"]) {
        let mut words = format!("{}: {}", of(&host["name"]), of(&host["state"]));
        if host["forced_down"] == true {
            words.push_str(" (forced down)");
        }
        words.push_str(&format!(", {}", of(&host["status"])));
        if !host["disabled_reason"].is_null() {
            words.push_str(&format!(" ({})", of(&host["disabled_reason"])));
        }
        words.push_str(&format!(", last contact {}", of(&host["last_heard_of"])));
        rows.push(row(["host", &words]));
    }
    let specs: Vec<String> = server["extra_specs"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{}={}", plain(key), of(value)))
        .collect();
    rows.push(row(["flavor", &format!("{}  {}", of(&server["flavor"]), specs.join(" "))]));
    for (name, key) in [
        ("requested zone", "availability_zone"),
        ("project", "project_id"),
        ("user", "user_id"),
        ("guest", "instance_name"),
        ("created", "created_at"),
        ("launched", "launched_at"),
        ("updated", "updated_at"),
        ("deleted", "deleted_at"),
    ] {
        if !server[key].is_null() {
            rows.push(row([name, &of(&server[key])]));
        }
    }
    if !server["locked"].is_null() {
        let lock = &server["locked"];
        let words = format!("by its {} ({})", of(&lock["by"]), of(&lock["reason"]));
        rows.push(row(["locked", &words]));
    }
    rows
}

fn operation(operation: &Value) -> Vec<Vec<String>> {
    if operation.is_null() {
        return Vec::new();
    }
    let waits = match operation["unreadable"].as_str() {
        Some(why) => row(["cannot be read", &format!("{why}; a newer version has begun it")]),
        None => row(["waits for", &of(&operation["waits_for"])]),
    };
    vec![
        row(["operation", &of(&operation["action"])]),
        row(["step", &format!("{} since {}", of(&operation["step"]), of(&operation["since"]))]),
        waits,
        row(["started", &of(&operation["started_at"])]),
        row([
            "request",
            &format!("{} of user {}", of(&operation["request_id"]), of(&operation["user_id"])),
        ]),
    ]
}

fn holder(of_what: &Value) -> String {
    match of_what["migration"].as_i64() {
        Some(number) => format!("migration {number}"),
        None => "server".to_owned(),
    }
}

fn devices(server: &Value) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for device in list(&server["devices"]) {
        let handle = &device["handle"];
        let requested = &device["asked_by"];
        let requested = match requested["device_profile"].as_str() {
            Some(name) => format!("profile {} group {}", plain(name), of(&requested["group"])),
            None => format!("flavor {}", of(&requested["flavor"])),
        };
        let health = match device["device"]["health"].as_str() {
            Some("healthy") | None => of(&device["device"]["health"]),
            Some(sick) => format!("{sick}: {}", of(&device["device"]["health_reason"])),
        };
        rows.push(row([
            &holder(device),
            &of(&device["provider_name"]),
            &of(&device["resource_class"]),
            &format!(
                "{} {} {}",
                of(&handle["type"]),
                of(&handle["address"]),
                of(&handle["mdev_type"])
            ),
            &of(&handle["id"]),
            &format!("request {} {}", of(&device["arq"]), of(&device["state"])),
            &requested,
            if device["attached"] == true { "attached" } else { "not attached" },
            &health,
        ]));
    }
    if !rows.is_empty() {
        let titles = [
            "HELD BY",
            "PROVIDER",
            "CLASS",
            "DEVICE",
            "HANDLE",
            "ACCELERATOR REQUEST",
            "REQUESTED BY",
            "GUEST",
            "HEALTH",
        ];
        rows.insert(0, row(titles));
    }
    for left in list(&server["left_behind"]) {
        rows.push(row(["nobody", &of(&left["host"]), "-", &of(&left["address"]), "left behind"]));
    }
    rows
}

fn claims(server: &Value) -> Vec<Vec<String>> {
    let claims = list(&server["claims"]);
    let of_claim = |claim: &Value| {
        let consumer = holder(claim);
        list(&claim["allocations"])
            .map(|one| row([&consumer, &of(&one["name"]), &of(&one["class"]), &of(&one["amount"])]))
            .collect::<Vec<_>>()
    };
    let mut rows: Vec<Vec<String>> = claims.flat_map(of_claim).collect();
    if !rows.is_empty() {
        rows.insert(0, row(["HELD BY", "PROVIDER", "CLASS", "AMOUNT"]));
    }
    rows
}

fn moves(server: &Value) -> Vec<Vec<String>> {
    let one = |one: &Value| {
        row([
            &of(&one["id"]),
            &of(&one["type"]),
            &of(&one["status"]),
            &format!("{} to {}", of(&one["source"]), of(&one["destination"])),
            &of(&one["updated_at"]),
        ])
    };
    list(&server["moves"]).map(one).collect()
}

fn actions(server: &Value, printed: &mut Printed) -> String {
    let mut page = String::new();
    for action in list(&server["actions"]) {
        page.push_str(&format!(
            "\n{}: {}, {} ({})\n",
            of(&action["action"]),
            of(&action["outcome"]),
            of(&action["started_at"]),
            of(&action["request_id"])
        ));
        if !action["host_chosen"].is_null() {
            page.push_str("  how the host was chosen:\n");
            page.push_str(&printed.new_sentences(&of(&action["host_chosen"]), "    "));
        }
        if list(&action["hosts_tried"]).next().is_some() {
            page.push_str(&format!("  failed on: {}\n", of(&action["hosts_tried"])));
        }
        for event in list(&action["events"]) {
            let host = event["host"].as_str().filter(|host| !host.is_empty());
            let on = host.map(|host| format!(" on {}", plain(host))).unwrap_or_default();
            page.push_str(&format!("  {}{on}: {}\n", of(&event["event"]), of(&event["result"])));
            if !event["details"].is_null() {
                page.push_str(&printed.new_sentences(&of(&event["details"]), "    "));
            }
        }
        if !action["message"].is_null() {
            page.push_str(&printed.new_sentences(&of(&action["message"]), "  "));
        }
    }
    page
}

/// The devices that a deleted server had.
fn past(server: &Value) -> String {
    if server["deleted_at"].is_null() {
        return String::new();
    }
    let one = |change: &Value| {
        row([
            &of(&change["at"]),
            &of(&change["change"]),
            &of(&change["host"]),
            &format!(
                "{} {} {}",
                of(&change["type"]),
                of(&change["address"]),
                of(&change["mdev_type"])
            ),
            &of(&change["handle"]),
        ])
    };
    let rows: Vec<Vec<String>> = list(&server["device_changes"]).map(one).collect();
    let mut page = String::new();
    part(&mut page, "Former devices", &rows);
    page
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reason_is_printed_once_and_absent_parts_are_omitted() {
        let message = "No valid host was found. None of 2 hosts offers VGPUS.";
        let why = format!("{message} Nearest: gpu-7, which does not offer VGPUS.");
        let server = json!({
            "summary": "Server one (u) is error.", "next": ["Make room."], "status": "ERROR",
            "vm_state": "error", "power_state": 0, "flavor": "v\u{1b}", "extra_specs": {"a": "b"},
            "fault": {"message": message, "details": why, "created_at": "T"},
            "room_now": {"is_there": false, "text": "None of 2 hosts offers VGPUS."},
            "actions": [{"action": "create", "outcome": "failed", "started_at": "T",
                "request_id": "r", "message": why,
                "events": [{"event": "conductor", "result": "Error", "details": why}]}],
        });
        let page = page(&server);
        assert!(page.starts_with("Server one (u) is error.\n\nNext\n  Make room.\n"), "{page}");
        let fault =
            "  No valid host was found.\n  None of 2 hosts offers VGPUS.\n  Nearest: gpu-7, ";
        assert!(page.contains(fault), "{page}");
        assert!(
            page.contains("Hosts with room for it now\n  None, for the same reason.\n"),
            "{page}"
        );
        assert!(page.contains("v\\u{1b}  a=b"), "{page}");
        assert_eq!(page.matches("None of 2 hosts").count(), 1, "{page}");
        assert_eq!(page.matches("Nearest").count(), 1, "{page}");
        for absent in ["In progress", "Devices", "Claim", "Moves", "null"] {
            assert!(!page.contains(absent), "{page}");
        }
    }
}
