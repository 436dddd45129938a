//! Why a journal committed, and what its commits cost.

use crate::model::{
    calls,
    record::{Commit, Waker, WakerKind},
    trigger::CommitTrigger,
};

/// Kernel functions that tell, found on the stack of the task that woke the
/// journal's thread (fs/jbd2, fs/ext4).
pub const FUNCTIONS: &[&str] = &[
    "commit_timeout",
    "ext4_sync_file",
    "ext4_should_retry_alloc",
    "jbd2_journal_force_commit_nested",
    "ext4_sync_fs",
    "ext4_force_commit",
    "ext4_freeze",
    "ext4_remount",
    "ext4_reconfigure",
    "ext4_put_super",
    "jbd2_journal_destroy",
    "jbd2_journal_flush",
    "__jbd2_log_wait_for_space",
    "jbd2_log_wait_for_space",
    "jbd2_log_do_checkpoint",
    "add_transaction_credits",
    "start_this_handle",
    "jbd2__journal_restart",
    "jbd2_journal_stop",
];

/// What caused a commit, and who.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Why.
    pub trigger: CommitTrigger,
    /// Who, where somebody did; never the task that a timer interrupted.
    pub by: Option<Waker>,
}

/// Decides why a commit happened.
///
/// `functions` are the interesting functions on the waker's stack, `too_old`
/// tells that the transaction had reached the commit interval, and `full_at`
/// is the least size, in blocks, of a transaction that was too large.
pub fn cause(commit: &Commit, functions: &[&str], too_old: bool, full_at: Option<u32>) -> Cause {
    if let Some(waker) = &commit.waker {
        let trigger = by_stack(waker, functions)
            .unwrap_or_else(|| by_kind(waker, functions.is_empty(), too_old));
        let innocent = trigger == CommitTrigger::Timer;
        return Cause {
            trigger,
            by: (!innocent).then(|| waker.clone()),
        };
    }
    // Nobody had to wake it: it was busy, and went on to the next commit that
    // was asked for meanwhile.
    if let Some(waiting) = &commit.waiting {
        return Cause {
            trigger: CommitTrigger::Fsync,
            by: Some(waiting.clone()),
        };
    }
    if let Some(sync) = &commit.sync_fs {
        return Cause {
            trigger: of_sync_call(sync.call),
            by: Some(sync.clone()),
        };
    }
    let trigger = if too_old {
        CommitTrigger::Timer
    } else if commit.syncing > 0 {
        CommitTrigger::Fsync
    } else if full_at.is_some_and(|blocks| commit.blocks >= blocks) {
        CommitTrigger::Space
    } else {
        CommitTrigger::Unknown
    };
    Cause { trigger, by: None }
}

/// Whether these functions show that the waker found the transaction too
/// large, rather than the log.
pub fn too_large(functions: &[&str]) -> bool {
    functions.contains(&"start_this_handle")
        && !functions
            .iter()
            .any(|name| name.ends_with("log_wait_for_space"))
}

fn by_stack(waker: &Waker, functions: &[&str]) -> Option<CommitTrigger> {
    let has = |name: &str| functions.contains(&name);
    let any = |names: &[&str]| names.iter().any(|name| has(name));
    // The timer first: it may have interrupted any of the others.
    if has("commit_timeout") {
        Some(CommitTrigger::Timer)
    } else if has("ext4_sync_file") {
        Some(CommitTrigger::Fsync)
    } else if any(&[
        "ext4_should_retry_alloc",
        "jbd2_journal_force_commit_nested",
    ]) {
        Some(CommitTrigger::NoSpace)
    } else if has("ext4_freeze") {
        Some(CommitTrigger::Freeze)
    } else if any(&["ext4_remount", "ext4_reconfigure"]) {
        Some(CommitTrigger::Remount)
    } else if any(&["ext4_put_super", "jbd2_journal_destroy"]) {
        Some(CommitTrigger::Umount)
    } else if any(&["ext4_sync_fs", "ext4_force_commit", "jbd2_journal_flush"]) {
        Some(of_sync_call(waker.call))
    } else if any(&[
        "__jbd2_log_wait_for_space",
        "jbd2_log_wait_for_space",
        "jbd2_log_do_checkpoint",
        "add_transaction_credits",
        "start_this_handle",
        "jbd2__journal_restart",
    ]) {
        Some(CommitTrigger::Space)
    } else if has("jbd2_journal_stop") {
        // It asks for a commit when the handle was synchronous, or when the
        // transaction was too old.
        Some(if waker.kind == WakerKind::SyncHandle {
            CommitTrigger::SyncHandle
        } else {
            CommitTrigger::Timer
        })
    } else {
        None
    }
}

