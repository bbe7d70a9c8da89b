//! The contents of a token and its form on the wire: a few bytes sealed with Fernet.
//!
//! A token contains only ids, times, and the scope and methods of the login. Names, roles and enabled
//! states are read at validation, so that changes affect issued tokens.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fernet::MultiFernet;
use jiff::Timestamp;
use kilonova_wire::time;
use uuid::Uuid;

/// Maximum length of a token. Longer ones cannot be ours and are not decrypted.
const LONGEST: usize = 1024;
const VERSION: u8 = 1;

/// The authentication method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// A password.
    Password,
    /// Another token.
    Token,
    /// An application credential.
    ApplicationCredential,
    /// A signature by an EC2 credential. A token of this method, and one that was created with such a token, is only for
    /// other services.
    Ec2,
}

impl Method {
    const ALL: [Self; 4] = [Self::Password, Self::Token, Self::ApplicationCredential, Self::Ec2];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::Token => "token",
            Self::ApplicationCredential => "application_credential",
            Self::Ec2 => "ec2credential",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The scope of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// No scope.
    Unscoped,
    /// A project.
    Project(Uuid),
    /// The only domain.
    Domain,
    /// The whole cloud.
    System,
}

impl Scope {
    /// The project of a project scope.
    pub fn project(self) -> Option<Uuid> {
        match self {
            Self::Project(id) => Some(id),
            Self::Unscoped | Self::Domain | Self::System => None,
        }
    }
}

const PROJECT: u8 = 1;
const CREDENTIAL: u8 = 2;
const SYSTEM: u8 = 4;
const DOMAIN: u8 = 8;
const TRUST: u8 = 16;

/// The contents of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The user.
    pub user: Uuid,
    /// The scope.
    pub scope: Scope,
    /// The trust that the user logged in with.
    pub trust: Option<Uuid>,
    /// The application credential that the user logged in with.
    pub application_credential: Option<Uuid>,
    /// The authentication methods used.
    pub methods: Vec<Method>,
    /// The token's audit id and, after rescoping, that of the original token.
    pub audit: Vec<[u8; 16]>,
    /// When it was issued.
    pub issued: Timestamp,
    /// When it expires.
    pub expires: Timestamp,
}

impl Token {
    /// The audit ids in their displayed form.
    pub fn audit_ids(&self) -> Vec<String> {
        self.audit.iter().map(|id| URL_SAFE_NO_PAD.encode(id)).collect()
    }

    /// The audit id of this token.
    pub fn audit_id(&self) -> String {
        self.audit.first().map(|id| URL_SAFE_NO_PAD.encode(id)).unwrap_or_default()
    }

    pub(crate) fn seal(&self, keys: &MultiFernet) -> String {
        keys.encrypt(&self.encode())
    }

    pub(crate) fn unseal(keys: &MultiFernet, text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        Self::decode(&keys.decrypt(text).ok()?)
    }

    /// True if the text has the form of a Fernet token: URL-safe base64 that begins with the
    /// version byte.
    pub(crate) fn is_plausible(text: &str) -> bool {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'=');
        text.len() <= LONGEST && text.starts_with("gAAAAA") && text.bytes().all(fits)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, self.methods.iter().fold(0, |bits, m| bits | m.bit())];
        let mut flags = match self.scope {
            Scope::Unscoped => 0,
            Scope::Project(_) => PROJECT,
            Scope::Domain => DOMAIN,
            Scope::System => SYSTEM,
        };
        if self.application_credential.is_some() {
            flags |= CREDENTIAL;
        }
        if self.trust.is_some() {
            flags |= TRUST;
        }
        out.push(flags);
        out.extend(self.user.as_bytes());
        let project = self.scope.project();
        for id in project.iter().chain(&self.application_credential).chain(&self.trust) {
            out.extend(id.as_bytes());
        }
        out.extend(self.issued.as_microsecond().to_be_bytes());
        out.extend(self.expires.as_microsecond().to_be_bytes());
        out.extend(self.audit.concat());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[version, methods, flags], mut rest) = bytes.split_first_chunk()?;
        if version != VERSION || flags > (PROJECT | CREDENTIAL | SYSTEM | DOMAIN | TRUST) {
            return None;
        }
        let user = take_uuid(&mut rest)?;
        let scope = match flags & (PROJECT | SYSTEM | DOMAIN) {
            0 => Scope::Unscoped,
            PROJECT => Scope::Project(take_uuid(&mut rest)?),
            SYSTEM => Scope::System,
            DOMAIN => Scope::Domain,
            _ => return None,
        };
        let mut optional = |flag: u8| match flags & flag {
            0 => Some(None),
            _ => take_uuid(&mut rest).map(Some),
        };
        let application_credential = optional(CREDENTIAL)?;
        let trust = optional(TRUST)?;
        let issued = take_time(&mut rest)?;
        let expires = take_time(&mut rest)?;
        let (audit, extra) = rest.as_chunks::<16>();
        if audit.is_empty() || audit.len() > 2 || !extra.is_empty() {
            return None;
        }
        Some(Self {
            user,
            scope,
            trust,
            application_credential,
            methods: Method::ALL.into_iter().filter(|m| methods & m.bit() != 0).collect(),
            audit: audit.to_vec(),
            issued,
            expires,
        })
    }
}

