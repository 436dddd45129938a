//! What this kernel tells of itself: events, types, values. Makes the
//! configuration of the programs and the facts of the plan.

use super::{exchange, symbols, tracefs::Tracefs};
use crate::{
    layout::{btf::Btf, format::Format},
    plan::Facts,
};
use std::{collections::HashMap, fs, path::Path};
use tracer_common::btf as b;
use tracer_common::{BTF_MEMBERS, Config, FIELDS, Field};

/// Flags and operations of bios where there is no BTF: the values that
/// kernels 4.10 to 6.x share (`include/linux/blk_types.h`).
const OPERATIONS: [(&str, u8); 5] = [
    ("REQ_OP_WRITE", 1),
    ("REQ_OP_DISCARD", 3),
    ("REQ_OP_SECURE_ERASE", 5),
    ("REQ_OP_WRITE_ZEROES", 9),
    ("REQ_OP_FLUSH", 2),
];

/// The running kernel, as far as it tells.
pub struct KernelFacts {
    formats: HashMap<String, Format>,
    arguments: HashMap<String, Option<Vec<Option<String>>>>,
    config: Config,
    /// Why there is no BTF.
    pub no_btf: Option<String>,
    /// Names of the flusher's reasons, by value.
    pub reasons: Vec<(u64, String)>,
    /// Whether the running system call can be read without a hook.
    pub call_readable: bool,
}

impl KernelFacts {
    /// Asks tracefs and BTF.
    pub fn gather(tracefs: &Tracefs) -> Self {
        let mut formats = HashMap::new();
        let extra = ["sched/sched_process_exec", "writeback/writeback_queue"];
        let events = FIELDS.iter().map(|(event, _)| *event).chain(extra).chain(
            crate::plan::HOOKS
                .iter()
                .chain(crate::plan::WRITES)
                .flat_map(|hook| hook.candidates)
                .flat_map(|candidate| candidate.events.iter().copied()),
        );
        for event in events {
            if !formats.contains_key(event)
                && let Some(format) = tracefs.format(event)
            {
                formats.insert(event.to_owned(), format);
            }
        }
        let mut facts = Self {
            reasons: formats
                .get("writeback/writeback_start")
                .map(|format| format.symbols("reason"))
                .unwrap_or_default(),
            arguments: formats.keys().map(|event| (event.clone(), None)).collect(),
            formats,
            config: Config::EMPTY,
            no_btf: None,
            call_readable: false,
        };
        facts.config.own_pid = std::process::id();
        facts.config.call_sync_file_range = libc::SYS_sync_file_range as u32;
        facts.config.call_ioctl = libc::SYS_ioctl as u32;
        facts.config.call_mount = libc::SYS_mount as u32;
        facts.config.call_fsconfig = libc::SYS_fsconfig as u32;
        for (place, (event, field)) in facts.config.tp.iter_mut().zip(FIELDS) {
            let found = facts
                .formats
                .get(event)
                .and_then(|format| format.field(field));
            *place = found.unwrap_or(Field::ABSENT);
        }
        for (code, (_, value)) in facts.config.req_op.iter_mut().zip(OPERATIONS) {
            *code = value;
        }
        match fs::read("/sys/kernel/btf/vmlinux") {
            Ok(bytes) => match Btf::parse(&bytes, None) {
                Ok(btf) => facts.take_btf(&btf),
                Err(error) => facts.no_btf = Some(error.to_string()),
            },
            Err(error) => facts.no_btf = Some(format!("/sys/kernel/btf/vmlinux: {error}")),
        }
        facts.config.exchanges = u8::from(exchange::is_allowed());
        facts
    }

    fn take_btf(&mut self, btf: &Btf<'_>) {
        for (place, (structure, member)) in self.config.btf.iter_mut().zip(BTF_MEMBERS) {
            *place = btf.member(structure, member).unwrap_or(Field::ABSENT);
        }
        let told = |index: usize| self.config.btf[index].present();
        if [
            b::BIO_END,
            b::BIO_PRIVATE,
            b::DIO_KIOCB,
            b::KIOCB_FILE,
            b::FILE_INODE,
        ]
        .into_iter()
        .all(told)
        {
            self.config.direct_end = symbols::address("iomap_dio_bio_end_io").unwrap_or(0);
        }
        let bit = |name| btf.enumerator(name).map_or(0, |bit| 1_u32 << (bit & 31));
        self.config.req_sync = bit("__REQ_SYNC");
        self.config.req_meta = bit("__REQ_META");
        self.config.req_fua = bit("__REQ_FUA");
        self.config.req_preflush = bit("__REQ_PREFLUSH");
        self.config.req_swap = bit("__REQ_SWAP");
        for (code, (name, _)) in self.config.req_op.iter_mut().zip(OPERATIONS) {
            if let Some(value) = btf.enumerator(name) {
                *code = value as u8;
            }
        }
        let member = |index: usize| self.config.btf[index].present();
        self.call_readable = btf.enumerator("BPF_FUNC_task_pt_regs").is_some()
            && btf.enumerator("BPF_FUNC_get_current_task_btf").is_some()
            && member(b::TASK_FLAGS)
            && (member(b::REGS_CALL) || member(b::REGS_CALL_ARM64));
        self.config.head_bit = btf.enumerator("PG_head").unwrap_or(0) as u8;
        self.config.loop_callable = u8::from(btf.enumerator("BPF_FUNC_loop").is_some());
        self.config.call_readable = u32::from(self.call_readable);
        for (event, arguments) in &mut self.arguments {
            let (group, name) = event.split_once('/').unwrap_or_default();
            *arguments = btf.tracepoint(name).map(owned);
            if arguments.is_none() {
                // The event may be of a module with BTF of its own.
                let path = Path::new("/sys/kernel/btf").join(group);
                let bytes = fs::read(path).unwrap_or_default();
                if let Ok(module) = Btf::parse(&bytes, Some(btf)) {
                    *arguments = module.tracepoint(name).map(owned);
                }
            }
        }
    }

    /// What the programs are told.
    pub fn config(&self) -> &Config {
        &self.config
    }
}

impl Facts for KernelFacts {
    fn has_event(&self, event: &str) -> bool {
        self.formats.contains_key(event)
    }

    fn has_fields(&self, event: &str) -> bool {
        FIELDS
            .iter()
            .zip(&self.config.tp)
            .all(|((owner, _), place)| *owner != event || place.present())
    }

    fn has_member(&self, index: usize) -> bool {
        self.config.btf[index].present()
    }

    fn direct_is_told(&self) -> bool {
        self.config.direct_end != 0
    }

    fn arguments(&self, event: &str) -> Option<Vec<Option<String>>> {
        self.arguments.get(event).cloned().flatten()
    }
}

fn owned(arguments: Vec<Option<&str>>) -> Vec<Option<String>> {
    let names = arguments.into_iter();
    names.map(|name| name.map(str::to_owned)).collect()
}
