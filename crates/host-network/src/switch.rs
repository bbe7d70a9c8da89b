//! The ports of hybrid plugs in Open vSwitch (`ovs-vsctl`), where Neutron's agent finds the plugs.
//!
//! A port is a row of Open vSwitch's database, so it outlives its link and a reboot. Our ports have the external id
//! [`OURS`] with the name of their bridge. Other ports are never changed or removed, except a row with the name of a
//! plug and no link, and the ports that libvirt has left of a stopped guest ([`unplug`]).

use std::collections::{BTreeMap, BTreeSet};

use kilonova_ids::ServerId;
use serde::Deserialize;
use serde_json::Value;

use crate::links::{Links, is_used};
use crate::nets::{HybridPlug, is_mac};
use crate::run::{is_missing, run, words};

/// The external id of our ports.
const OURS: &str = "kilonova-bridge";
/// Seconds after which `ovs-vsctl` gives up. By default it waits forever for a database that does not run.
const LIMIT: &str = "--timeout=10";

/// Our ports with their external ids, by name.
pub(crate) type SwitchPorts = BTreeMap<String, BTreeMap<String, String>>;

#[derive(Deserialize)]
struct Table {
    data: Vec<(String, Value)>,
}

#[derive(Deserialize)]
struct Rows {
    data: Vec<Vec<Value>>,
}

/// Our ports.
pub(crate) async fn read() -> Result<SwitchPorts, String> {
    let line = [LIMIT, "--format=json", "--columns=name,external_ids", "list", "Interface"];
    parse(&run("ovs-vsctl", &words(&line), b"").await?)
}

fn parse(text: &[u8]) -> Result<SwitchPorts, String> {
    let unexpected = |error: serde_json::Error| format!("unexpected output of ovs-vsctl: {error}");
    let table: Table = serde_json::from_slice(text).map_err(unexpected)?;
    let mut ports = SwitchPorts::new();
    for (name, ids) in table.data {
        // ["map", [[key, value], …]]
        let (_, ids): (String, Vec<(String, String)>) =
            serde_json::from_value(ids).map_err(unexpected)?;
        let ids: BTreeMap<String, String> = ids.into_iter().collect();
        if ids.contains_key(OURS) {
            ports.insert(name, ids);
        }
    }
    Ok(ports)
}

/// The external ids of a plug's port. All but the last are upstream's.
fn ids(plug: &HybridPlug) -> BTreeMap<String, String> {
    let ids = [
        ("iface-id", plug.interface.port.to_string()),
        ("iface-status", "active".to_owned()),
        ("attached-mac", plug.interface.mac.clone()),
        ("vm-uuid", plug.server.to_string()),
        (OURS, plug.switch.clone()),
    ];
    ids.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The arguments that create a plug's port; `None` if the port is correct. An existing port of that name is replaced
/// in the same transaction of Open vSwitch.
fn joined(plug: &HybridPlug, ports: &SwitchPorts) -> Option<Vec<String>> {
    let [_, _, outer] = plug.names();
    let ids = ids(plug);
    if ports.get(&outer) == Some(&ids) {
        return None;
    }
    let mut line = words(&[LIMIT, "--", "--if-exists", "del-port", &outer]);
    line.extend(words(&["--", "add-port", &plug.switch, &outer]));
    line.extend(words(&["--", "set", "Interface", &outer]));
    // The quotes keep the colons of a MAC address from being syntax.
    line.extend(ids.iter().map(|(key, value)| format!("external_ids:{key}=\"{value}\"")));
    Some(line)
}

/// True for the name of a bridge that cannot become an option of `ovs-vsctl`.
fn is_bridge_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Refuses an invalid MAC address or bridge name: both are Neutron's, and neither may become an option of `ovs-vsctl`.
fn check(plug: &HybridPlug) -> Result<(), String> {
    let (mac, switch) = (&plug.interface.mac, &plug.switch);
    match (is_mac(mac), is_bridge_name(switch)) {
        (false, _) => Err(format!("{mac:?} of port {} is not a MAC address", plug.interface.port)),
        (_, false) => Err(format!("{switch:?} is not the name of a bridge")),
        (true, true) => Ok(()),
    }
}

/// Creates the port of a plug, unless it is correct.
pub(crate) async fn add_port(plug: &HybridPlug, ports: &SwitchPorts) -> Result<(), String> {
    check(plug)?;
    match joined(plug, ports) {
        Some(line) => run("ovs-vsctl", &line, b"").await.map(drop),
        None => Ok(()),
    }
}

/// The ports that no plug needs and no guest uses, and the ports without a link: Open vSwitch keeps the state of a lost
/// link, even if the port is replaced in one transaction, and does not use a new link of the same name.
fn unused<'a>(
    plugs: &'a [HybridPlug],
    ports: &'a SwitchPorts,
    there: &'a Links,
) -> impl Iterator<Item = &'a String> {
    let is_needed = |port: &str| plugs.iter().any(|plug| plug.names().iter().any(|n| n == port));
    ports.keys().filter(move |port| {
        !there.contains_key(*port) || (!is_needed(port) && !is_used(port, there))
    })
}

