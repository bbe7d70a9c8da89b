//! The tables of the compute service and the statements on them.
