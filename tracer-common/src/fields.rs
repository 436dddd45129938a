//! Where the programs find their fields, read from the running kernel at
//! start: tracepoint fields from tracefs `format` files, members of kernel
//! structures from BTF. Nothing is fixed at build time.

/// Place of one field in a record or a structure.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Offset in bytes; [`Field::ABSENT`] when this kernel has none.
    pub offset: u16,
    /// Size in bytes.
    pub size: u16,
}

impl Field {
    /// This kernel does not have the field.
    pub const ABSENT: Self = Self {
        offset: u16::MAX,
        size: 0,
    };

    /// Whether this kernel has the field.
    #[inline(always)]
    pub const fn present(self) -> bool {
        self.offset != u16::MAX
    }
}

macro_rules! table {
    ($(#[$doc:meta])* $name:ident, $module:ident: $($id:ident = $owner:literal $field:literal),+ $(,)?) => {
        #[doc = concat!("Indices of [`", stringify!($name), "`](super::", stringify!($name), ").")]
        #[allow(missing_docs)]
        pub mod $module {
            #[repr(usize)]
            #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
            enum Index { $($id),+, COUNT }
            $(pub const $id: usize = Index::$id as usize;)+
            pub const COUNT: usize = Index::COUNT as usize;
        }
        $(#[$doc])*
        pub const $name: [(&str, &str); $module::COUNT] = [$(($owner, $field)),+];
    };
}

table! {
    /// Every tracepoint field that a program reads: event and field.
    FIELDS, tp:
    BIOQ_DEV = "block/block_bio_queue" "dev",
    BIOQ_SECTOR = "block/block_bio_queue" "sector",
    BIOQ_NR = "block/block_bio_queue" "nr_sector",
    BIOQ_RWBS = "block/block_bio_queue" "rwbs",
    SPLIT_DEV = "block/block_split" "dev",
    SPLIT_SECTOR = "block/block_split" "sector",
    SPLIT_NEW = "block/block_split" "new_sector",
    SPLIT_RWBS = "block/block_split" "rwbs",
    RQC_DEV = "block/block_rq_complete" "dev",
    RQC_SECTOR = "block/block_rq_complete" "sector",
    RQC_NR = "block/block_rq_complete" "nr_sector",
    RQC_ERROR = "block/block_rq_complete" "error",
    RQC_RWBS = "block/block_rq_complete" "rwbs",
    WP_DEV = "ext4/ext4_writepages" "dev",
    WP_INO = "ext4/ext4_writepages" "ino",
    WPR_DEV = "ext4/ext4_writepages_result" "dev",
    WPR_INO = "ext4/ext4_writepages_result" "ino",
    WPR_PAGES = "ext4/ext4_writepages_result" "pages_written",
    SYNC_DEV = "ext4/ext4_sync_file_enter" "dev",
    SYNC_INO = "ext4/ext4_sync_file_enter" "ino",
    SYNC_DATA = "ext4/ext4_sync_file_enter" "datasync",
    SYNCX_DEV = "ext4/ext4_sync_file_exit" "dev",
    DAWE_DEV = "ext4/ext4_da_write_end" "dev",
    DAWE_INO = "ext4/ext4_da_write_end" "ino",
    DAWE_POS = "ext4/ext4_da_write_end" "pos",
    DAWE_COPIED = "ext4/ext4_da_write_end" "copied",
    WE_DEV = "ext4/ext4_write_end" "dev",
    WE_INO = "ext4/ext4_write_end" "ino",
    WE_POS = "ext4/ext4_write_end" "pos",
    WE_COPIED = "ext4/ext4_write_end" "copied",
    JWE_DEV = "ext4/ext4_journalled_write_end" "dev",
    JWE_INO = "ext4/ext4_journalled_write_end" "ino",
    JWE_POS = "ext4/ext4_journalled_write_end" "pos",
    JWE_COPIED = "ext4/ext4_journalled_write_end" "copied",
    DIO_DEV = "iomap/iomap_dio_rw_begin" "dev",
    DIO_INO = "iomap/iomap_dio_rw_begin" "ino",
    DIO_COUNT = "iomap/iomap_dio_rw_begin" "count",
    ESL_DEV = "ext4/ext4_es_lookup_extent_exit" "dev",
    ESL_INO = "ext4/ext4_es_lookup_extent_exit" "ino",
    ESL_PBLK = "ext4/ext4_es_lookup_extent_exit" "pblk",
    ESL_LEN = "ext4/ext4_es_lookup_extent_exit" "len",
    ESL_FOUND = "ext4/ext4_es_lookup_extent_exit" "found",
    ESI_DEV = "ext4/ext4_es_insert_extent" "dev",
    ESI_INO = "ext4/ext4_es_insert_extent" "ino",
    ESI_PBLK = "ext4/ext4_es_insert_extent" "pblk",
    ESI_LEN = "ext4/ext4_es_insert_extent" "len",
    WBS_REASON = "writeback/writeback_start" "reason",
    WBS_NAME = "writeback/writeback_start" "name",
    JSTART_DEV = "jbd2/jbd2_start_commit" "dev",
    JSTART_TID = "jbd2/jbd2_start_commit" "transaction",
    JLOCK_DEV = "jbd2/jbd2_commit_locking" "dev",
    JFLUSH_DEV = "jbd2/jbd2_commit_flushing" "dev",
    JLOG_DEV = "jbd2/jbd2_commit_logging" "dev",
    JEND_DEV = "jbd2/jbd2_end_commit" "dev",
    JEND_TID = "jbd2/jbd2_end_commit" "transaction",
    JRUN_DEV = "jbd2/jbd2_run_stats" "dev",
    JRUN_TID = "jbd2/jbd2_run_stats" "tid",
    JRUN_RUNNING = "jbd2/jbd2_run_stats" "running",
    JRUN_HANDLES = "jbd2/jbd2_run_stats" "handle_count",
    JRUN_BLOCKS = "jbd2/jbd2_run_stats" "blocks",
    JRUN_LOGGED = "jbd2/jbd2_run_stats" "blocks_logged",
    JDATA_DEV = "jbd2/jbd2_submit_inode_data" "dev",
    JDATA_INO = "jbd2/jbd2_submit_inode_data" "ino",
    JSB_DEV = "jbd2/jbd2_write_superblock" "dev",
    JCKPT_DEV = "jbd2/jbd2_checkpoint" "dev",
    JH_DEV = "jbd2/jbd2_handle_stats" "dev",
    JH_SYNC = "jbd2/jbd2_handle_stats" "sync",
    JH_DIRTIED = "jbd2/jbd2_handle_stats" "dirtied_blocks",
    FCS_DEV = "ext4/ext4_fc_commit_start" "dev",
    FCE_DEV = "ext4/ext4_fc_commit_stop" "dev",
    FCE_NBLKS = "ext4/ext4_fc_commit_stop" "nblks",
    FCE_REASON = "ext4/ext4_fc_commit_stop" "reason",
    SFS_DEV = "ext4/ext4_sync_fs" "dev",
    FREE_DEV = "ext4/ext4_free_inode" "dev",
    FREE_INO = "ext4/ext4_free_inode" "ino",
    TOUCH_DEV = "ext4/ext4_mark_inode_dirty" "dev",
    TOUCH_INO = "ext4/ext4_mark_inode_dirty" "ino",
    CUT_DEV = "ext4/ext4_truncate_enter" "dev",
    CUT_INO = "ext4/ext4_truncate_enter" "ino",
    EVICT_DEV = "ext4/ext4_evict_inode" "dev",
    EVICT_INO = "ext4/ext4_evict_inode" "ino",
    EVICT_LINKS = "ext4/ext4_evict_inode" "nlink",
    FREED_PID = "sched/sched_process_free" "pid",
    FORK_CHILD = "sched/sched_process_fork" "child_pid",
    WAKE_PID = "sched/sched_waking" "pid",
}

table! {
    /// Every member of a kernel structure that a program reads.
    BTF_MEMBERS, btf:
    BIO_OPF = "bio" "bi_opf",
    BIO_BDEV = "bio" "bi_bdev",
    BIO_SECTOR = "bio" "bi_iter.bi_sector",
    BIO_SIZE = "bio" "bi_iter.bi_size",
    BIO_IDX = "bio" "bi_iter.bi_idx",
    BIO_IO_VEC = "bio" "bi_io_vec",
    BIO_END = "bio" "bi_end_io",
    BIO_PRIVATE = "bio" "bi_private",
    DIO_KIOCB = "iomap_dio" "iocb",
    BVEC_PAGE = "bio_vec" "bv_page",
    BDEV_DEV = "block_device" "bd_dev",
    RQ_QUEUE = "request" "q",
    RQ_FLAGS = "request" "cmd_flags",
    RQ_SECTOR = "request" "__sector",
    RQ_START = "request" "start_time_ns",
    QUEUE_DISK = "request_queue" "disk",
    DISK_MAJOR = "gendisk" "major",
    DISK_MINOR = "gendisk" "first_minor",
    PAGE_HEAD = "page" "compound_head",
    PAGE_MAPPING = "page" "mapping",
    FOLIO_MAPPING = "folio" "mapping",
    FOLIO_INDEX = "folio" "index",
    FOLIO_FLAGS = "folio" "flags",
    FOLIO_ORDER = "folio" "_folio_order",
    FOLIO_FLAGS_1 = "folio" "_flags_1",
    MAPPING_HOST = "address_space" "host",
    INODE_INO = "inode" "i_ino",
    INODE_SB = "inode" "i_sb",
    INODE_DATA = "inode" "i_data",
    INODE_DENTRY = "inode" "i_dentry",
    INODE_SIZE = "inode" "i_size",
    SB_DEV = "super_block" "s_dev",
    DENTRY_PARENT = "dentry" "d_parent",
    DENTRY_NAME = "dentry" "d_name.name",
    DENTRY_ALIAS = "dentry" "d_u.d_alias",
    FILE_INODE = "file" "f_inode",
    KIOCB_FILE = "kiocb" "ki_filp",
    ITER_COUNT = "iov_iter" "count",
    ITER_SOURCE = "iov_iter" "data_source",
    TASK_PID = "task_struct" "pid",
    TASK_FLAGS = "task_struct" "flags",
    REGS_CALL = "pt_regs" "orig_ax",
    REGS_SECOND = "pt_regs" "si",
    REGS_CALL_ARM64 = "pt_regs" "syscallno",
    REGS_ARM64 = "pt_regs" "regs",
}

/// What the programs are told at load, as read-only data.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// [`ABI_VERSION`](super::ABI_VERSION).
    pub version: u32,
    /// Process id of the tracer, whose own writes are named.
    pub own_pid: u32,
    /// Bit of `bi_opf` for `REQ_SYNC`, as a mask.
    pub req_sync: u32,
    /// Mask of `REQ_META`.
    pub req_meta: u32,
    /// Mask of `REQ_FUA`.
    pub req_fua: u32,
    /// Mask of `REQ_PREFLUSH`.
    pub req_preflush: u32,
    /// Mask of `REQ_SWAP`, 0 where there is none.
    pub req_swap: u32,
    /// 1 when the running system call can be read from `pt_regs`.
    pub call_readable: u32,
    /// `REQ_OP_WRITE`, `_DISCARD`, `_SECURE_ERASE`, `_WRITE_ZEROES`, `_FLUSH`.
    pub req_op: [u8; 5],
    /// 1 when the helper `bpf_loop` can be called.
    pub loop_callable: u8,
    /// 1 when programs may compare and exchange.
    pub exchanges: u8,
    /// Number of the bit of a folio's flags that says that it has several
    /// pages, 0 where it cannot be told.
    pub head_bit: u8,
    /// Number of the system call `sync_file_range`.
    pub call_sync_file_range: u32,
    /// Number of the system call `ioctl`.
    pub call_ioctl: u32,
    /// Number of the system call `mount`.
    pub call_mount: u32,
    /// Number of the system call `fsconfig`.
    pub call_fsconfig: u32,
    /// Address of `iomap_dio_bio_end_io`, 0 where it cannot be read.
    pub direct_end: u64,
    /// [`FIELDS`].
    pub tp: [Field; tp::COUNT],
    /// [`BTF_MEMBERS`], and one more for the size to be a multiple of 8.
    pub btf: [Field; btf::COUNT],
}

impl Config {
    /// Nothing known yet.
    pub const EMPTY: Self = Self {
        version: super::ABI_VERSION,
        own_pid: 0,
        req_sync: 0,
        req_meta: 0,
        req_fua: 0,
        req_preflush: 0,
        req_swap: 0,
        call_readable: 0,
        req_op: [0; 5],
        loop_callable: 0,
        exchanges: 0,
        head_bit: 0,
        call_sync_file_range: u32::MAX,
        call_ioctl: u32::MAX,
        call_mount: u32::MAX,
        call_fsconfig: u32::MAX,
        direct_end: 0,
        tp: [Field::ABSENT; tp::COUNT],
        btf: [Field::ABSENT; btf::COUNT],
    };
}

const _: () =
    assert!(size_of::<Config>() == (64 + 4 * (tp::COUNT + btf::COUNT)).next_multiple_of(8));
