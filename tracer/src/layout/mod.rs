//! Layouts of records and structures of the running kernel.
//!
//! Pure parsers of tracefs `format` text and of BTF bytes: no files are
//! opened here. Entry types: [`format::Format`] and [`btf::Btf`].

pub mod btf;
pub mod format;
