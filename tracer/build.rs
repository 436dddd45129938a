//! Finds the eBPF object that `cargo xtask build` made, for `include_bytes`.

use std::{env, path::PathBuf};

fn main() {
    println!("cargo::rerun-if-env-changed=WRITEPATH_BPF_OBJECT");
    let object = env::var_os("WRITEPATH_BPF_OBJECT").map_or_else(
        || {
            PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default())
                .join("../target/bpf/writepath.bpf.o")
        },
        PathBuf::from,
    );
    println!("cargo::rerun-if-changed={}", object.display());
    let Ok(object) = object.canonicalize() else {
        println!(
            "cargo::error=no eBPF object at {}: run `cargo xtask build`, which makes it",
            object.display()
        );
        return;
    };
    println!("cargo::rustc-env=WRITEPATH_BPF_OBJECT={}", object.display());
}