/// Removes the [`unused`] ports. Their links are removed later, so a crash in between leaves only links, which are found
/// by their alias.
pub(crate) async fn remove_unused_ports(
    plugs: &[HybridPlug],
    ports: &mut SwitchPorts,
    there: &Links,
) -> Result<(), String> {
    let gone: Vec<String> = unused(plugs, ports, there).cloned().collect();
    for port in gone {
        let line = words(&[LIMIT, "--if-exists", "del-port", &port]);
        run("ovs-vsctl", &line, b"").await?;
        ports.remove(&port);
    }
    Ok(())
}

/// Removes the ports that libvirt has left of these taps of the server, each with its bridge. libvirt replaces a port when
/// it starts a guest, so a port is removed by the id of its row: that of a tap that a guest has by now stays.
pub(crate) async fn unplug(
    server: ServerId,
    taps: &BTreeMap<String, String>,
) -> Result<(), String> {
    if let Some(bridge) = taps.values().find(|bridge| !is_bridge_name(bridge)) {
        return Err(format!("{bridge:?} is not the name of a bridge"));
    }
    let of_server = format!("external_ids:vm-id=\"{server}\"");
    let mut line = words(&[LIMIT, "--format=json"]);
    line.extend(words(&["--", "--columns=_uuid", "find", "Interface", &of_server]));
    line.extend(words(&["--", "--if-exists", "--columns=_uuid,name,interfaces", "list", "Port"]));
    line.extend(taps.keys().cloned());
    let found = match run("ovs-vsctl", &line, b"").await {
        Ok(found) => left(&found)?,
        // Without its program, the host has no ports of a guest either.
        Err(why) if is_missing(&why) => return Ok(()),
        Err(why) => return Err(why),
    };
    let mut line = words(&[LIMIT, "--no-wait"]);
    for (name, port) in &found {
        if let Some(bridge) = taps.get(name) {
            line.extend(words(&["--", "--if-exists", "remove", "Bridge", bridge, "ports", port]));
        }
    }
    if found.is_empty() { Ok(()) } else { run("ovs-vsctl", &line, b"").await.map(drop) }
}

/// The names and row ids of the ports whose interface is listed, in the output of the two commands of [`unplug`].
fn left(text: &[u8]) -> Result<Vec<(String, String)>, String> {
    let unexpected = |error: serde_json::Error| format!("unexpected output of ovs-vsctl: {error}");
    let tables = serde_json::Deserializer::from_slice(text).into_iter::<Rows>();
    let tables = tables.collect::<Result<Vec<_>, _>>().map_err(unexpected)?;
    let [interfaces, ports] = &tables[..] else {
        return Err(format!("unexpected output of ovs-vsctl: {} tables", tables.len()));
    };
    let ours: BTreeSet<&str> = interfaces.data.iter().flatten().flat_map(row_ids).collect();
    let port = |row: &Vec<Value>| {
        let [id, Value::String(name), interfaces] = &row[..] else { return None };
        let id = row_ids(id).next()?.to_owned();
        row_ids(interfaces).any(|one| ours.contains(one)).then(|| (name.clone(), id))
    };
    Ok(ports.data.iter().filter_map(port).collect())
}

/// The row ids in a value: `["uuid", ID]`, or `["set", [["uuid", ID], …]]`.
fn row_ids(value: &Value) -> impl Iterator<Item = &str> {
    let one = |value: &Value| value[0] == "uuid";
    let many = value[1].as_array().into_iter().flatten();
    let all = Some(value).into_iter().chain(many).filter(move |value| one(value));
    all.filter_map(|value| value[1].as_str())
}

#[cfg(test)]
mod tests {
    use kilonova_node_api::{Filters, Interface, Vif};

    use super::*;
    use crate::links::{Link, parse_links};
    use crate::nets::Nets;
    use crate::testing::{config, interface, wanted};

    fn plugs() -> Vec<HybridPlug> {
        let vif = Some(Vif::OvsHybrid { bridge: "br-int".into() });
        let one = Interface { vif, ..interface(2) };
        let nets = Nets::of(&wanted(vec![one, interface(3)], Filters::default()), &config());
        assert_eq!(nets.interfaces, [interface(3)], "our own rules are of our own networks");
        nets.hybrid
    }

