//! Writes XML from a tree. Text and attributes are escaped here and nowhere else.

use std::fmt::{Display, Write};

/// An element.
#[derive(Debug, Clone)]
pub(crate) struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Clone)]
enum Part {
    Element(Element),
    /// Serialized XML that consists of whole lines.
    Raw(String),
}

impl Element {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, attributes: Vec::new(), content: Content::Parts(Vec::new()) }
    }

    /// An element with text content.
    pub(crate) fn text(name: &'static str, text: impl Display) -> Self {
        Self { content: Content::Text(text.to_string()), ..Self::new(name) }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Display) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    /// Adds the attribute if there is a value.
    pub(crate) fn with_some(self, name: &'static str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    pub(crate) fn push(&mut self, child: Element) {
        self.part(Part::Element(child));
    }

    pub(crate) fn child(mut self, child: Element) -> Self {
        self.push(child);
        self
    }

    pub(crate) fn children(mut self, children: impl IntoIterator<Item = Element>) -> Self {
        children.into_iter().for_each(|child| self.push(child));
        self
    }

    /// Appends serialized XML.
    pub(crate) fn raw(mut self, xml: String) -> Self {
        self.part(Part::Raw(xml));
        self
    }

    fn part(&mut self, part: Part) {
        match &mut self.content {
            Content::Parts(parts) => parts.push(part),
            content => *content = Content::Parts(vec![part]),
        }
    }

    fn write(&self, xml: &mut String, depth: usize) -> std::fmt::Result {
        write!(xml, "{:depth$}<{}", "", self.name, depth = depth * 2)?;
        for (name, value) in &self.attributes {
            write!(xml, " {name}='")?;
            escape(xml, value, true)?;
            xml.push('\'');
        }
        match &self.content {
            Content::Parts(parts) if parts.is_empty() => writeln!(xml, "/>"),
            Content::Text(text) => {
                xml.push('>');
                escape(xml, text, false)?;
                writeln!(xml, "</{}>", self.name)
            }
            Content::Parts(parts) => {
                writeln!(xml, ">")?;
                for part in parts {
                    match part {
                        Part::Element(element) => element.write(xml, depth + 1)?,
                        Part::Raw(raw) => xml.push_str(raw),
                    }
                }
                writeln!(xml, "{:depth$}</{}>", "", self.name, depth = depth * 2)
            }
        }
    }
}

impl Display for Element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut xml = String::new();
        self.write(&mut xml, 0)?;
        f.write_str(&xml)
    }
}

fn escape(xml: &mut String, text: &str, attribute: bool) -> std::fmt::Result {
    for c in text.chars() {
        match c {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '\'' if attribute => xml.push_str("&apos;"),
            '\t' | '\n' | '\r' => write!(xml, "&#{};", u32::from(c))?,
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => xml.push('\u{fffd}'),
            c => xml.push(c),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_breaks_out_of_the_xml() {
        let text = "</a><b c='\"&\n\u{1}";
        let xml = Element::new("a")
            .with("b", text)
            .child(Element::text("c", text))
            .child(Element::new("d"))
            .to_string();
        assert!(xml.ends_with("  <d/>\n</a>\n"), "{xml}");
        let document = roxmltree::Document::parse(&xml).expect("the domain XML is valid");
        let meant = text.replace('\u{1}', "\u{fffd}");
        assert_eq!(document.root_element().attribute("b"), Some(meant.as_str()));
        assert_eq!(
            document.root_element().first_element_child().and_then(|c| c.text()),
            Some(&*meant)
        );
    }
}
