//! The picture on the display of a simulated guest: its server's name on a grey background, and
//! below it the typed text, in capitals three dots wide and five dots high.

/// The width in pixels.
pub(super) const WIDTH: u16 = 640;
/// The height in pixels.
pub(super) const HEIGHT: u16 = 400;
const GROUND: u8 = 0x60;
const INK: u8 = 0xf0;
/// Maximum side of a dot, in pixels.
const LARGEST_DOT: u16 = 8;

/// The rows of each letter from above; the lowest bit is the rightmost dot.
const LETTERS: &[(u8, [u8; 5])] = &[
    (b'A', [0b010, 0b101, 0b111, 0b101, 0b101]),
    (b'B', [0b110, 0b101, 0b110, 0b101, 0b110]),
    (b'C', [0b011, 0b100, 0b100, 0b100, 0b011]),
    (b'D', [0b110, 0b101, 0b101, 0b101, 0b110]),
    (b'E', [0b111, 0b100, 0b110, 0b100, 0b111]),
    (b'F', [0b111, 0b100, 0b110, 0b100, 0b100]),
    (b'G', [0b011, 0b100, 0b101, 0b101, 0b011]),
    (b'H', [0b101, 0b101, 0b111, 0b101, 0b101]),
    (b'I', [0b111, 0b010, 0b010, 0b010, 0b111]),
    (b'J', [0b001, 0b001, 0b001, 0b101, 0b010]),
    (b'K', [0b101, 0b101, 0b110, 0b101, 0b101]),
    (b'L', [0b100, 0b100, 0b100, 0b100, 0b111]),
    (b'M', [0b101, 0b111, 0b111, 0b101, 0b101]),
    (b'N', [0b110, 0b101, 0b101, 0b101, 0b101]),
    (b'O', [0b010, 0b101, 0b101, 0b101, 0b010]),
    (b'P', [0b110, 0b101, 0b110, 0b100, 0b100]),
    (b'Q', [0b010, 0b101, 0b101, 0b110, 0b011]),
    (b'R', [0b110, 0b101, 0b110, 0b101, 0b101]),
    (b'S', [0b011, 0b100, 0b010, 0b001, 0b110]),
    (b'T', [0b111, 0b010, 0b010, 0b010, 0b010]),
    (b'U', [0b101, 0b101, 0b101, 0b101, 0b111]),
    (b'V', [0b101, 0b101, 0b101, 0b101, 0b010]),
    (b'W', [0b101, 0b101, 0b111, 0b111, 0b101]),
    (b'X', [0b101, 0b101, 0b010, 0b101, 0b101]),
    (b'Y', [0b101, 0b101, 0b010, 0b010, 0b010]),
    (b'Z', [0b111, 0b001, 0b010, 0b100, 0b111]),
    (b'0', [0b111, 0b101, 0b101, 0b101, 0b111]),
    (b'1', [0b010, 0b110, 0b010, 0b010, 0b111]),
    (b'2', [0b110, 0b001, 0b010, 0b100, 0b111]),
    (b'3', [0b110, 0b001, 0b010, 0b001, 0b110]),
    (b'4', [0b101, 0b101, 0b111, 0b001, 0b001]),
    (b'5', [0b111, 0b100, 0b110, 0b001, 0b110]),
    (b'6', [0b011, 0b100, 0b111, 0b101, 0b111]),
    (b'7', [0b111, 0b001, 0b010, 0b010, 0b010]),
    (b'8', [0b111, 0b101, 0b111, 0b101, 0b111]),
    (b'9', [0b111, 0b101, 0b111, 0b001, 0b110]),
    (b'-', [0b000, 0b000, 0b111, 0b000, 0b000]),
    (b'_', [0b000, 0b000, 0b000, 0b000, 0b111]),
    (b'.', [0b000, 0b000, 0b000, 0b000, 0b010]),
    (b':', [0b000, 0b010, 0b000, 0b010, 0b000]),
];

/// A name and the typed text, ready to draw.
#[derive(Debug)]
pub(super) struct Picture {
    name: Line,
    typed: Line,
}

/// A line of text.
#[derive(Debug)]
struct Line {
    letters: Vec<[u8; 5]>,
    dot: u16,
}

impl Picture {
    /// The picture of a name and the typed text.
    pub(super) fn of(name: &str, typed: &str) -> Self {
        Self { name: Line::of(name), typed: Line::of(typed) }
    }

    /// The grey of a pixel.
    pub(super) fn grey(&self, x: u16, y: u16) -> u8 {
        // The name has a row of dots above and one below.
        let below = self.name.dot * 7;
        let is_ink = match y.checked_sub(below) {
            None => self.name.is_ink(x, y),
            Some(y) => self.typed.is_ink(x, y),
        };
        if is_ink { INK } else { GROUND }
    }
}

impl Line {
    /// A line; a character without a glyph in [`LETTERS`] is a gap.
    fn of(text: &str) -> Self {
        let most = usize::from(WIDTH / 4);
        let letter = |c: char| {
            let byte = u8::try_from(c.to_ascii_uppercase()).unwrap_or(b' ');
            LETTERS.iter().find(|(known, _)| *known == byte).map_or([0; 5], |(_, rows)| *rows)
        };
        let letters: Vec<_> = text.chars().take(most).map(letter).collect();
        let columns = u16::try_from(letters.len() * 4).unwrap_or(WIDTH).max(1);
        Self { dot: (WIDTH / columns).clamp(1, LARGEST_DOT), letters }
    }

    /// True if a pixel of the line belongs to a letter.
    fn is_ink(&self, x: u16, y: u16) -> bool {
        let (column, row) = (usize::from(x / self.dot), usize::from(y / self.dot));
        // One row of dots above the letters.
        let rows = self.letters.get(column / 4);
        let bits = row.checked_sub(1).and_then(|row| rows?.get(row)).copied().unwrap_or_default();
        column % 4 < 3 && bits >> (2 - column % 4) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_be_read() {
        let picture = Picture::of("i-7", "7");
        let dot = picture.name.dot;
        let drawn = |rows: std::ops::Range<u16>, columns: u16| {
            let mut drawn = String::new();
            for row in rows {
                for column in 0..columns {
                    let grey = picture.grey(column * dot, row * dot);
                    drawn.push(if grey == INK { '#' } else { ' ' });
                }
                drawn.push('\n');
            }
            drawn
        };
        let expected = "###     ###\n #        #\n #  ###  # \n #       # \n###      # \n";
        let squeezed = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        assert_eq!(squeezed(&drawn(1..6, 11)), squeezed(expected));
        let expected = "###\n  #\n #\n #\n #\n";
        assert_eq!(squeezed(&drawn(8..13, 3)), squeezed(expected));
    }

    #[test]
    fn the_longest_name_fits() {
        let picture = Picture::of(&"ü".repeat(255), "");
        assert!((0..WIDTH).all(|x| picture.grey(x, HEIGHT - 1) == GROUND));
        assert_eq!(Picture::of("", "").grey(0, 0), GROUND);
    }
}