    #[test]
    fn a_port_is_joined_once_and_replaced_if_it_differs() {
        let plugs = plugs();
        let line = joined(&plugs[0], &SwitchPorts::new()).expect("it has no port");
        assert_eq!(
            line.join(" "),
            "--timeout=10 -- --if-exists del-port qvo02aaaaaa-bb -- add-port br-int qvo02aaaaaa-bb -- set \
             Interface qvo02aaaaaa-bb external_ids:attached-mac=\"fa:16:3e:00:00:02\" \
             external_ids:iface-id=\"02aaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee\" external_ids:iface-status=\"active\" \
             external_ids:kilonova-bridge=\"br-int\" \
             external_ids:vm-uuid=\"00000000-0000-4000-8000-000000000000\""
        );
        let mut ports = SwitchPorts::from([("qvo02aaaaaa-bb".to_owned(), ids(&plugs[0]))]);
        assert_eq!(joined(&plugs[0], &ports), None);
        ports.values_mut().for_each(|ids| drop(ids.insert(OURS.into(), "br-ex".into())));
        assert!(joined(&plugs[0], &ports).is_some());
    }

    #[test]
    fn nothing_becomes_an_option() {
        let plug = |mac: &str, switch: &str| {
            let mut plug = plugs().remove(0);
            plug.interface.mac = mac.into();
            plug.switch = switch.into();
            check(&plug)
        };
        assert_eq!(plug("fa:16:3e:00:00:02", "br-int.1_x"), Ok(()));
        for (mac, switch) in
            [("fa:16:3e:00:00:02", "--help"), ("\"x", "br-int"), ("fa:16:3e:00:00:02", "")]
        {
            assert!(plug(mac, switch).is_err(), "{mac} {switch}");
        }
    }

    #[test]
    fn only_ports_of_the_listed_interfaces_are_left_of_a_guest() {
        let text = br#"{"headings":["_uuid"],"data":[[["uuid","i1"]],[["uuid","i2"]]]}
            {"headings":["_uuid","name","interfaces"],"data":[
             [["uuid","p1"],"tap1",["uuid","i1"]],
             [["uuid","p2"],"tap2",["set",[["uuid","i0"],["uuid","i2"]]]],
             [["uuid","p3"],"tap3",["uuid","i3"]]]}"#;
        let found = left(text).expect("the output is understood");
        let names: Vec<(&str, &str)> = found.iter().map(|(a, b)| (&**a, &**b)).collect();
        assert_eq!(names, [("tap1", "p1"), ("tap2", "p2")]);
        for wrong in [&b"{}"[..], b"", br#"{"data":[]}"#, b"{\"data\":[]}{\"data\":1}"] {
            assert!(left(wrong).is_err(), "{}", String::from_utf8_lossy(wrong));
        }
        assert_eq!(left(br#"{"data":[]} {"data":[["x"],[1,2,3]]}"#), Ok(Vec::new()));
    }

    #[test]
    fn ports_of_ours_without_a_guest_or_a_link_are_unused() {
        let listing = br#"{"headings":["name","external_ids"],"data":[
            ["br-int",["map",[]]],
            ["tap1",["map",[["iface-id","x"]]]],
            ["qvo02aaaaaa-bb",["map",[["iface-id","x"],["kilonova-bridge","br-int"]]]],
            ["qvo03aaaaaa-bb",["map",[["iface-id","y"],["kilonova-bridge","br-int"]]]],
            ["qvo04aaaaaa-bb",["map",[["iface-id","z"],["kilonova-bridge","br-int"]]]],
            ["qvo05aaaaaa-bb",["map",[["iface-id","z"],["kilonova-bridge","br-int"]]]]]}"#;
        let ports = parse(listing).expect("the ports are listed");
        let there = parse_links(
            br#"[{"ifname": "tap03aaaaaa-bb", "master": "qbr03aaaaaa-bb"},
                 {"ifname": "qvo02aaaaaa-bb"}, {"ifname": "qvo03aaaaaa-bb"}, {"ifname": "qvo04aaaaaa-bb"},
                 {"ifname": "qvb04aaaaaa-bb", "master": "qbr04aaaaaa-bb", "ifalias": "kilonova"}]"#,
        )
        .expect("the links are listed");
        assert!(there.values().any(Link::is_ours));
        let plugs = plugs();
        let unused: Vec<&String> = unused(&plugs, &ports, &there).collect();
        assert_eq!(unused, ["qvo04aaaaaa-bb", "qvo05aaaaaa-bb"]);
    }
}
