//! Tables that fit the terminal, whatever script their cells are in.

use crate::errors::Failure;
use crate::output::Output;
use crate::style::Ink;
use crate::text;

const GAP: &str = "  ";
/// The flexible column is not made narrower than this.
const MIN_FLEXIBLE: usize = 12;

/// How a column is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
    /// Words that are cut when the line is too long.
    Flexible,
}

/// A cell: a line of clean text and its colour.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    ink: Ink,
}

/// A cell of clean text.
pub(crate) fn cell(ink: Ink, text: impl AsRef<str>) -> Cell {
    Cell { text: text::one_line(text.as_ref()), ink }
}

/// Rows under headings. A column that is empty in every row is left out.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row, a cell for each column.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Writes the table.
    pub(crate) fn write(&self, out: &mut Output) -> Result<(), Failure> {
        let widths = self.widths(out.width());
        let titles: Vec<_> = self.columns.iter().map(|(title, _)| cell(Ink::Dim, title)).collect();
        for row in std::iter::once(&titles).chain(&self.rows) {
            let line = self.line(row, &widths, out);
            out.line(line.trim_end())?;
        }
        Ok(())
    }

    /// The width of each column; 0 leaves it out.
    fn widths(&self, line: usize) -> Vec<usize> {
        let widest =
            |index: usize| self.rows.iter().filter_map(|row| row.get(index)).map(|cell| text::width(&cell.text)).max();
        let mut widths: Vec<usize> = (0..self.columns.len())
            .map(|index| widest(index).unwrap_or(0))
            .zip(&self.columns)
            .map(|(widest, (title, _))| if widest == 0 { 0 } else { widest.max(text::width(title)) })
            .collect();
        let used = widths.iter().filter(|width| **width > 0).map(|width| width + GAP.len()).sum::<usize>();
        let excess = used.saturating_sub(GAP.len()).saturating_sub(line);
        for (width, (_, align)) in widths.iter_mut().zip(&self.columns) {
            if *align == Align::Flexible && *width > 0 {
                *width = width.saturating_sub(excess).max(MIN_FLEXIBLE.min(*width));
            }
        }
        widths
    }

    fn line(&self, row: &[Cell], widths: &[usize], out: &Output) -> String {
        let mut line = String::new();
        for ((cell, width), (_, align)) in row.iter().zip(widths).zip(&self.columns) {
            if *width == 0 {
                continue;
            }
            if !line.is_empty() {
                line.push_str(GAP);
            }
            let text = text::cut(&cell.text, *width);
            let padding = " ".repeat(width.saturating_sub(text::width(&text)));
            let text = out.paint(cell.ink, &text);
            match align {
                Align::Right => line.extend([&padding, &text].map(String::as_str)),
                Align::Left | Align::Flexible => line.extend([&text, &padding].map(String::as_str)),
            }
        }
        line
    }
}
