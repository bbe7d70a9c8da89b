//! Credentials from the `OS_*` variables of an openrc, or from `clouds.yaml`.

use std::path::PathBuf;

use kilonova_keystone::Login;

use super::{CloudArgs, clouds, default_clouds};
use crate::failure::Failure;

/// Credentials for a cloud.
pub(super) enum Credentials {
    /// A password login.
    Login(Login),
    /// An existing token.
    Token(String),
}

/// The credentials and settings of a cloud.
pub(super) struct Found {
    pub credentials: Credentials,
    pub cafile: Option<PathBuf>,
    pub region: Option<String>,
    /// `public`, `internal` or `admin`.
    pub interface: String,
}

/// Finds the credentials; `variable` returns a non-empty environment variable.
pub(super) fn find(
    arguments: &CloudArgs,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Found, Failure> {
    let interface = variable("OS_INTERFACE").or_else(|| variable("OS_ENDPOINT_TYPE"));
    let interface = interface.unwrap_or_else(|| "public".to_owned());
    let interface = interface.trim_end_matches("URL").to_owned();
    let cafile = arguments.os_cacert.clone().or_else(|| variable("OS_CACERT").map(PathBuf::from));
    if let Some(name) = arguments.os_cloud.clone().or_else(|| variable("OS_CLOUD")) {
        let file = arguments.clouds.clone().unwrap_or_else(default_clouds);
        let cloud = clouds::read(&file, &name)?;
        return Ok(Found {
            credentials: Credentials::Login(cloud.login),
            cafile: cafile.or(cloud.cafile),
            region: cloud.region.or_else(|| variable("OS_REGION_NAME")),
            interface,
        });
    }
    let region = variable("OS_REGION_NAME");
    if let Some(token) = variable("OS_TOKEN").or_else(|| variable("OS_AUTH_TOKEN"))
        && variable("OS_PASSWORD").is_none()
    {
        if arguments.compute_url.is_none() {
            let why = "OS_TOKEN provides no catalog; set --compute-url to the compute API";
            return Err(Failure::Refused(why.into()));
        }
        return Ok(Found { credentials: Credentials::Token(token), cafile, region, interface });
    }
    let needed = |name: &str| {
        variable(name).ok_or_else(|| {
            Failure::Refused(format!(
                "no credentials: {name} is not set; `source` an openrc, or use --os-cloud NAME"
            ))
        })
    };
    let domain = |name: &str| variable(name).unwrap_or_else(|| "Default".to_owned());
    let login = Login {
        auth_url: needed("OS_AUTH_URL")?,
        username: needed("OS_USERNAME")?,
        password: needed("OS_PASSWORD")?,
        user_domain_name: domain("OS_USER_DOMAIN_NAME"),
        project_name: needed("OS_PROJECT_NAME")?,
        project_domain_name: domain("OS_PROJECT_DOMAIN_NAME"),
    };
    Ok(Found { credentials: Credentials::Login(login), cafile, region, interface })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn arguments() -> CloudArgs {
        CloudArgs { os_cloud: None, clouds: None, os_cacert: None, compute_url: None }
    }

    fn find_with(arguments: &CloudArgs, have: &[(&str, &str)]) -> Result<Found, Failure> {
        let have: HashMap<&str, &str> = have.iter().copied().collect();
        find(arguments, &|name| have.get(name).map(|text| (*text).to_owned()))
    }

    #[test]
    fn an_openrc_suffices() {
        let rc = [
            ("OS_AUTH_URL", "http://k/v3"),
            ("OS_USERNAME", "ann"),
            ("OS_PASSWORD", "secret"),
            ("OS_PROJECT_NAME", "red"),
            ("OS_INTERFACE", "internalURL"),
            ("OS_CACERT", "/ca.pem"),
        ];
        let found = find_with(&arguments(), &rc).unwrap_or_else(|e| panic!("{e}"));
        let Credentials::Login(login) = found.credentials else { panic!("expected a login") };
        assert_eq!((login.username.as_str(), login.user_domain_name.as_str()), ("ann", "Default"));
        assert_eq!((found.interface.as_str(), found.cafile), ("internal", Some("/ca.pem".into())));
        for missing in ["OS_AUTH_URL", "OS_USERNAME", "OS_PASSWORD", "OS_PROJECT_NAME"] {
            let less: Vec<_> = rc.into_iter().filter(|(name, _)| *name != missing).collect();
            let message =
                find_with(&arguments(), &less).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(message.contains(missing) && message.contains("--os-cloud"), "{message}");
        }
    }

    #[test]
    fn a_token_requires_a_compute_url() {
        let message = find_with(&arguments(), &[("OS_TOKEN", "t")]).err().map(|e| e.to_string());
        assert!(message.unwrap_or_default().contains("--compute-url"));
        let arguments = CloudArgs { compute_url: Some("http://c/v2.1".into()), ..arguments() };
        let found = find_with(&arguments, &[("OS_TOKEN", "t")]).unwrap_or_else(|e| panic!("{e}"));
        assert!(matches!(found.credentials, Credentials::Token(token) if token == "t"));
    }
}
