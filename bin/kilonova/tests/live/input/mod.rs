//! Bad input: what is wrong is named, nothing is a 500, nothing of the inside shows.

mod bodies;
mod images;
mod names;
mod projects;
mod size;
mod things;
mod tokens;
mod versions;
