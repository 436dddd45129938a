//! Writes at a queue depth from one thread: `io_submit` and `io_uring` by bare
//! system calls. Entry: [`write`].

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};

use super::Queue;
use super::calls::Buffer;

/// Writes `places` (offset, length) to `fd`, all in flight at once, and waits.
pub fn write(queue: Queue, fd: i32, places: &[(u64, u64)]) -> Result<()> {
    match queue {
        Queue::Aio => aio(fd, places),
        Queue::Uring => uring(fd, places),
    }
}

fn call(number: libc::c_long, args: [u64; 6]) -> std::io::Result<i64> {
    // SAFETY: the callers below pass what the call's manual page asks for.
    let result =
        unsafe { libc::syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]) };
    if result < 0 {
        Err(std::io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// struct iocb of `linux/aio_abi.h`, little endian.
#[repr(C)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    reqprio: i16,
    fd: u32,
    buffer: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: u32,
}

/// struct `io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    obj: u64,
    res: i64,
    res2: i64,
}

fn aio(fd: i32, places: &[(u64, u64)]) -> Result<()> {
    const IOCB_CMD_PWRITE: u16 = 1;
    let count = places.len() as u64;
    let mut context = 0_u64;
    call(
        libc::SYS_io_setup,
        [count, &raw mut context as u64, 0, 0, 0, 0],
    )
    .context("io_setup")?;
    let buffers: Vec<Buffer> = places.iter().map(|place| Buffer::new(place.1)).collect();
    let blocks: Vec<Iocb> = places
        .iter()
        .zip(&buffers)
        .map(|(&(at, len), buffer)| Iocb {
            data: len,
            key: 0,
            rw_flags: 0,
            opcode: IOCB_CMD_PWRITE,
            reqprio: 0,
            fd: fd as u32,
            buffer: buffer.bytes().as_ptr() as u64,
            len,
            offset: at as i64,
            reserved: 0,
            flags: 0,
            resfd: 0,
        })
        .collect();
    let pointers: Vec<u64> = blocks
        .iter()
        .map(|block| &raw const *block as u64)
        .collect();
    let asked = call(
        libc::SYS_io_submit,
        [context, count, pointers.as_ptr() as u64, 0, 0, 0],
    )
    .context("io_submit")?;
    let mut events = vec![Event::default(); places.len()];
    let came = call(
        libc::SYS_io_getevents,
        [
            context,
            asked as u64,
            count,
            events.as_mut_ptr() as u64,
            0,
            0,
        ],
    )
    .context("io_getevents")?;
    call(libc::SYS_io_destroy, [context, 0, 0, 0, 0, 0]).context("io_destroy")?;
    if asked != count as i64 || came != asked {
        bail!("{asked} of {count} writes submitted, {came} completed");
    }
    for event in events {
        if event.res != event.data as i64 {
            bail!("a write of {} bytes gave {}", event.data, event.res);
        }
    }
    Ok(())
}

/// struct `io_uring_params` of `linux/io_uring.h`, with both offset tables.
#[repr(C)]
#[derive(Default)]
struct Params {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread_cpu: u32,
    sq_thread_idle: u32,
    features: u32,
    wq_fd: u32,
    reserved: [u32; 3],
    sq: SqOffsets,
    cq: CqOffsets,
}

#[repr(C)]
#[derive(Default)]
struct SqOffsets {
    head: u32,
    tail: u32,
    ring_mask: u32,
    ring_entries: u32,
    flags: u32,
    dropped: u32,
    array: u32,
    reserved: u32,
    user: u64,
}

#[repr(C)]
#[derive(Default)]
struct CqOffsets {
    head: u32,
    tail: u32,
    ring_mask: u32,
    ring_entries: u32,
    overflow: u32,
    cqes: u32,
    flags: u32,
    reserved: u32,
    user: u64,
}

/// struct `io_uring_sqe`, as far as a plain write uses it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sqe {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    offset: u64,
    buffer: u64,
    len: u32,
    rw_flags: u32,
    user_data: u64,
    rest: [u64; 3],
}

/// struct `io_uring_cqe`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Cqe {
    user_data: u64,
    result: i32,
    flags: u32,
}

const _: () = assert!(size_of::<Sqe>() == 64 && size_of::<Params>() == 120);

fn uring(fd: i32, places: &[(u64, u64)]) -> Result<()> {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    const OFF_SQ_RING: u64 = 0;
    const OFF_SQES: u64 = 0x1000_0000;
    const OP_WRITE: u8 = 23;
    const ENTER_GETEVENTS: u64 = 1;
    let count = places.len() as u64;
    let mut params = Params::default();
    let ring = call(
        libc::SYS_io_uring_setup,
        [count, &raw mut params as u64, 0, 0, 0, 0],
    )
    .context("io_uring_setup")?;
    // SAFETY: a new descriptor of the call above.
    let ring = unsafe { OwnedFd::from_raw_fd(ring as i32) };
    let buffers: Vec<Buffer> = places.iter().map(|place| Buffer::new(place.1)).collect();
    let cq_end = params.cq.cqes as usize + params.cq_entries as usize * size_of::<Cqe>();
    let sq_end = params.sq.array as usize + params.sq_entries as usize * 4;
    let ring_len = cq_end.max(sq_end);
    let sqes_len = params.sq_entries as usize * size_of::<Sqe>();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: both maps are as long as the kernel said, the indices stay below
    // sq_entries and the number of completions, and the kernel is done with
    // the entries and buffers when io_uring_enter has waited for all.
    unsafe {
        let null = std::ptr::null_mut();
        let rings = mmap(null, ring_len, access, MapFlags::SHARED, &ring, OFF_SQ_RING)?;
        let entries = mmap(null, sqes_len, access, MapFlags::SHARED, &ring, OFF_SQES)?;
        for (index, (&(at, len), buffer)) in places.iter().zip(&buffers).enumerate() {
            entries.cast::<Sqe>().add(index).write(Sqe {
                opcode: OP_WRITE,
                fd,
                offset: at,
                buffer: buffer.bytes().as_ptr() as u64,
                len: len as u32,
                user_data: len,
                ..Sqe::default()
            });
            let array = rings.byte_add(params.sq.array as usize).cast::<u32>();
            array.add(index).write(index as u32);
        }
        let tail = rings.byte_add(params.sq.tail as usize).cast::<AtomicU32>();
        (*tail).store(count as u32, Ordering::Release);
        let asked = call(
            libc::SYS_io_uring_enter,
            [ring.as_raw_fd() as u64, count, count, ENTER_GETEVENTS, 0, 0],
        )
        .context("io_uring_enter")?;
        let came = rings.byte_add(params.cq.tail as usize).cast::<AtomicU32>();
        let came = (*came).load(Ordering::Acquire);
        if asked != count as i64 || u64::from(came) != count {
            bail!("{asked} of {count} writes submitted, {came} completed");
        }
        let cqes = rings.byte_add(params.cq.cqes as usize).cast::<Cqe>();
        for index in 0..places.len() {
            let cqe = cqes.add(index).read();
            if i64::from(cqe.result) != cqe.user_data as i64 {
                bail!("a write of {} bytes gave {}", cqe.user_data, cqe.result);
            }
        }
        munmap(entries, sqes_len)?;
        munmap(rings, ring_len)?;
    }
    Ok(())
}
