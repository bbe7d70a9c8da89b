//! The right side of a check: text in which `%(name)s` is replaced by a value of the target.

use std::borrow::Cow;
use std::fmt;

use crate::{Problem, Target};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Value(String),
}

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Vec<Piece>);

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// Returns an error for a `%` that is neither `%(name)s` nor `%%`.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let wrong = || Problem::Pattern(text.to_owned());
        let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some((before, after)) = rest.split_once('%') {
            plain.push_str(before);
            if let Some(after) = after.strip_prefix('%') {
                plain.push('%');
                rest = after;
                continue;
            }
            let inner = after.strip_prefix('(').ok_or_else(wrong)?;
            let (name, after) = inner.split_once(')').ok_or_else(wrong)?;
            rest = after.strip_prefix('s').filter(|_| !name.is_empty()).ok_or_else(wrong)?;
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Value(name.to_owned()));
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self(pieces))
    }

    /// A text without placeholders.
    pub(crate) fn text(text: &str) -> Self {
        Self(vec![Piece::Text(text.to_owned())])
    }

    /// The names of the values that it needs.
    pub(crate) fn needs(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Value(name) => Some(name.as_str()),
        })
    }

    /// The text for one target; `None` if the target lacks a value.
    pub fn fill(&self, target: Target<'_>) -> Option<Cow<'_, str>> {
        if let [Piece::Text(text)] = self.0.as_slice() {
            return Some(Cow::Borrowed(text));
        }
        let mut filled = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Value(name) => {
                    let (_, value) = target.iter().find(|(have, _)| have == name)?;
                    filled.push_str(value);
                }
            }
        }
        Some(Cow::Owned(filled))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => f.write_str(&text.replace('%', "%%"))?,
                Piece::Value(name) => write!(f, "%({name})s")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_put_in() {
        let pattern = Pattern::parse("a-%(x)s-%(y.z)s%%").expect("the pattern is valid");
        let filled = pattern.fill(&[("x", "1"), ("y.z", "2")]);
        assert_eq!(filled.as_deref(), Some("a-1-2%"));
        assert_eq!(pattern.fill(&[("x", "1")]), None, "the target lacks a value");
        assert_eq!(pattern.to_string(), "a-%(x)s-%(y.z)s%%");
        for wrong in ["%", "%s", "%(x", "%(x)", "%(x)d", "%()s", "a%b"] {
            assert_eq!(Pattern::parse(wrong), Err(Problem::Pattern(wrong.into())), "{wrong}");
        }
    }
}
