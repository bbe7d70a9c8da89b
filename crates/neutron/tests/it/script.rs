//! A compute service's requests about ports, in raw form. They are sent to the real Neutron to
//! record its answers, and to the fake to compare its answers.

use std::collections::HashMap;

use bytes::Bytes;
use http::{HeaderValue, Method};
use kilonova_keystone::{Caller, Service};
use serde_json::{Value, json};

/// A Neutron with one project.
pub struct Cloud {
    /// The network service, with the service login.
    pub service: Service,
    /// A token of a member of the project.
    pub member: HeaderValue,
    /// The project.
    pub project: String,
    /// A network of the project with the single subnet 10.77.0.0/29.
    pub network: String,
    /// Two hosts with a live Open vSwitch agent.
    pub hosts: [String; 2],
}

/// The exchanges in order, each with its request, its status and its answer.
pub struct Transcript<'a> {
    cloud: &'a Cloud,
    /// The exchanges, without the values that differ between two runs.
    pub exchanges: Vec<Value>,
    ids: HashMap<String, String>,
}

impl Transcript<'_> {
    /// Sends a request as the service (`A`) or as the member (`M`), and returns the unchanged answer.
    async fn send(&mut self, line: &str, body: Option<Value>) -> Value {
        let mut words = line.split(' ');
        let (who, method, path) = (words.next(), words.next(), words.next());
        let caller = match who {
            Some("A") => Caller::Own,
            _ => Caller::User(&self.cloud.member),
        };
        let method: Method = method.expect("a method").parse().expect("a method");
        let path = path.expect("a path");
        let bytes = body.as_ref().map(|body| Bytes::from(body.to_string()));
        let url = format!("/v2.0{path}");
        let answer = self.cloud.service.send(caller, method, &url, bytes, None).await;
        let answer = answer.expect("Neutron answers");
        let raw = answer.json();
        let request = self.plain(&Value::from(line));
        let body = body.map(|body| self.plain(&body));
        let plain = self.plain(&raw);
        self.exchanges.push(json!({
            "request": request, "body": body, "status": answer.status.as_u16(), "answer": plain,
        }));
        raw
    }

    /// The value, without the parts that differ between two runs.
    fn plain(&mut self, value: &Value) -> Value {
        match value {
            Value::Object(object) => {
                let is_port = object.contains_key("mac_address");
                let mut plain = serde_json::Map::new();
                for (key, value) in object {
                    let changes = ["created_at", "dns_assignment", "revision_number", "updated_at"];
                    // The agent reports the status of a port some time later.
                    if changes.contains(&key.as_str()) || (is_port && key == "status") {
                        continue;
                    }
                    let value = match key.as_str() {
                        "mac_address" => json!("<mac>"),
                        "ip_address" => json!("<address>"),
                        _ => self.plain(value),
                    };
                    plain.insert(key.clone(), value);
                }
                Value::Object(plain)
            }
            Value::Array(list) => list.iter().map(|one| self.plain(one)).collect(),
            Value::String(text) => Value::String(self.plain_text(text)),
            other => other.clone(),
        }
    }

    fn plain_text(&mut self, text: &str) -> String {
        let mut plain = text.replace(&self.cloud.project, "<project>");
        for (number, host) in self.cloud.hosts.iter().enumerate() {
            plain = plain.replace(host.as_str(), &format!("<host {number}>"));
        }
        let is_id =
            |part: &&str| part.len() == 36 && part.bytes().filter(|b| *b == b'-').count() == 4;
        let split = |c: char| !(c.is_ascii_hexdigit() || c == '-');
        for id in text.split(split).filter(is_id) {
            let next = format!("<id {}>", self.ids.len());
            let name = self.ids.entry(id.to_owned()).or_insert(next);
            plain = plain.replace(id, name);
        }
        plain
    }
}

fn id_of(answer: &Value) -> String {
    answer["port"]["id"].as_str().expect("a port").to_owned()
}