fn take_uuid(rest: &mut &[u8]) -> Option<Uuid> {
    let (head, tail) = rest.split_first_chunk::<16>()?;
    *rest = tail;
    Some(Uuid::from_bytes(*head))
}

fn take_time(rest: &mut &[u8]) -> Option<Timestamp> {
    let (head, tail) = rest.split_first_chunk::<8>()?;
    *rest = tail;
    time::from_micros(i64::from_be_bytes(*head))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> MultiFernet {
        let key = fernet::Fernet::generate_key();
        MultiFernet::new(vec![fernet::Fernet::new(&key).unwrap()])
    }

    fn moment() -> impl Strategy<Value = Timestamp> {
        let limits = Timestamp::MIN.as_microsecond()..=Timestamp::MAX.as_microsecond();
        limits.prop_map(|micros| time::from_micros(micros).unwrap())
    }

    proptest! {
        #[test]
        fn a_token_survives_the_round_trip(
            user: u128, project: u128, kind in 0u8..4, credential: Option<u128>,
            trust: Option<u128>,
            issued in moment(), expires in moment(), first: [u8; 16], second: Option<[u8; 16]>,
            bits in 0u8..16,
        ) {
            let token = Token {
                user: Uuid::from_u128(user),
                scope: match kind {
                    0 => Scope::Unscoped,
                    1 => Scope::Project(Uuid::from_u128(project)),
                    2 => Scope::Domain,
                    _ => Scope::System,
                },
                trust: trust.map(Uuid::from_u128),
                application_credential: credential.map(Uuid::from_u128),
                methods: Method::ALL.into_iter().filter(|m| bits & m.bit() != 0).collect(),
                audit: std::iter::once(first).chain(second).collect(),
                issued,
                expires,
            };
            prop_assert_eq!(Token::decode(&token.encode()), Some(token.clone()));
            let keys = keys();
            let sealed = token.seal(&keys);
            prop_assert!(sealed.len() < 300);
            prop_assert!(Token::is_plausible(&sealed));
            prop_assert_eq!(Token::unseal(&keys, &sealed), Some(token));
        }

        #[test]
        fn garbage_is_refused(bytes: Vec<u8>, text: String) {
            if let Some(token) = Token::decode(&bytes) {
                prop_assert!(token.audit.len() <= 2);
            }
            prop_assert_eq!(Token::unseal(&keys(), &text), None);
        }
    }

    #[test]
    fn a_foreign_or_overlong_token_is_refused() {
        let token = Token {
            user: Uuid::nil(),
            scope: Scope::Unscoped,
            trust: None,
            application_credential: None,
            methods: vec![Method::Password],
            audit: vec![[0; 16]],
            issued: Timestamp::UNIX_EPOCH,
            expires: Timestamp::UNIX_EPOCH,
        };
        let (ours, theirs) = (keys(), keys());
        assert_eq!(Token::unseal(&ours, &token.seal(&theirs)), None);
        assert_eq!(Token::unseal(&ours, &"g".repeat(1_000_000)), None);
    }
}
