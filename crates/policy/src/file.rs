//! `policy.yaml`: a mapping from rule names to texts, or to lists of texts.
//!
//! The file is read from the parser's events rather than into a generic tree, so that an error is
//! reported with its line. Two entries with the same name are refused; most YAML readers silently
//! keep the last.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle};

use crate::{Check, Error, Problem, parse, parse_list};

/// The text of a rule in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// An expression.
    Text(String),
    /// The older form: a disjunction of conjunctions.
    List(Vec<Vec<String>>),
}

/// One entry of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// The name of the rule.
    pub name: String,
    /// Its text.
    pub written: Written,
    /// Its line.
    pub line: usize,
    /// Its file; empty if it was read from a string.
    pub file: String,
    /// True for an earlier name of other rules that stays as a helper, even in a namespace of operations.
    pub helper: bool,
}

impl Override {
    /// The rules that this rule names.
    ///
    /// # Errors
    /// Returns an error if its text is invalid.
    pub fn needs(&self) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        self.parsed()?.named(false, &mut |name, _| names.push(name.to_owned()));
        Ok(names)
    }

    /// The rule's name and line for error messages.
    pub fn place(&self) -> String {
        format!("{} (line {})", self.name, self.line)
    }

    /// Adds the file to an error.
    #[must_use]
    pub fn with_file(&self, error: Error) -> Error {
        match self.file.is_empty() {
            true => error,
            false => Error::In { file: self.file.clone(), error: Box::new(error) },
        }
    }

    /// Like [`Override::with_file`], for an error that does not contain the line.
    pub(crate) fn with_line(&self, error: Error) -> Error {
        match self.file.is_empty() {
            true => error,
            false => {
                let file = format!("{}: line {}", self.file, self.line);
                Error::In { file, error: Box::new(error) }
            }
        }
    }

    pub(crate) fn parsed(&self) -> Result<Check, Error> {
        self.check().map_err(|problem| self.with_file(Error::Rule { rule: self.place(), problem }))
    }

    fn check(&self) -> Result<Check, Problem> {
        match &self.written {
            Written::Text(text) => parse(text),
            Written::List(list) => parse_list(list),
        }
    }
}

/// Like [`read`], for the content of a file.
///
/// # Errors
/// Like [`read`], with the file's name.
pub fn read_from(file: &str, text: &str) -> Result<Vec<Override>, Error> {
    let mut rules =
        read(text).map_err(|error| Error::In { file: file.to_owned(), error: Box::new(error) })?;
    rules.iter_mut().for_each(|rule| rule.file = file.to_owned());
    Ok(rules)
}

/// Parses a policy file. An empty file overrides nothing.
///
/// # Errors
/// Invalid YAML or an invalid policy, with the line.
pub fn read(text: &str) -> Result<Vec<Override>, Error> {
    let mut events = Events { parser: Parser::new_from_str(text), line: 1 };
    let (mut rules, mut seen) = (Vec::new(), HashMap::new());
    loop {
        match events.next()? {
            Event::MappingStart(..) => break,
            Event::StreamEnd => return Ok(rules),
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            Event::Scalar(text, ScalarStyle::Plain, ..) if text.is_empty() || text == "~" => {}
            _ => return Err(events.wrong("a policy is a mapping of the form `rule: text`")),
        }
    }
    loop {
        let event = events.next()?;
        let line = events.line;
        let name = match event {
            Event::MappingEnd => break,
            other => events.text(other)?,
        };
        if let Some(first) = seen.insert(name.clone(), line) {
            return Err(events.wrong(&format!("{name} is already defined in line {first}")));
        }
        let written = match events.next()? {
            Event::SequenceStart(..) => Written::List(events.list()?),
            other => Written::Text(events.text(other)?),
        };
        rules.push(Override { name, written, line, file: String::new(), helper: false });
    }
    loop {
        match events.next()? {
            Event::StreamEnd => return Ok(rules),
            Event::DocumentStart(_) => {
                return Err(events.wrong("a policy must be a single document"));
            }
            _ => {}
        }
    }
}

