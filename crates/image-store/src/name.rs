//! Names of objects.

use std::fmt;

/// The name of an object: `<image>.<upload>`, both of them UUIDs. It is safe as the name of a file and
/// in a URL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName(String);

impl ObjectName {
    /// A new name for the bytes of an image.
    pub fn new(image: impl fmt::Display) -> Self {
        Self(format!("{image}.{}", uuid::Uuid::new_v4().simple()))
    }

    /// Parses a name; `None` if [`ObjectName::new`] never creates such a name.
    pub fn parse(text: &str) -> Option<Self> {
        let (image, upload) = text.split_once('.')?;
        let ours = image.len() == 36
            && uuid::Uuid::try_parse(image).is_ok()
            && upload.len() == 32
            && upload.bytes().all(|b| b.is_ascii_hexdigit());
        ours.then(|| Self(text.to_owned()))
    }

    /// The image's id in the name.
    pub fn image(&self) -> &str {
        self.0.split_once('.').map_or("", |(image, _)| image)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_ours_are_names() {
        let image = "0b5a5c1c-2d7c-4f4c-8a0e-111111111111";
        let name = ObjectName::new(image);
        assert_eq!(name.image(), image);
        assert_eq!(ObjectName::parse(name.as_str()).unwrap(), name);
        for other in ["", "notes.txt", "../x.0", &format!("{name}.new"), &format!("x{name}")] {
            assert_eq!(ObjectName::parse(other), None, "{other}");
        }
    }
}
