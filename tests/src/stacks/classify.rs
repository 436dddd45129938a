//! One bio and its kernel stack in, one path (and trigger, where the stack
//! knows it) out. Pure. Entry: [`classify`].
//!
//! The innermost function that says what is written decides first, because a
//! call may write several kinds of things: a commit writes file data and the
//! log, a direct write flushes the cache, `O_SYNC` does both.

use super::table::{self, Role};
use super::trace::Event;

/// Where a bio belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Verdict {
    pub path: &'static str,
    /// None where the stack does not tell (the flusher's reason, a commit's
    /// trigger).
    pub trigger: Option<&'static str>,
}

/// What a function further in has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Unknown,
    Data,
    Metadata,
    Raw,
}

/// The verdict of the stack of a submitted write, or None when the table does
/// not know enough of its functions.
pub fn classify(event: &Event) -> Option<Verdict> {
    let mut content = Content::Unknown;
    for function in &event.stack {
        let Some(role) = table::role(function) else {
            continue;
        };
        match role {
            Role::Path(path, trigger) if content == Content::Unknown => {
                let by_call = || {
                    matches!(path, "direct" | "raw")
                        .then(|| call(event))
                        .flatten()
                };
                return Some(Verdict {
                    path,
                    trigger: trigger.or_else(by_call),
                });
            }
            Role::Data if content == Content::Unknown => content = Content::Data,
            Role::Metadata if content == Content::Unknown => content = Content::Metadata,
            Role::Device if content == Content::Unknown => {
                content = if event.is_meta() {
                    Content::Metadata
                } else {
                    Content::Raw
                };
            }
            Role::Commit => {
                let path = match content {
                    Content::Data => "ordered",
                    _ => "journal",
                };
                return Some(Verdict {
                    path,
                    trigger: None,
                });
            }
            Role::Cause(cause, trigger) => return caused(event, content, cause, trigger),
            Role::Path(..) | Role::Data | Role::Metadata | Role::Device => {}
        }
    }
    // No cause in the table: the call itself is all there is. Metadata and
    // raw pages have their path without one.
    let path = match content {
        Content::Metadata => "metadata",
        Content::Raw => "raw",
        Content::Data | Content::Unknown => return None,
    };
    Some(Verdict {
        path,
        trigger: call(event),
    })
}

/// The path of `content` when `cause` made it be written.
fn caused(
    event: &Event,
    content: Content,
    cause: &'static str,
    trigger: Option<&'static str>,
) -> Option<Verdict> {
    let verdict = match content {
        Content::Data if cause != "metadata" => Verdict {
            path: cause,
            trigger: match cause {
                "fsync" => trigger.or_else(|| sync_call(event)),
                "forced" if trigger == Some("close") && on_exit(event) => Some("exit"),
                "forced" => trigger.or_else(|| direct_io(event)),
                _ => trigger,
            },
        },
        Content::Metadata => Verdict {
            path: "metadata",
            trigger: match cause {
                "fsync" => sync_call(event),
                _ => trigger,
            },
        },
        Content::Raw => Verdict {
            path: "raw",
            trigger: call(event),
        },
        // A call of the table that writes something the table cannot name.
        Content::Data | Content::Unknown => return None,
    };
    Some(verdict)
}

/// The outermost system call of the stack, as a trigger.
fn call(event: &Event) -> Option<&'static str> {
    if event.stack.iter().any(|f| f == table::URING_WORKER) {
        return Some("io_uring");
    }
    let name = event.stack.iter().rev().find_map(|f| table::syscall(f))?;
    let found = table::CALLS.iter().find(|(call, _)| *call == name);
    found.map(|(_, trigger)| *trigger)
}

/// The call inside which a file was synced: a write that had to be durable
/// is not named by its own name.
fn sync_call(event: &Event) -> Option<&'static str> {
    let trigger = call(event)?;
    let named = ["fsync", "fdatasync", "msync", "sync_file_range", "io_uring"];
    if named.contains(&trigger) {
        Some(trigger)
    } else {
        Some(table::SYNC_WRITE)
    }
}

fn on_exit(event: &Event) -> bool {
    event.stack.iter().any(|f| f == "do_exit")
}

/// Dirty pages in the way of a direct read or write.
fn direct_io(event: &Event) -> Option<&'static str> {
    let has = |name: &str| event.stack.iter().any(|f| f == name);
    if has("ext4_file_read_iter") {
        Some("read")
    } else if has("ext4_file_write_iter") {
        Some("direct-io")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::trace;

    /// Real stacks, each under a line `# path trigger`.
    const REAL: [&str; 2] = [
        include_str!("../../fixtures/stacks/6.18.trace"),
        include_str!("../../fixtures/stacks/6.1.trace"),
    ];

    fn bio(rwbs: &str, stack: &str) -> Event {
        Event {
            kind: trace::Kind::Queue,
            pid: 1,
            time_us: 0,
            rwbs: rwbs.to_owned(),
            sector: 0,
            sectors: 8,
            stack: stack.split(" < ").map(str::to_owned).collect(),
        }
    }

    fn path(rwbs: &str, stack: &str) -> Option<&'static str> {
        classify(&bio(rwbs, stack)).map(|v| v.path)
    }

    #[test]
    fn every_recorded_stack_gets_the_path_written_beside_it() {
        let mut checked = 0;
        for block in REAL.iter().flat_map(|text| text.split("# ").skip(1)) {
            let (expected, text) = block.split_once('\n').expect("an expectation per event");
            let events = trace::parse(text).expect("parses");
            let [event] = &events[..] else {
                panic!("one event below `{expected}`, not {}", events.len());
            };
            let got = classify(event).map_or_else(
                || "?".to_owned(),
                |v| format!("{} {}", v.path, v.trigger.unwrap_or("-")),
            );
            assert_eq!(got, expected, "{event:#?}");
            checked += 1;
        }
        assert!(checked > 100, "only {checked} stacks in the fixtures");
    }

    #[test]
    fn names_of_6_1_that_the_recording_lacks() {
        let swap = "submit_bio < __swap_writepage < swap_writepage < pageout < shrink_page_list";
        assert_eq!(path("W", swap), Some("swap"));
        let superblock = "submit_bh < __sync_dirty_buffer < ext4_commit_super < ext4_put_super";
        assert_eq!(path("WSM", superblock), Some("fs"));
    }

    #[test]
    fn pages_of_the_device_are_metadata_only_when_marked() {
        let device = "__block_write_full_folio < blkdev_writepages < do_writepages < wb_workfn";
        assert_eq!(path("WM", device), Some("metadata"));
        assert_eq!(path("W", device), Some("raw"));
    }

    #[test]
    fn what_the_table_does_not_know_stays_unknown() {
        assert_eq!(
            path("WS", "submit_bio < process_one_work < worker_thread"),
            None
        );
        assert_eq!(
            path(
                "WS",
                "submit_bio < ext4_writepages < do_writepages < new_call"
            ),
            None
        );
        assert_eq!(path("WS", ""), None);
    }

    #[test]
    fn fast_commit_of_one_file_orders_the_data_of_others() {
        let data = "ext4_io_submit < ext4_writepages < do_writepages < jbd2_submit_inode_data";
        assert_eq!(
            path("WS", &format!("{data} < ext4_fc_commit < ext4_sync_file")),
            Some("ordered")
        );
    }
}
