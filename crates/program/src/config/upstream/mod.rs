//! The options of nova.conf, placement.conf and cyborg.conf, each with its fate in Kilonova.
//!
//! `options.txt` is the table, which the programs and the documentation read through this module. The values and the
//! meaning of a used option belong to the module that uses it.

#[cfg(test)]
mod document;
mod parse;

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

/// A configuration file of upstream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceFile {
    /// nova.conf.
    Nova,
    /// placement.conf.
    Placement,
    /// cyborg.conf.
    Cyborg,
}

impl SourceFile {
    /// All of them; an option of several files is looked up in this order.
    pub const ALL: [Self; 3] = [Self::Nova, Self::Placement, Self::Cyborg];

    /// The usual name of the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nova => "nova.conf",
            Self::Placement => "placement.conf",
            Self::Cyborg => "cyborg.conf",
        }
    }
}

/// The programs that use an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Users {
    /// `kilonova serve`.
    Controller,
    /// `kilonova-agent`.
    Agent,
    /// Both programs.
    Both,
}

impl Users {
    /// True if `kilonova serve` uses the option.
    pub fn has_controller(self) -> bool {
        matches!(self, Self::Controller | Self::Both)
    }

    /// True if `kilonova-agent` uses the option.
    pub fn has_agent(self) -> bool {
        matches!(self, Self::Agent | Self::Both)
    }
}

impl fmt::Display for Users {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Controller => "kilonova serve",
            Self::Agent => "kilonova-agent",
            Self::Both => "kilonova serve, kilonova-agent",
        })
    }
}

/// The fate of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// The programs use it.
    Used(Users),
    /// It is accepted without effect, for this reason.
    NoEffect(&'static str),
    /// It is accepted without effect until Kilonova has the feature.
    Later(&'static str),
    /// It is accepted with these values, which describe Kilonova's behaviour. Others are refused for
    /// this reason.
    Only(Vec<&'static str>, &'static str),
    /// It is refused, for this reason.
    Refused(&'static str),
}

/// An option of upstream's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamOption {
    /// The files that may contain it.
    pub files: Vec<SourceFile>,
    /// Its group.
    pub group: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its deprecated names, with their groups.
    pub old: Vec<(&'static str, &'static str)>,
    /// Its effect in Kilonova.
    pub fate: Fate,
}

impl UpstreamOption {
    /// Decides about a value.
    pub fn judge(&self, value: &str) -> Verdict {
        match &self.fate {
            Fate::Used(users) => Verdict::Used(*users),
            Fate::NoEffect(why) => Verdict::NoEffect { why, later: false },
            Fate::Later(why) => Verdict::NoEffect { why, later: true },
            Fate::Only(values, why) => {
                let plain = plain(value);
                if plain.is_empty() || values.iter().any(|one| *one == plain) {
                    let why = "Kilonova always behaves as if this value were set.";
                    return Verdict::NoEffect { why, later: false };
                }
                let values = values.join(" or ");
                Verdict::Refused(format!("expected {values}. {why}"))
            }
            Fate::Refused(_) if value.trim().is_empty() => {
                Verdict::NoEffect { why: "It has no value.", later: false }
            }
            Fate::Refused(why) => Verdict::Refused((*why).to_owned()),
        }
    }
}

/// The decision about an option with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// These programs use the option.
    Used(Users),
    /// The option is accepted without effect.
    NoEffect {
        /// The reason.
        why: &'static str,
        /// True if a feature of upstream's is missing.
        later: bool,
    },
    /// The option is refused with this reason.
    Refused(String),
}

/// A value as the table spells it: Boolean values are `true` or `false`, as oslo.config reads them.
fn plain(value: &str) -> String {
    let value = value.trim();
    match value.to_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => "true".into(),
        "false" | "no" | "off" | "0" => "false".into(),
        _ => value.to_owned(),
    }
}

