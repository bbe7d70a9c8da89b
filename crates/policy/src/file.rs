//! `policy.yaml`: a mapping from rule names to texts, or to lists of texts.
//!
//! Read from the parser's events and not into a general tree: what is not of this form is refused
//! with its line. Two entries of one name are refused; most YAML readers keep the last in silence.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle};

use crate::{Check, Error, Problem, parse, parse_list};

/// A rule's text as the file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// An expression.
    Text(String),
    /// The older form: any of these, each of which is "all of these".
    List(Vec<Vec<String>>),
}

/// One entry of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// Which rule.
    pub name: String,
    /// What it says.
    pub written: Written,
    /// Where it stands.
    pub line: usize,
    /// In which file; empty when it was read from a text.
    pub file: String,
}

impl Override {
    /// The rules that this one names.
    ///
    /// # Errors
    /// Its text is wrong.
    pub fn needs(&self) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        self.parsed()?.named(&mut |name| names.push(name.to_owned()));
        Ok(names)
    }

    /// The rule's name and line, as errors have them.
    pub fn place(&self) -> String {
        format!("{} (line {})", self.name, self.line)
    }

    /// The error, with the file.
    #[must_use]
    pub fn blame(&self, error: Error) -> Error {
        match self.file.is_empty() {
            true => error,
            false => Error::In { file: self.file.clone(), error: Box::new(error) },
        }
    }

    /// [`Override::blame`] for an error that does not name the line itself.
    pub(crate) fn blame_line(&self, error: Error) -> Error {
        match self.file.is_empty() {
            true => error,
            false => {
                let file = format!("{}: line {}", self.file, self.line);
                Error::In { file, error: Box::new(error) }
            }
        }
    }

    pub(crate) fn parsed(&self) -> Result<Check, Error> {
        self.check().map_err(|problem| self.blame(Error::Rule { rule: self.place(), problem }))
    }

    fn check(&self) -> Result<Check, Problem> {
        match &self.written {
            Written::Text(text) => parse(text),
            Written::List(list) => parse_list(list),
        }
    }
}

/// [`read`] for a text that is a file's.
///
/// # Errors
/// As [`read`], with the file's name.
pub fn read_from(file: &str, text: &str) -> Result<Vec<Override>, Error> {
    let mut rules =
        read(text).map_err(|error| Error::In { file: file.to_owned(), error: Box::new(error) })?;
    rules.iter_mut().for_each(|rule| rule.file = file.to_owned());
    Ok(rules)
}

/// Reads a policy file; an empty one overrides nothing.
///
/// # Errors
/// No YAML, or not the form of a policy, with the line.
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
            return Err(events.wrong(&format!("{name} stands in line {first} already")));
        }
        let written = match events.next()? {
            Event::SequenceStart(..) => Written::List(events.list()?),
            other => Written::Text(events.text(other)?),
        };
        rules.push(Override { name, written, line, file: String::new() });
    }
    loop {
        match events.next()? {
            Event::StreamEnd => return Ok(rules),
            Event::DocumentStart(_) => {
                return Err(events.wrong("a second document; a policy is one"));
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
                Err(self.wrong(&format!("no YAML: {}", error.info())))
            }
            None => Ok(Event::StreamEnd),
        }
    }

    fn wrong(&self, why: &str) -> Error {
        Error::File { line: self.line, why: why.to_owned() }
    }

    /// A plain or quoted text. A tag means that quotes are missing: `!` alone is one.
    fn text(&self, event: Event<'_>) -> Result<String, Error> {
        match event {
            Event::Scalar(_, _, _, Some(_)) => {
                Err(self.wrong("a text that begins with ! has to stand in quotes"))
            }
            Event::Scalar(text, ScalarStyle::Plain, ..)
                if matches!(&*text, "" | "~" | "null" | "Null" | "NULL") =>
            {
                Err(self.wrong("a text is missing; \"@\" is for anyone, \"!\" for nobody"))
            }
            Event::Scalar(text, ..) => Ok(text.into_owned()),
            Event::Alias(_) => Err(self.wrong("aliases are not supported; write the text again")),
            _ => Err(self.wrong("a text is expected")),
        }
    }

    /// The rest of a list of texts, or of lists of texts.
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
        .expect("well formed");
        let shown: Vec<(&str, usize, String)> = rules
            .iter()
            .map(|rule| (rule.name.as_str(), rule.line, rule.check().expect("fine").to_string()))
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
    fn what_is_no_policy_is_refused_with_its_line() {
        for (text, line, why) in [
            ("- a\n", 1, "mapping"),
            ("a: '@'\nb: !\n", 2, "in quotes"),
            ("a: '@'\n\nb:\n", 3, "text is missing"),
            ("a: '@'\na: '!'\n", 2, "in line 1 already"),
            ("a: {b: c}\n", 1, "text is expected"),
            ("a: '@'\nb: @\n", 2, "no YAML"),
            ("a: &x '@'\nb: *x\n", 2, "aliases"),
            ("a: '@'\n---\nb: '@'\n", 2, "second document"),
            ("a: [['x', ['y']]]\n", 1, "text is expected"),
        ] {
            match read(text) {
                Err(Error::File { line: at, why: said }) => {
                    assert!(said.contains(why), "{text:?}: {said}");
                    assert_eq!(at, line, "{text:?}: {said}");
                }
                other => panic!("{text:?}: {other:?}"),
            }
        }
    }
}
