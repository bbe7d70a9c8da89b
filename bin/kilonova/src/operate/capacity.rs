//! The capacity of a cloud as a text page: servers that fit by flavor, and free devices by kind.

use serde_json::Value;

use super::text::{list, of, row, table};

/// Formats the page.
pub fn page(capacity: &Value) -> String {
    let mut page = format!(
        "{} of {} compute hosts are up and enabled.\n",
        of(&capacity["hosts_up"]),
        of(&capacity["hosts"])
    );
    let mut flavors = vec![row(["flavor", "more servers", "on hosts", "reason"])];
    for flavor in list(&capacity["flavors"]) {
        let reason = if flavor["reason"].is_null() { String::new() } else { of(&flavor["reason"]) };
        flavors.push(vec![
            of(&flavor["name"]),
            of(&flavor["servers"]),
            of(&flavor["hosts"]),
            reason,
        ]);
    }
    page.push_str(&format!(
        "\nServers that fit now, for each flavor by itself\n{}",
        table(&flavors)
    ));
    let head = [
        "devices",
        "free",
        "partly used",
        "free units",
        "on partly used",
        "reserved",
        "class",
        "traits",
    ];
    let mut devices = vec![row(head)];
    for kind in list(&capacity["devices"]) {
        let numbers = [
            "devices",
            "free",
            "partly_used",
            "free_units",
            "divided_units",
            "reserved_units",
            "resource_class",
        ];
        let mut cells: Vec<String> = numbers.iter().map(|key| of(&kind[key])).collect();
        // The owner traits are on every device.
        let told = list(&kind["traits"])
            .filter_map(Value::as_str)
            .filter(|name| !name.starts_with("OWNER_"))
            .map(str::to_owned);
        cells.push(of(&Value::from(told.collect::<Vec<_>>())));
        devices.push(cells);
    }
    if devices.len() > 1 {
        page.push_str(&format!("\nDevices\n{}", table(&devices)));
    }
    page.push_str(&gains(&capacity["gains"]));
    page
}

/// The gain of moves and of a drain; empty unless the page shows a single flavor.
fn gains(gains: &Value) -> String {
    if gains.is_null() {
        return String::new();
    }
    let mut text = match gains["moves"].as_array().map_or(0, Vec::len) {
        0 => "\nOne or two live migrations cannot make room for more.\n".to_owned(),
        moves => format!(
            "\n{moves} live migration(s) make room for {} more: kilonova rebalance --plan.\n",
            of(&gains["gain"])
        ),
    };
    let drain = &gains["drain"];
    if !drain.is_null() {
        text.push_str(&format!(
            "A drain of {} ({} server(s)) makes room for {} more.\n",
            of(&drain["host"]),
            of(&drain["servers"]),
            of(&drain["gain"])
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn flavors_and_devices_are_in_columns() {
        let page = page(&json!({
            "hosts": 3,
            "hosts_up": 2,
            "flavors": [
                {"id": "1", "name": "gpu", "servers": 12, "hosts": 2, "reason": null},
                {"id": "2", "name": "huge", "servers": 0, "hosts": 0, "reason": "None of 3 hosts has room."},
                {"id": "3", "name": "slow", "servers": null, "hosts": null, "reason": "Ask for it alone."},
            ],
            "devices": [{
                "resource_class": "VGPU", "traits": ["CUSTOM_NVIDIA_35", "OWNER_NOVA"], "units": 16, "devices": 8,
                "free": 5, "partly_used": 2, "free_units": 100, "divided_units": 20, "reserved_units": 0,
            }],
        }));
        assert_eq!(
            page,
            "2 of 3 compute hosts are up and enabled.

Servers that fit now, for each flavor by itself
  flavor  more servers  on hosts  reason
  gpu     12            2
  huge    0             0         None of 3 hosts has room.
  slow    -             -         Ask for it alone.

Devices
  devices  free  partly used  free units  on partly used  reserved  class  traits
  8        5     2            100         20              0         VGPU   CUSTOM_NVIDIA_35
"
        );
    }

    #[test]
    fn the_page_of_one_flavor_says_what_moves_gain() {
        let one = json!([{"id": "1", "name": "gpu8", "servers": 0, "hosts": 0, "reason": null}]);
        let gains = json!({
            "moves": [{"server": "7c0a"}], "gain": 1, "drain": {"host": "gpu-1", "servers": 3, "gain": 2},
        });
        let with = page(&json!({"hosts": 1, "hosts_up": 1, "flavors": one, "gains": gains}));
        assert!(
            with.contains(
                "\n1 live migration(s) make room for 1 more: kilonova rebalance --plan.\n"
            ),
            "{with}"
        );
        assert!(
            with.ends_with("A drain of gpu-1 (3 server(s)) makes room for 2 more.\n"),
            "{with}"
        );
        let gains = json!({"moves": [], "gain": 0, "drain": null});
        let without = page(&json!({"hosts": 1, "hosts_up": 1, "flavors": one, "gains": gains}));
        assert!(
            without.ends_with("One or two live migrations cannot make room for more.\n"),
            "{without}"
        );
    }
}