struct Events<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    line: usize,
}

impl<'a> Events<'a> {
    fn next(&mut self) -> Result<Event<'a>, Error> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => {
                self.line = span.start.line();
                Ok(event)
            }
            Some(Err(error)) => {
                self.line = error.marker().line();
                Err(self.wrong(&format!("invalid YAML: {}", error.info())))
            }
            None => Ok(Event::StreamEnd),
        }
    }

    fn wrong(&self, why: &str) -> Error {
        Error::File { line: self.line, why: why.to_owned() }
    }

    /// A plain or quoted text. A YAML tag indicates missing quotes, as around a bare `!`.
    fn text(&self, event: Event<'_>) -> Result<String, Error> {
        match event {
            Event::Scalar(_, _, _, Some(_)) => {
                Err(self.wrong("a text that begins with ! must be quoted"))
            }
            Event::Scalar(text, ScalarStyle::Plain, ..)
                if matches!(&*text, "" | "~" | "null" | "Null" | "NULL") =>
            {
                Err(self.wrong("a text is missing; \"@\" allows everyone, \"!\" nobody"))
            }
            Event::Scalar(text, ..) => Ok(text.into_owned()),
            Event::Alias(_) => Err(self.wrong("aliases are not supported; repeat the text")),
            _ => Err(self.wrong("expected a text")),
        }
    }

    /// Reads the rest of a list of texts, or of lists of texts.
    fn list(&mut self) -> Result<Vec<Vec<String>>, Error> {
        let mut alternatives = Vec::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(alternatives),
                Event::SequenceStart(..) => alternatives.push(self.all()?),
                other => alternatives.push(vec![self.text(other)?]),
            }
        }
    }

    fn all(&mut self) -> Result<Vec<String>, Error> {
        let mut all = Vec::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(all),
                other => all.push(self.text(other)?),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let rules = read(
            "# operators' own\n\"a:list\": \"role:x or role:y\"\nb: ''\n\
             c: [\"role:x\", [\"role:y\", 'role:z']]\nd:\n- role:x\n",
        )
        .expect("the file is valid");
        let shown: Vec<(&str, usize, String)> = rules
            .iter()
            .map(|rule| {
                (
                    rule.name.as_str(),
                    rule.line,
                    rule.check().expect("the rule is valid").to_string(),
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("a:list", 2, "(role:x or role:y)".to_owned()),
                ("b", 3, "@".to_owned()),
                ("c", 4, "(role:x or (role:y and role:z))".to_owned()),
                ("d", 5, "role:x".to_owned()),
            ]
        );
        for empty in ["", "# nothing\n", "---\n", "{}", "{\"a\": \"@\"}"] {
            assert!(read(empty).is_ok(), "{empty:?}: {:?}", read(empty));
        }
    }

    #[test]
    fn an_invalid_policy_is_refused_with_its_line() {
        for (text, line, why) in [
            ("- a\n", 1, "mapping"),
            ("a: '@'\nb: !\n", 2, "must be quoted"),
            ("a: '@'\n\nb:\n", 3, "text is missing"),
            ("a: '@'\na: '!'\n", 2, "already defined in line 1"),
            ("a: {b: c}\n", 1, "expected a text"),
            ("a: '@'\nb: @\n", 2, "invalid YAML"),
            ("a: &x '@'\nb: *x\n", 2, "aliases"),
            ("a: '@'\n---\nb: '@'\n", 2, "single document"),
            ("a: [['x', ['y']]]\n", 1, "expected a text"),
        ] {
            match read(text) {
                Err(Error::File { line: at, why: message }) => {
                    assert!(message.contains(why), "{text:?}: {message}");
                    assert_eq!(at, line, "{text:?}: {message}");
                }
                other => panic!("{text:?}: {other:?}"),
            }
        }
    }
}
