//! The table of hooks.

use tracer_common::btf as b;

/// How a program is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Raw tracepoint: the kernel's own arguments; cheap, and never skipped
    /// because another program was interrupted.
    Raw,
    /// Tracepoint: the record that tracefs describes; on every kernel.
    Plain,
}

/// An answer that depends on hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// Sums of sectors.
    Sectors,
    /// By which path.
    Paths,
    /// Why at that moment.
    Triggers,
    /// Which file.
    Files,
    /// Which process dirtied it.
    Dirtiers,
    /// Why the journal committed.
    Commits,
    /// Every write, in recordings that are to hold them.
    Writes,
}

impl Answer {
    /// As `doctor` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sectors => "sectors",
            Self::Paths => "paths",
            Self::Triggers => "triggers",
            Self::Files => "files",
            Self::Dirtiers => "dirtiers",
            Self::Commits => "commits",
            Self::Writes => "writes",
        }
    }
}

/// One way to attach a hook.
#[derive(Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Name of the eBPF program.
    pub program: &'static str,
    /// How.
    pub kind: Kind,
    /// Where: all of them.
    pub events: &'static [&'static str],
    /// Members of structures that the program cannot do without.
    pub members: &'static [usize],
    /// Arguments that must be pointers to these structures.
    pub arguments: &'static [(usize, &'static str)],
}

/// A place in the kernel that the tracer wants to hear from.
#[derive(Debug)]
pub struct Hook {
    /// Short name.
    pub name: &'static str,
    /// Nothing works without it.
    pub required: bool,
    /// Only a kernel with ext4 (built in or loaded) has it.
    pub ext4: bool,
    /// Not needed where this event exists.
    pub unless: Option<&'static str>,
    /// Not needed where a bio of direct I/O tells its file by itself, to a
    /// program that sees the bio ([`SEES_BIOS`]).
    pub for_direct: bool,
    /// Which answer suffers without it, and how.
    pub answer: Answer,
    /// What is lost without it.
    pub lost: &'static str,
    /// Alternatives, best first.
    pub candidates: &'static [Candidate],
}

pub(super) const fn plain(program: &'static str, events: &'static [&'static str]) -> Candidate {
    Candidate {
        program,
        kind: Kind::Plain,
        events,
        members: &[],
        arguments: &[],
    }
}

pub(super) const fn raw(
    program: &'static str,
    events: &'static [&'static str],
    members: &'static [usize],
    arguments: &'static [(usize, &'static str)],
) -> Candidate {
    Candidate {
        program,
        kind: Kind::Raw,
        events,
        members,
        arguments,
    }
}

pub(super) const fn ext4(
    name: &'static str,
    answer: Answer,
    lost: &'static str,
    candidates: &'static [Candidate],
) -> Hook {
    Hook {
        name,
        required: false,
        ext4: true,
        unless: None,
        for_direct: false,
        answer,
        lost,
        candidates,
    }
}

const fn core(
    name: &'static str,
    answer: Answer,
    lost: &'static str,
    candidates: &'static [Candidate],
) -> Hook {
    Hook {
        name,
        required: false,
        ext4: false,
        unless: None,
        for_direct: false,
        answer,
        lost,
        candidates,
    }
}

/// The program that sees the kernel's bio, by which direct I/O tells its file.
pub const SEES_BIOS: &str = "raw_bio_queue";

const INODE: &[usize] = &[b::INODE_INO, b::INODE_SB, b::SB_DEV];

