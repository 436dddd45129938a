//! The binary: parse, run, exit status.

use clap::Parser;
use std::{io, process::ExitCode};

fn main() -> ExitCode {
    match writepath::cli::run(writepath::cli::Cli::parse()) {
        Ok(status) => status,
        Err(error) => {
            let broken_pipe = error
                .chain()
                .filter_map(|cause| cause.downcast_ref::<io::Error>())
                .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe);
            // Who reads the output has read enough.
            if broken_pipe {
                return ExitCode::SUCCESS;
            }
            // What was typed comes back in errors.
            let text = writepath::output::escape::terminal(format!("{error:#}").as_bytes());
            eprintln!("writepath: {text}");
            ExitCode::from(writepath::cli::status::FAILURE)
        }
    }
}