/// Without a stack: what the task was inside of.
fn by_kind(waker: &Waker, blind: bool, too_old: bool) -> CommitTrigger {
    match waker.kind {
        WakerKind::Fsync => CommitTrigger::Fsync,
        WakerKind::SyncFs => of_sync_call(waker.call),
        _ if too_old => CommitTrigger::Timer,
        WakerKind::SyncHandle => CommitTrigger::SyncHandle,
        WakerKind::Other if blind => CommitTrigger::Space,
        WakerKind::Other => CommitTrigger::Unknown,
    }
}

fn of_sync_call(call: u16) -> CommitTrigger {
    match calls::name(call) {
        Some("umount2") => CommitTrigger::Umount,
        Some("mount" | "fsconfig" | "mount_setattr") => CommitTrigger::Remount,
        Some("freeze" | "thaw") => CommitTrigger::Freeze,
        Some("fsync" | "fdatasync") => CommitTrigger::Fsync,
        _ => CommitTrigger::Sync,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waker(kind: WakerKind, call: &str) -> Waker {
        Waker {
            kind,
            tgid: 10,
            tid: 11,
            file: 3,
            call: calls::number(call).unwrap_or(tracer_common::CALL_NONE),
            comm: b"logger".to_vec(),
            ns: 5,
            stack: Vec::new(),
        }
    }

    fn commit(waker: Option<Waker>) -> Commit {
        Commit {
            dev: 7,
            tid: 2,
            start_ns: 1,
            locking_ns: 2,
            flushing_ns: 3,
            logging_ns: 4,
            end_ns: 5,
            running_ticks: 6,
            handles: 1,
            blocks: 1,
            blocks_logged: 3,
            syncing: 0,
            waker,
            waiting: None,
            sync_fs: None,
        }
    }

    #[test]
    fn the_stack_decides() {
        let cases = [
            (
                &["jbd2_journal_stop"][..],
                WakerKind::SyncHandle,
                "mkdir",
                CommitTrigger::SyncHandle,
            ),
            (
                &["jbd2_journal_stop"],
                WakerKind::Other,
                "write",
                CommitTrigger::Timer,
            ),
            (
                &["start_this_handle"],
                WakerKind::Other,
                "openat",
                CommitTrigger::Space,
            ),
            (
                &["ext4_should_retry_alloc"],
                WakerKind::Other,
                "write",
                CommitTrigger::NoSpace,
            ),
            (
                &["ext4_sync_fs"],
                WakerKind::SyncFs,
                "umount2",
                CommitTrigger::Umount,
            ),
            (
                &["ext4_sync_fs"],
                WakerKind::SyncFs,
                "syncfs",
                CommitTrigger::Sync,
            ),
            (
                &["ext4_sync_file", "jbd2_journal_stop"],
                WakerKind::Fsync,
                "fsync",
                CommitTrigger::Fsync,
            ),
        ];
        for (functions, kind, call, expected) in cases {
            let cause = cause(&commit(Some(waker(kind, call))), functions, false, None);
            assert_eq!(cause.trigger, expected, "{functions:?}");
        }
    }

    #[test]
    fn the_timer_never_blames_whom_it_interrupted() {
        let commit = commit(Some(waker(WakerKind::Fsync, "fsync")));
        let cause = cause(&commit, &["commit_timeout", "ext4_sync_file"], true, None);
        assert_eq!(cause.trigger, CommitTrigger::Timer);
        assert_eq!(cause.by, None);
    }

    #[test]
    fn a_busy_thread_serves_who_waits() {
        let mut commit = commit(None);
        commit.waiting = Some(waker(WakerKind::Fsync, "fsync"));
        let fsync = cause(&commit, &[], true, None);
        assert_eq!(fsync.trigger, CommitTrigger::Fsync);
        assert_eq!(fsync.by.unwrap().tgid, 10);
        commit.waiting = None;
        commit.sync_fs = Some(waker(WakerKind::SyncFs, "sync"));
        assert_eq!(cause(&commit, &[], true, None).trigger, CommitTrigger::Sync);
        commit.sync_fs = None;
        assert_eq!(
            cause(&commit, &[], true, None).trigger,
            CommitTrigger::Timer
        );
        assert_eq!(
            cause(&commit, &[], false, None).trigger,
            CommitTrigger::Unknown
        );
        let full = |blocks| cause(&commit, &[], false, Some(blocks)).trigger;
        assert_eq!(full(commit.blocks), CommitTrigger::Space);
        assert_eq!(full(commit.blocks + 1), CommitTrigger::Unknown);
    }
}
