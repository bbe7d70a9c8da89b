//! compute
