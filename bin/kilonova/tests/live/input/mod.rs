//! Invalid input: the error names what is wrong, is never a 500, and shows no internals.

mod bodies;
mod images;
mod names;
mod projects;
mod size;
mod tokens;
mod unknown_resources;
mod versions;
