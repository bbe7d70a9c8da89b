//! A running system with its admin logged in, and short ways to what tests start from.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Answer, Place, Serve, Session};

/// The whole.
pub struct Cloud {
    /// The running program.
    pub serve: Serve,
    /// Where it runs.
    pub place: Place,
    /// The admin, asking in recent microversions.
    pub admin: Session,
}

impl Cloud {
    /// Starts it.
    pub fn new(place: Place) -> Self {
        let serve = place.start();
        let admin = admin(&place, &serve);
        Self { serve, place, admin }
    }

    /// On every database at hand, without hosts.
    pub fn all() -> Vec<Self> {
        Place::all().into_iter().map(Self::new).collect()
    }

    /// On every database at hand, with the demo's simulated hosts.
    pub fn with_hosts() -> Vec<Self> {
        Place::all().into_iter().map(|place| Self::new(place.with_hosts())).collect()
    }

    /// Somebody without a token.
    pub fn nobody(&self) -> Session {
        recent(Session::nobody(self.serve.address))
    }

    /// Makes a user with a role on a new project; gives his session and the ids of user and project.
    pub fn user(&self, name: &str, role: &str) -> (Session, String, String) {
        let project = json!({"project": {"name": format!("{name}-project")}});
        let project = id(&self.admin.post("/identity/v3/projects", &project).ok(201)["project"]);
        let user = json!({"user": {"name": name, "password": format!("{name}-word")}});
        let user = id(&self.admin.post("/identity/v3/users", &user).ok(201)["user"]);
        let role = self.role(role);
        let grant = format!("/identity/v3/projects/{project}/users/{user}/roles/{role}");
        self.admin.put(&grant, &json!({})).ok(204);
        let token = login(&self.nobody(), name, &format!("{name}-word"), Some(&project));
        (self.nobody().token(&token), user, project)
    }

    /// The id of a role.
    pub fn role(&self, name: &str) -> String {
        let found = self.admin.get(&format!("/identity/v3/roles?name={name}")).ok(200);
        id(&found["roles"][0])
    }

    /// A flavor that fits anywhere.
    pub fn flavor(&self, name: &str) -> String {
        let flavor = json!({"flavor": {"name": name, "ram": 64, "vcpus": 1, "disk": 1}});
        id(&self.admin.post("/compute/v2.1/flavors", &flavor).ok(200)["flavor"])
    }

    /// A public image with a few bytes in it.
    pub fn image(&self, name: &str) -> String {
        let image = json!({"name": name, "disk_format": "raw", "container_format": "bare",
            "visibility": "public"});
        let image = id(&self.admin.post("/image/v2/images", &image).ok(201));
        upload(&self.admin, &image, &[7; 4096]).ok(204);
        image
    }

    /// A server of somebody's, active.
    pub fn server(&self, who: &Session, name: &str, flavor: &str, image: &str) -> String {
        let made = who.post("/compute/v2.1/servers", &server(name, flavor, image)).ok(202);
        let made = id(&made["server"]);
        self.wait_for(who, &made, "ACTIVE");
        made
    }

    /// Waits until a server has a status.
    pub fn wait_for(&self, who: &Session, server: &str, status: &str) {
        let begun = Instant::now();
        loop {
            let shown = who.get(&format!("/compute/v2.1/servers/{server}")).ok(200);
            if shown["server"]["status"] == status {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "not {status}: {shown}");
            std::thread::sleep(Duration::from_millis(30));
        }
    }
}

/// The body that makes a server.
pub fn server(name: &str, flavor: &str, image: &str) -> Value {
    json!({"server": {"name": name, "flavorRef": flavor, "imageRef": image, "networks": "none"}})
}

/// Sends an image's bytes.
#[track_caller]
pub fn upload(who: &Session, image: &str, bytes: &[u8]) -> Answer {
    who.send("PUT", &format!("/image/v2/images/{image}/file"), "application/octet-stream", bytes)
}

/// The `id` of a thing.
#[track_caller]
pub fn id(thing: &Value) -> String {
    thing["id"].as_str().unwrap_or_else(|| panic!("no id in {thing}")).to_owned()
}

/// The admin of a place, by the files that the first start wrote.
pub fn admin(place: &Place, serve: &Serve) -> Session {
    let nobody = recent(Session::nobody(serve.address));
    let token = login(&nobody, "admin", &password(place), None);
    nobody.token(&token)
}

/// The admin's password, from `openrc`.
pub fn password(place: &Place) -> String {
    let text = std::fs::read_to_string(place.state().join("openrc")).expect("an openrc");
    let word = text.lines().find_map(|line| line.strip_prefix("export OS_PASSWORD="));
    word.expect("a password").to_owned()
}

/// The body of a login by password; without a project's id, for the project of the admin.
pub fn credentials(name: &str, password: &str, project: Option<&str>) -> Value {
    let project = match project {
        Some(id) => json!({"id": id}),
        None => json!({"name": "admin", "domain": {"id": "default"}}),
    };
    json!({"auth": {"identity": {"methods": ["password"], "password": {"user": {"name": name,
        "password": password, "domain": {"id": "default"}}}}, "scope": {"project": project}}})
}

/// Logs in and gives the token.
#[track_caller]
pub fn login(nobody: &Session, name: &str, password: &str, project: Option<&str>) -> String {
    let answer = nobody.post("/identity/v3/auth/tokens", &credentials(name, password, project));
    answer.ok(201);
    answer.header("x-subject-token").expect("a token").to_owned()
}

fn recent(session: Session) -> Session {
    session.with("OpenStack-API-Version", "compute 2.96, placement 1.39, accelerator 2.3")
}