/// All hooks, in order of attachment: contexts before bios, and completions
/// before submissions, so that no bio that was kept completes unheard.
pub const HOOKS: &[Hook] = &[
    core(
        "process names",
        Answer::Dirtiers,
        "names after exec",
        &[plain("tp_process_exec", &["sched/sched_process_exec"])],
    ),
    core(
        "process tree",
        Answer::Dirtiers,
        "the command's children are not marked",
        &[plain("tp_process_fork", &["sched/sched_process_fork"])],
    ),
    core(
        "process end",
        Answer::Paths,
        "contexts of ended tasks stay",
        &[plain("tp_process_free", &["sched/sched_process_free"])],
    ),
    core(
        "journal waker",
        Answer::Commits,
        "commits are told by who waits in fsync alone",
        &[
            raw(
                "raw_sched_waking",
                &["sched/sched_waking"],
                &[b::TASK_PID],
                &[(0, "task_struct")],
            ),
            plain("tp_sched_waking", &["sched/sched_waking"]),
        ],
    ),
    core(
        "flusher requests",
        Answer::Triggers,
        "write-back for sync does not name who asked",
        &[raw(
            "raw_writeback_queue",
            &["writeback/writeback_queue"],
            &[],
            &[],
        )],
    ),
    core(
        "flusher work",
        Answer::Triggers,
        "write-back for sync does not name who asked",
        &[raw(
            "raw_writeback_exec",
            &["writeback/writeback_exec"],
            &[],
            &[],
        )],
    ),
    core(
        "flusher's own rounds",
        Answer::Triggers,
        "write-back may name who asked for the round before",
        &[raw(
            "raw_writeback_start",
            &["writeback/writeback_start"],
            &[],
            &[],
        )],
    ),
    core(
        "flusher rounds",
        Answer::Paths,
        "write-back is not told from other paths",
        &[plain("tp_writeback_start", &["writeback/writeback_start"])],
    ),
    core(
        "flusher rounds end",
        Answer::Paths,
        "write-back is not told from other paths",
        &[plain(
            "tp_writeback_written",
            &["writeback/writeback_written"],
        )],
    ),
    core(
        "pages dirtied",
        Answer::Dirtiers,
        "stores into file mappings and raw buffered writes have no dirtier",
        &[raw(
            "raw_dirty_folio",
            &["writeback/writeback_dirty_folio"],
            &[b::MAPPING_HOST, b::INODE_INO, b::INODE_SB, b::SB_DEV],
            &[(1, "address_space")],
        )],
    ),
    ext4(
        "writes",
        Answer::Dirtiers,
        "buffered writes have no dirtier",
        &[
            raw(
                "raw_write_end",
                &["ext4/ext4_da_write_end"],
                INODE,
                &[(0, "inode")],
            ),
            plain("tp_da_write_end", &["ext4/ext4_da_write_end"]),
        ],
    ),
    ext4(
        "writes without delayed allocation",
        Answer::Dirtiers,
        "buffered writes without delayed allocation have no dirtier",
        &[
            raw(
                "raw_write_end",
                &["ext4/ext4_write_end"],
                INODE,
                &[(0, "inode")],
            ),
            plain("tp_write_end", &["ext4/ext4_write_end"]),
        ],
    ),
    ext4(
        "journalled writes",
        Answer::Dirtiers,
        "writes of data=journal have no dirtier",
        &[
            raw(
                "raw_write_end",
                &["ext4/ext4_journalled_write_end"],
                INODE,
                &[(0, "inode")],
            ),
            plain(
                "tp_journalled_write_end",
                &["ext4/ext4_journalled_write_end"],
            ),
        ],
    ),
    ext4(
        "freed inodes",
        Answer::Files,
        "a re-used inode number keeps its first name",
        &[plain("tp_free_inode", &["ext4/ext4_free_inode"])],
    ),
    ext4(
        "sync of a file",
        Answer::Paths,
        "fsync is not told from other calls",
        &[
            raw(
                "raw_sync_file_enter",
                &["ext4/ext4_sync_file_enter"],
                &[b::FILE_INODE, b::INODE_INO, b::INODE_SB, b::SB_DEV],
                &[(0, "file")],
            ),
            plain("tp_sync_file_enter", &["ext4/ext4_sync_file_enter"]),
        ],
    ),
    ext4(
        "sync of a file ends",
        Answer::Paths,
        "fsync is not told from other calls",
        &[plain("tp_sync_file_exit", &["ext4/ext4_sync_file_exit"])],
    ),
    ext4(
        "pages written back",
        Answer::Files,
        "file data has no file",
        &[
            raw(
                "raw_writepages",
                &["ext4/ext4_writepages"],
                INODE,
                &[(0, "inode")],
            ),
            plain("tp_writepages", &["ext4/ext4_writepages"]),
        ],
    ),
    ext4(
        "pages written back end",
        Answer::Files,
        "file data has no file",
        &[plain(
            "tp_writepages_result",
            &["ext4/ext4_writepages_result"],
        )],
    ),
    Hook {
        for_direct: true,
        ..ext4(
            "direct I/O",
            Answer::Files,
            "direct I/O counts as raw, without a file",
            &[
                raw(
                    "raw_dio_begin",
                    &["iomap/iomap_dio_rw_begin"],
                    &[
                        b::KIOCB_FILE,
                        b::FILE_INODE,
                        b::ITER_COUNT,
                        b::INODE_INO,
                        b::INODE_SB,
                        b::SB_DEV,
                    ],
                    &[(0, "kiocb"), (1, "iov_iter")],
                ),
                plain("tp_dio_begin", &["iomap/iomap_dio_rw_begin"]),
                plain(
                    "tp_es_lookup_extent_exit",
                    &["ext4/ext4_es_lookup_extent_exit"],
                ),
            ],
        )
    },
    Hook {
        unless: Some("iomap/iomap_dio_rw_begin"),
        for_direct: true,
        ..ext4(
            "direct I/O to new blocks",
            Answer::Files,
            "direct I/O to new blocks counts as raw, without a file",
            &[plain(
                "tp_es_insert_extent",
                &["ext4/ext4_es_insert_extent"],
            )],
        )
    },
    ext4(
        "commit starts",
        Answer::Commits,
        "commits are not seen; journal writes count as metadata",
        &[plain("tp_start_commit", &["jbd2/jbd2_start_commit"])],
    ),
    ext4(
        "commit locks",
        Answer::Commits,
        "no duration of this phase",
        &[plain("tp_commit_locking", &["jbd2/jbd2_commit_locking"])],
    ),
    ext4(
        "commit flushes",
        Answer::Commits,
        "no duration of this phase",
        &[plain("tp_commit_flushing", &["jbd2/jbd2_commit_flushing"])],
    ),
    ext4(
        "commit logs",
        Answer::Commits,
        "no duration of this phase",
        &[plain("tp_commit_logging", &["jbd2/jbd2_commit_logging"])],
    ),
    ext4(
        "commit statistics",
        Answer::Commits,
        "no handles and blocks of commits",
        &[plain("tp_run_stats", &["jbd2/jbd2_run_stats"])],
    ),
    ext4(
        "commit ends",
        Answer::Commits,
        "commits are not seen",
        &[plain("tp_end_commit", &["jbd2/jbd2_end_commit"])],
    ),
    ext4(
        "ordered data",
        Answer::Paths,
        "ordered data has no file where it does not pass writepages",
        &[plain(
            "tp_submit_inode_data",
            &["jbd2/jbd2_submit_inode_data"],
        )],
    ),
    ext4(
        "journal superblock",
        Answer::Paths,
        "the journal's superblock counts as metadata",
        &[plain(
            "tp_write_superblock",
            &["jbd2/jbd2_write_superblock"],
        )],
    ),
    ext4(
        "checkpoints",
        Answer::Triggers,
        "checkpoints have the call as their trigger",
        &[plain("tp_checkpoint", &["jbd2/jbd2_checkpoint"])],
    ),
    ext4(
        "handles start",
        Answer::Triggers,
        "the end of a checkpoint is not seen",
        &[
            raw("raw_handle_start", &["jbd2/jbd2_handle_start"], &[], &[]),
            plain("tp_handle_start", &["jbd2/jbd2_handle_start"]),
        ],
    ),
    ext4(
        "handles",
        Answer::Commits,
        "synchronous handles are told by the stack alone",
        &[
            raw("raw_handle_stats", &["jbd2/jbd2_handle_stats"], &[], &[]),
            plain("tp_handle_stats", &["jbd2/jbd2_handle_stats"]),
        ],
    ),
    ext4(
        "fast commits",
        Answer::Paths,
        "fast commits count as metadata",
        &[plain(
            "tp_fast_commit_start",
            &["ext4/ext4_fc_commit_start"],
        )],
    ),
    ext4(
        "fast commits end",
        Answer::Paths,
        "fast commits count as metadata",
        &[plain("tp_fast_commit_stop", &["ext4/ext4_fc_commit_stop"])],
    ),
    ext4(
        "sync of a filesystem",
        Answer::Commits,
        "sync and umount are told by the stack alone",
        &[plain("tp_sync_fs", &["ext4/ext4_sync_fs"])],
    ),
    core(
        "bios cut",
        Answer::Sectors,
        "parts of large bios are unattributed",
        &[plain("tp_split", &["block/block_split"])],
    ),
    Hook {
        name: "requests completed",
        required: true,
        ext4: false,
        unless: None,
        for_direct: false,
        answer: Answer::Sectors,
        lost: "everything",
        candidates: &[
            raw(
                "raw_rq_complete",
                &["block/block_rq_complete"],
                &[
                    b::RQ_QUEUE,
                    b::RQ_FLAGS,
                    b::RQ_SECTOR,
                    b::QUEUE_DISK,
                    b::DISK_MAJOR,
                    b::DISK_MINOR,
                ],
                &[(0, "request")],
            ),
            plain("tp_rq_complete", &["block/block_rq_complete"]),
        ],
    },
    Hook {
        name: "bios submitted",
        required: true,
        ext4: false,
        unless: None,
        for_direct: false,
        answer: Answer::Sectors,
        lost: "everything",
        candidates: &[
            raw(
                SEES_BIOS,
                &["block/block_bio_queue"],
                &[
                    b::BIO_OPF,
                    b::BIO_BDEV,
                    b::BIO_SECTOR,
                    b::BIO_SIZE,
                    b::BDEV_DEV,
                ],
                &[(0, "bio")],
            ),
            plain("tp_bio_queue", &["block/block_bio_queue"]),
        ],
    },
];
