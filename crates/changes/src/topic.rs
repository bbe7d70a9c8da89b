//! The topics of the log.

/// The kind of an entry, which determines its subject and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// The provider tree whose root is the subject.
    Tree,
    /// The documents of the host that is the subject; the number is its newest generation.
    Documents,
    /// The row of the host that is the subject: its registration, zone and state, or its deletion.
    Host,
    /// Builds on the host that is the subject; the number counts failures since the last success.
    Builds,
    /// The host aggregates and their members.
    Aggregates,
    /// Users, projects, roles, credentials or tokens.
    Identity,
    /// Revoked certificates of hosts.
    Revoked,
    /// Networks, ports and security groups whose changes hosts need.
    Networks,
}

impl Topic {
    /// Every topic.
    pub const ALL: [Self; 8] = [
        Self::Tree,
        Self::Documents,
        Self::Host,
        Self::Builds,
        Self::Aggregates,
        Self::Identity,
        Self::Revoked,
        Self::Networks,
    ];

    /// The topic in the table.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Documents => "documents",
            Self::Host => "host",
            Self::Builds => "builds",
            Self::Aggregates => "aggregates",
            Self::Identity => "identity",
            Self::Revoked => "revoked",
            Self::Networks => "networks",
        }
    }

    /// The topic of a row; `None` for one of a newer controller, which this one ignores.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|topic| topic.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::Topic;

    #[test]
    fn every_topic_is_read_as_it_is_written() {
        for topic in Topic::ALL {
            assert_eq!(Topic::parse(topic.as_str()), Some(topic));
        }
        assert_eq!(Topic::parse("of a newer controller"), None);
    }
}
