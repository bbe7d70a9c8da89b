//! accelerator
