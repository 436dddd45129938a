//! Hooks of a recording with every write. They are attached after all others,
//! whose contexts they read, and only where they are asked for.

use super::hooks::{Answer, Hook, ext4, plain, raw};
use tracer_common::btf as b;

/// The hooks, in order of attachment.
pub const WRITES: &[Hook] = &[
    ext4(
        "kept writes",
        Answer::Writes,
        "no buffered writes",
        &[plain("tp_keep_da_write_end", &["ext4/ext4_da_write_end"])],
    ),
    ext4(
        "kept writes without delayed allocation",
        Answer::Writes,
        "no buffered writes without delayed allocation",
        &[plain("tp_keep_write_end", &["ext4/ext4_write_end"])],
    ),
    ext4(
        "kept journalled writes",
        Answer::Writes,
        "no writes of data=journal",
        &[plain(
            "tp_keep_journalled_write_end",
            &["ext4/ext4_journalled_write_end"],
        )],
    ),
    ext4(
        "kept stores",
        Answer::Writes,
        "no stores into file mappings",
        &[raw(
            "raw_keep_dirty_folio",
            &["writeback/writeback_dirty_folio"],
            &[
                b::MAPPING_HOST,
                b::INODE_INO,
                b::INODE_SB,
                b::SB_DEV,
                b::FOLIO_INDEX,
            ],
            &[(0, "folio"), (1, "address_space")],
        )],
    ),
    ext4(
        "kept touches",
        Answer::Writes,
        "no touches of inodes",
        &[plain(
            "tp_keep_mark_inode_dirty",
            &["ext4/ext4_mark_inode_dirty"],
        )],
    ),
    ext4(
        "kept syncs",
        Answer::Writes,
        "no syncs of files",
        &[plain("tp_keep_sync_file", &["ext4/ext4_sync_file_enter"])],
    ),
    ext4(
        "kept syncs of filesystems",
        Answer::Writes,
        "no syncs of filesystems",
        &[plain("tp_keep_sync_fs", &["ext4/ext4_sync_fs"])],
    ),
    ext4(
        "kept flushes",
        Answer::Writes,
        "not when dirty pages were submitted",
        &[plain(
            "tp_keep_writepages",
            &["ext4/ext4_writepages_result"],
        )],
    ),
    ext4(
        "kept truncations",
        Answer::Writes,
        "no truncations",
        &[
            raw(
                "raw_keep_truncate",
                &["ext4/ext4_truncate_enter"],
                &[b::INODE_INO, b::INODE_SB, b::SB_DEV, b::INODE_SIZE],
                &[(0, "inode")],
            ),
            plain("tp_keep_truncate", &["ext4/ext4_truncate_enter"]),
        ],
    ),
    ext4(
        "kept evictions",
        Answer::Writes,
        "no evictions of deleted files",
        &[plain("tp_keep_evict", &["ext4/ext4_evict_inode"])],
    ),
    ext4(
        "kept rounds of the flusher",
        Answer::Writes,
        "not when the flusher woke",
        &[plain("tp_keep_round", &["writeback/writeback_start"])],
    ),
];
