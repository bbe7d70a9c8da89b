//! A running system with its admin logged in, and shortcuts for the setup of tests.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Answer, Environment, Serve, Session};

/// A running system.
pub struct Cloud {
    /// The running server.
    pub serve: Serve,
    /// The place it runs in.
    pub place: Environment,
    /// The admin's client, which requests recent microversions.
    pub admin: Session,
}

impl Cloud {
    /// Starts the server.
    pub fn new(place: Environment) -> Self {
        let serve = place.start();
        let admin = admin(&place, &serve);
        Self { serve, place, admin }
    }

    /// One on each available database, without hosts.
    pub fn all() -> Vec<Self> {
        Environment::all().into_iter().map(Self::new).collect()
    }

    /// One on each available database, with the demo's simulated hosts.
    pub fn with_hosts() -> Vec<Self> {
        Environment::all().into_iter().map(|place| Self::new(place.with_hosts())).collect()
    }

    /// A client without a token.
    pub fn anonymous(&self) -> Session {
        recent(Session::anonymous(self.serve.address))
    }

    /// Creates a user with a role on a new project. Returns the client and the ids of user and project.
    pub fn user(&self, name: &str, role: &str) -> (Session, String, String) {
        let project = json!({"project": {"name": format!("{name}-project")}});
        let project = id(&self.admin.post("/identity/v3/projects", &project).ok(201)["project"]);
        let user = json!({"user": {"name": name, "password": format!("{name}-word")}});
        let user = id(&self.admin.post("/identity/v3/users", &user).ok(201)["user"]);
        let role = self.role(role);
        let grant = format!("/identity/v3/projects/{project}/users/{user}/roles/{role}");
        self.admin.put(&grant, &json!({})).ok(204);
        let token = login(&self.anonymous(), name, &format!("{name}-word"), Some(&project));
        (self.anonymous().token(&token), user, project)
    }

    /// The id of a role.
    pub fn role(&self, name: &str) -> String {
        let found = self.admin.get(&format!("/identity/v3/roles?name={name}")).ok(200);
        id(&found["roles"][0])
    }

    /// Creates a flavor that fits any host.
    pub fn flavor(&self, name: &str) -> String {
        let flavor = json!({"flavor": {"name": name, "ram": 64, "vcpus": 1, "disk": 1}});
        id(&self.admin.post("/compute/v2.1/flavors", &flavor).ok(200)["flavor"])
    }

    /// Creates a public image with a few bytes of data.
    pub fn image(&self, name: &str) -> String {
        let image = json!({"name": name, "disk_format": "raw", "container_format": "bare",
            "visibility": "public"});
        let image = id(&self.admin.post("/image/v2/images", &image).ok(201));
        upload(&self.admin, &image, &[7; 4096]).ok(204);
        image
    }

    /// Boots a server and waits until it is active.
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

/// The body of a request that creates a server.
pub fn server(name: &str, flavor: &str, image: &str) -> Value {
    json!({"server": {"name": name, "flavorRef": flavor, "imageRef": image, "networks": "none"}})
}

/// Uploads an image's data.
#[track_caller]
pub fn upload(who: &Session, image: &str, bytes: &[u8]) -> Answer {
    who.send("PUT", &format!("/image/v2/images/{image}/file"), "application/octet-stream", bytes)
}

/// The `id` of a resource.
#[track_caller]
pub fn id(thing: &Value) -> String {
    thing["id"].as_str().unwrap_or_else(|| panic!("no id in {thing}")).to_owned()
}

/// The admin's client, from the files that the first start wrote.
pub fn admin(place: &Environment, serve: &Serve) -> Session {
    let nobody = recent(Session::anonymous(serve.address));
    let token = login(&nobody, "admin", &password(place), None);
    nobody.token(&token)
}

/// The admin's password, from `openrc`.
pub fn password(place: &Environment) -> String {
    let text = std::fs::read_to_string(place.state().join("openrc")).expect("openrc is readable");
    let word = text.lines().find_map(|line| line.strip_prefix("export OS_PASSWORD="));
    word.expect("the password is in openrc").to_owned()
}

/// The body of a login by password. Without a project's id, the scope is the admin's project.
pub fn credentials(name: &str, password: &str, project: Option<&str>) -> Value {
    let project = match project {
        Some(id) => json!({"id": id}),
        None => json!({"name": "admin", "domain": {"id": "default"}}),
    };
    json!({"auth": {"identity": {"methods": ["password"], "password": {"user": {"name": name,
        "password": password, "domain": {"id": "default"}}}}, "scope": {"project": project}}})
}

/// Logs in. Returns the token.
#[track_caller]
pub fn login(nobody: &Session, name: &str, password: &str, project: Option<&str>) -> String {
    let answer = nobody.post("/identity/v3/auth/tokens", &credentials(name, password, project));
    answer.ok(201);
    answer.header("x-subject-token").expect("a token is present").to_owned()
}

fn recent(session: Session) -> Session {
    session.with("OpenStack-API-Version", "compute 2.96, placement 1.39, accelerator 2.3")
}
