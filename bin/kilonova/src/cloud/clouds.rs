//! Reads the password login of a named cloud from `clouds.yaml`.

use std::path::{Path, PathBuf};

use kilonova_keystone::Login;
use saphyr_parser::{Event, Parser, StrInput};
use serde_json::{Map, Value};

use crate::failure::Failure;

/// The deepest nesting that is parsed.
const DEEPEST: usize = 32;

/// A login and its connection settings.
pub struct Cloud {
    /// The credentials.
    pub login: Login,
    /// Authority to trust.
    pub cafile: Option<PathBuf>,
    /// Region of the endpoint.
    pub region: Option<String>,
}

/// The cloud with this name in the file.
pub fn read(file: &Path, name: &str) -> Result<Cloud, Failure> {
    let shown = file.display();
    let wrong = |why: String| Failure::Refused(format!("{shown}: {why}"));
    let text = std::fs::read_to_string(file)
        .map_err(|e| Failure::Refused(format!("cannot read {shown}: {e}")))?;
    let clouds = parse(&text).map_err(&wrong)?;
    let cloud = &clouds["clouds"][name];
    if cloud.is_null() {
        return Err(wrong(format!("it has no cloud {name}")));
    }
    let auth = &cloud["auth"];
    let needed = |option: &str| {
        let found = auth[option].as_str().map(str::to_owned);
        found.ok_or_else(|| wrong(format!("cloud {name} has no auth: {option}")))
    };
    let domain = |option: &str| auth[option].as_str().unwrap_or("Default").to_owned();
    Ok(Cloud {
        login: Login {
            auth_url: needed("auth_url")?,
            username: needed("username")?,
            password: needed("password")?,
            user_domain_name: domain("user_domain_name"),
            project_name: needed("project_name")?,
            project_domain_name: domain("project_domain_name"),
        },
        cafile: cloud["cacert"].as_str().map(PathBuf::from),
        region: cloud["region_name"].as_str().map(str::to_owned),
    })
}

struct Events<'a>(Parser<'a, StrInput<'a>>);

impl<'a> Events<'a> {
    fn next(&mut self) -> Result<Event<'a>, String> {
        match self.0.next_event() {
            Some(Ok((event, _))) => Ok(event),
            Some(Err(error)) => Err(format!("line {}: {}", error.marker().line(), error.info())),
            None => Ok(Event::StreamEnd),
        }
    }

    /// Parses the rest of a value. Scalars become strings; anchors are not supported.
    fn value(&mut self, begun: Event<'a>, depth: usize) -> Result<Value, String> {
        if depth > DEEPEST {
            return Err("it is nested too deeply".into());
        }
        match begun {
            Event::Scalar(text, ..) => Ok(Value::String(text.into_owned())),
            Event::SequenceStart(..) => {
                let mut list = Vec::new();
                loop {
                    match self.next()? {
                        Event::SequenceEnd => return Ok(Value::Array(list)),
                        other => list.push(self.value(other, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(..) => {
                let mut map = Map::new();
                loop {
                    let key = match self.next()? {
                        Event::MappingEnd => return Ok(Value::Object(map)),
                        Event::Scalar(text, ..) => text.into_owned(),
                        _ => return Err("a key must be a string".into()),
                    };
                    let inner = self.next()?;
                    map.insert(key, self.value(inner, depth + 1)?);
                }
            }
            _ => Err("it ends prematurely, or has aliases, which are not supported".into()),
        }
    }
}

fn parse(text: &str) -> Result<Value, String> {
    let mut events = Events(Parser::new_from_str(text));
    loop {
        match events.next()? {
            Event::StreamStart | Event::DocumentStart(_) => {}
            Event::StreamEnd | Event::DocumentEnd => return Ok(Value::Null),
            event => return events.value(event, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOUDS: &str = "
clouds:
  here:
    auth:
      auth_url: https://keystone/v3
      username: admin
      password: \"s: ecret\"
      project_name: admin
    cacert: /etc/ca.pem
    region_name: R1
    identity_api_version: 3
  half: {auth: {auth_url: x}}
";

    #[test]
    fn a_cloud_is_found_by_name() {
        let file = std::env::temp_dir().join(format!("clouds-{}.yaml", uuid::Uuid::new_v4()));
        std::fs::write(&file, CLOUDS).expect("the file is written");
        let cloud = read(&file, "here").expect("the cloud is found");
        assert_eq!(cloud.login.password, "s: ecret");
        assert_eq!(cloud.login.project_domain_name, "Default");
        assert_eq!(cloud.region.as_deref(), Some("R1"));
        let message = |name| read(&file, name).err().expect("the file is refused").to_string();
        assert!(message("half").contains("has no auth: username"), "{}", message("half"));
        assert!(message("there").contains("it has no cloud there"));
        std::fs::write(&file, "clouds: [").expect("the file is written");
        assert!(message("here").contains("clouds-"), "{}", message("here"));
        std::fs::remove_file(&file).expect("the file is removed");
    }
}