/// Runs the script.
pub async fn run(cloud: &Cloud) -> Vec<Value> {
    let mut script = Transcript { cloud, exchanges: Vec::new(), ids: HashMap::new() };
    let (project, network) = (cloud.project.as_str(), cloud.network.as_str());
    let [one, two] = [cloud.hosts[0].as_str(), cloud.hosts[1].as_str()];
    let server = "11111111-2222-3333-4444-555555555555";
    let get = async |script: &mut Transcript<'_>, line: String| script.send(&line, None).await;

    get(&mut script, format!("M GET /networks?tenant_id={project}&shared=False")).await;
    get(&mut script, format!("M GET /networks?id={network}&fields=id&fields=subnets")).await;
    get(&mut script, "M GET /networks/99999999-2222-3333-4444-555555555555".into()).await;
    get(&mut script, format!("M GET /quotas/{project}")).await;

    let new = |more: Value| {
        let mut port = json!({
            "device_id": server, "network_id": network, "admin_state_up": true,
            "tenant_id": project,
        });
        port.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("one"));
        Some(json!({"port": port}))
    };
    // Neutron allocates at random; the address below must be free.
    let second = json!({"fixed_ips": [{"ip_address": "10.77.0.2"}]});
    let first = id_of(&script.send("M POST /ports", new(second)).await);
    get(&mut script, format!("M GET /ports/{first}")).await;
    get(&mut script, format!("A GET /ports/{first}")).await;
    let fields = "fields=id&fields=device_id";
    get(&mut script, format!("M GET /ports?device_id={server}&{fields}")).await;
    script.send("M POST /ports", new(json!({"colour": "red"}))).await;
    let elsewhere = json!({"fixed_ips": [{"ip_address": "192.0.2.1"}]});
    script.send("M POST /ports", new(elsewhere)).await;
    let nowhere = json!({"network_id": "99999999-2222-3333-4444-555555555555"});
    script.send("M POST /ports", new(nowhere)).await;
    let sixth = json!({"fixed_ips": [{"ip_address": "10.77.0.6"}]});
    script.send("M POST /ports", new(sixth.clone())).await;
    script.send("M POST /ports", new(sixth)).await;
    get(&mut script, format!("M GET /ports?network_id={network}&fixed_ips=ip_address%3D10.77.0.6&fields=id&fields=device_id")).await;
    get(&mut script, "M GET /ports?colour=red".into()).await;

    let change = |more: Value| Some(json!({"port": more}));
    let path = format!("PUT /ports/{first}");
    script.send(&format!("M {path}"), change(json!({"binding:host_id": one}))).await;
    let bound = json!({
        "device_id": server, "device_owner": "compute:nova", "binding:host_id": one,
        "binding:profile": {"mine": 1, "pci_slot": "0000:81:00.2"}, "dns_name": "vm-1",
    });
    script.send(&format!("A {path}"), change(bound)).await;
    script.send(&format!("A {path}"), change(json!({"binding:host_id": "no-such-host"}))).await;
    script.send(&format!("A {path}"), change(json!({"binding:host_id": one}))).await;
    get(&mut script, format!("M GET /ports/{first}")).await;

    let bindings = format!("/ports/{first}/bindings");
    let on = |host: &str| {
        Some(json!({"binding": {"host": host, "vnic_type": "normal", "profile": {"mine": 1}}}))
    };
    get(&mut script, format!("M GET {bindings}")).await;
    script.send(&format!("A POST {bindings}"), on(two)).await;
    script.send(&format!("A POST {bindings}"), on(two)).await;
    script.send(&format!("A POST {bindings}"), on("no-such-host")).await;
    get(&mut script, format!("A GET {bindings}")).await;
    script.send(&format!("A PUT {bindings}/{two}/activate"), None).await;
    script.send(&format!("A PUT {bindings}/{two}/activate"), None).await;
    script.send(&format!("A PUT {bindings}/other/activate"), None).await;
    get(&mut script, format!("A GET /ports/{first}")).await;
    script.send(&format!("A DELETE {bindings}/{one}"), None).await;
    script.send(&format!("A DELETE {bindings}/{one}"), None).await;

    let unbound = json!({
        "device_id": "", "device_owner": "", "binding:host_id": null,
        "binding:profile": {"mine": 1}, "dns_name": "",
    });
    script.send(&format!("A {path}"), change(unbound)).await;
    script.send(&format!("M DELETE /ports/{first}"), None).await;
    script.send(&format!("M DELETE /ports/{first}"), None).await;
    get(&mut script, format!("M GET /ports/{first}")).await;
    script.send(&format!("A {path}"), change(json!({"device_id": ""}))).await;

    // One of the six addresses is the gateway's, and one was allocated above.
    for _ in 0..4 {
        script.send("M POST /ports", new(json!({}))).await;
    }
    script.send("M POST /ports", new(json!({}))).await;
    let quota = json!({"quota": {"port": 5}});
    script.send(&format!("A PUT /quotas/{project}"), Some(quota)).await;
    script.send("M POST /ports", new(json!({}))).await;
    get(&mut script, format!("M GET /quotas/{project}")).await;
    let fields = "fields=id&fields=name";
    get(&mut script, format!("M GET /security-groups?tenant_id={project}&{fields}")).await;
    get(&mut script, format!("M GET /floatingips?port_id={first}")).await;
    get(&mut script, format!("M GET /auto-allocated-topology/{project}?fields=dry-run")).await;
    script.exchanges
}