struct Table {
    options: Vec<UpstreamOption>,
    places: HashMap<(&'static str, &'static str), Vec<usize>>,
    groups: std::collections::HashSet<&'static str>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let (options, _) = parse::table(parse::TEXT);
    let mut places: HashMap<_, Vec<usize>> = HashMap::new();
    let current = options.iter().enumerate().map(|(at, one)| ((one.group, one.name), at));
    let old = options.iter().enumerate();
    let old = old.flat_map(|(at, one)| one.old.iter().map(move |place| (*place, at)));
    for (place, at) in current.chain(old) {
        places.entry(place).or_default().push(at);
    }
    let groups = options.iter().map(|one| one.group).collect();
    Table { options, places, groups }
});

/// All options, in the order of the table.
pub fn all() -> &'static [UpstreamOption] {
    &TABLE.options
}

/// The option of this name, current or deprecated, with dashes or underscores. With a file only its
/// options are considered.
pub fn find(
    file: Option<SourceFile>,
    group: &str,
    option: &str,
) -> Option<&'static UpstreamOption> {
    let table = &*TABLE;
    let spelt = option.replace('-', "_");
    let mut found = table.places.get(&(group, spelt.as_str()))?.iter();
    let at = match file {
        Some(file) => found.find(|at| table.options[**at].files.contains(&file)),
        None => found.next(),
    };
    at.map(|at| &table.options[*at])
}

/// True if upstream has a group of this name.
pub fn is_group(group: &str) -> bool {
    TABLE.groups.contains(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_understood() {
        let (options, wrong) = parse::table(parse::TEXT);
        assert_eq!(wrong, Vec::<String>::new());
        assert!(options.len() > 1000, "{}", options.len());
        for (at, one) in options.iter().enumerate() {
            let again = options[at + 1..].iter().find(|other| {
                (other.group, other.name) == (one.group, one.name)
                    && other.files.iter().any(|file| one.files.contains(file))
            });
            assert_eq!(again, None, "an option has one fate");
        }
    }

    #[test]
    fn reasons_are_sentences() {
        for one in all() {
            let (Fate::NoEffect(why) | Fate::Later(why) | Fate::Only(_, why) | Fate::Refused(why)) =
                &one.fate
            else {
                continue;
            };
            let is_command = why.contains(": openstack ");
            assert!(why.ends_with('.') && why.contains(' ') || is_command, "{why}");
        }
    }

    #[test]
    fn the_document_is_that_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/nova-conf.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, document::document()).expect("docs/nova-conf.md is written");
        }
        let kept = std::fs::read_to_string(path).expect("docs/nova-conf.md is readable");
        assert!(
            kept == document::document(),
            "run `UPDATE_DOCS=1 cargo nextest run -p kilonova-program upstream`"
        );
    }

    #[test]
    fn an_option_is_found_by_each_of_its_names() {
        let found = |group, option| find(None, group, option).map(|one| (one.group, one.name));
        assert_eq!(found("quota", "cores"), Some(("quota", "cores")));
        assert_eq!(found("DEFAULT", "quota_cores"), Some(("quota", "cores")));
        assert_eq!(found("neutron", "auth-url"), Some(("neutron", "auth_url")));
        assert_eq!(found("neutron", "auth_plugin"), Some(("neutron", "auth_type")));
        assert_eq!(found("quota", "core"), None);
        let nova = |file| find(Some(file), "nova", "password").is_some();
        assert!(nova(SourceFile::Cyborg) && !nova(SourceFile::Nova));
    }

    #[test]
    fn values_decide_where_ignoring_an_option_would_be_dangerous() {
        let judge = |group, option, value| {
            find(None, group, option).expect("the option is known").judge(value)
        };
        let harmless = |verdict| matches!(verdict, Verdict::NoEffect { .. });
        assert!(harmless(judge("glance", "verify_glance_signatures", "False")));
        assert!(harmless(judge("glance", "verify_glance_signatures", "0")));
        let refused = judge("glance", "verify_glance_signatures", "True");
        assert!(matches!(refused, Verdict::Refused(why) if why.contains("signatures")));
        assert!(harmless(judge("quota", "cores", "20")));
        assert!(matches!(judge("quota", "cores", "-1"), Verdict::Refused(_)));
        assert!(harmless(judge("DEFAULT", "default_schedule_zone", "")));
        assert!(matches!(judge("DEFAULT", "default_schedule_zone", "az1"), Verdict::Refused(_)));
        assert_eq!(judge("DEFAULT", "my_ip", "x"), Verdict::Used(Users::Agent));
    }
}
