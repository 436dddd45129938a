//! Runs QEMU on a prepared guest. The guest's output comes over a virtio port,
//! its kernel's messages over the serial line into a file, which is shown when
//! the guest dies.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::process::{Cmd, ended};

/// Before the exit status, in the last line that the guest writes.
const STATUS: &str = "@@ guest status ";
/// Lines of the kernel's messages that are shown when the guest dies.
const SHOWN_LINES: usize = 60;

/// Boots, hands over each line of the output, gives the command's status.
pub fn run(
    work: &Path,
    vmlinux: &Path,
    initrd: &Path,
    disk: &Path,
    timeout_s: u64,
    mut each: impl FnMut(&str),
) -> Result<i32> {
    let console = work.join("console.log");
    let start = Instant::now();
    let mut first = None;
    let mut status = None;
    let ran = Cmd::new("qemu-system-x86_64")
        // One thread for both CPUs. With one each, a CPU could go on executing
        // an instruction that the other had patched (QEMU 7.2): tracepoints
        // are switched on and off by a breakpoint that then never went away,
        // and both CPUs ran into it for ever.
        .args(["-accel", "tcg,thread=single", "-cpu", "Nehalem"])
        .args(["-smp", "2", "-m", "2048", "-no-reboot"])
        .args(["-nodefaults", "-display", "none", "-vga", "none"])
        .arg("-kernel")
        .arg(vmlinux)
        .arg("-initrd")
        .arg(initrd)
        .args([
            "-append",
            // Expedited grace periods: attaching and detaching wait for many.
            "console=ttyS0 panic=-1 quiet mitigations=off nokaslr cryptomgr.notests \
             rcupdate.rcu_expedited=1 rdinit=/init",
        ])
        .args(["-drive", &drive(disk)])
        .args(["-device", "virtio-blk-pci,drive=root"])
        .args(["-serial", &format!("file:{}", console.display())])
        .args(["-device", "virtio-serial-pci"])
        // Not stdio, which hangs up when its input ends, and the port with it.
        .args(["-chardev", "file,id=results,path=/dev/stdout"])
        .args(["-device", "virtserialport,chardev=results,name=results"])
        .timeout_s(timeout_s)
        .scan(|line| {
            first.get_or_insert_with(|| start.elapsed());
            if let Some(number) = line.strip_prefix(STATUS) {
                status = number.trim().parse().ok();
            } else {
                each(line);
            }
        });
    let log = fs::read(&console).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    match (ran, status) {
        (Ok(_), Some(status)) => {
            let boot = first.unwrap_or_default().as_secs_f64();
            let total = start.elapsed().as_secs_f64();
            println!("vm: first output after {boot:.1} s, off after {total:.1} s");
            Ok(status)
        }
        (Ok(exit), None) => bail!(
            "the guest ended without a result (QEMU {}); its console:\n{}",
            ended(exit),
            last_lines(&log)
        ),
        (Err(error), _) => bail!("{error:#}; the guest's console:\n{}", last_lines(&log)),
    }
}

/// QEMU splits options at commas; a comma of a file name is doubled.
fn drive(disk: &Path) -> String {
    let file = disk.display().to_string().replace(',', ",,");
    // The image is thrown away: nothing of it need be safe on the host.
    format!("file={file},format=raw,if=none,id=root,cache=unsafe,discard=unmap")
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}
