//! Bios in flight: where a bio's row is kept from submission to completion.
//!
//! The usual place is a seat in an array, found by the bio's start sector. A
//! bio whose seat is taken stands in a map, which costs ten times as much;
//! kernels that have no compare-and-exchange for programs keep all bios there.
//! Slot 0 is the seat and no other: two CPUs that submit at once must never
//! get the same key.

use crate::{
    complete::add_control,
    globals::cfg_get,
    maps::{FLIGHTS, SEATS, control_value, lose},
};
use aya_ebpf::bindings::BPF_NOEXIST;
use core::{
    intrinsics::{AtomicOrdering, atomic_cxchg},
    ptr::{read_volatile, write_volatile},
};
use tracer_common::{Flight, FlightKey, Seat, control, loss};

/// Bios in flight on one start sector that can be told apart: the seat, and
/// eight that stand.
pub const SLOTS: u8 = 9;

/// The slots that need to be looked at now.
#[inline(always)]
pub fn slots() -> u8 {
    if control_value(control::STANDING) == 0 {
        1
    } else if control_value(control::TWINS) == 0 {
        2
    } else {
        SLOTS
    }
}

/// Sets a number to `new` if it is `old`; says whether it was. The core
/// library offers none on this target; the instruction exists since 5.12.
#[inline(always)]
fn exchange(number: *mut u64, old: u64, new: u64) -> bool {
    const ORDER: AtomicOrdering = AtomicOrdering::SeqCst;
    // SAFETY: callers pass an aligned place in a live map value.
    unsafe { atomic_cxchg::<u64, ORDER, ORDER>(number, old, new).1 }
}

#[inline(always)]
fn name_of(key: &FlightKey) -> u64 {
    Seat::name(key.sector, key.disk, key.op)
}

/// The seat that a bio may have, where there are seats.
#[inline(always)]
fn seat(name: u64) -> Option<*mut Seat> {
    if cfg_get!(exchanges) == 0 {
        return None;
    }
    SEATS.get_ptr_mut(Seat::index(name))
}

/// Keeps a bio in flight until it completes.
#[inline(always)]
pub fn keep(sector: u64, flight: &Flight) {
    let key = FlightKey {
        sector,
        disk: flight.row.disk,
        op: flight.row.op,
        slot: 0,
        reserved: 0,
    };
    let name = name_of(&key);
    if let Some(seat) = seat(name) {
        // SAFETY: a field of a live map value.
        let place = unsafe { &raw mut (*seat).name };
        // Looked at first: an exchange that fails costs more.
        // SAFETY: a whole integer.
        if unsafe { read_volatile(place) } == 0 && exchange(place, 0, Seat::BUSY) {
            // SAFETY: nobody else touches a busy seat.
            unsafe {
                (*seat).flight = *flight;
                write_volatile(place, name);
            }
            return;
        }
    }
    stand(key, flight);
}

/// Keeps a bio in the map. Counted first: another CPU may take it, in place of
/// a twin, before this one goes on.
#[inline(always)]
fn stand(mut key: FlightKey, flight: &Flight) {
    add_control(control::STANDING, 1);
    for slot in 1..SLOTS {
        key.slot = slot;
        if slot == 2 {
            add_control(control::TWINS, 1);
        }
        if FLIGHTS.insert(&key, flight, u64::from(BPF_NOEXIST)).is_ok() {
            return;
        }
    }
    add_control(control::STANDING, u64::MAX);
    add_control(control::TWINS, u64::MAX);
    lose(loss::FLIGHT);
}

/// The bio in one slot of a start sector.
#[inline(always)]
pub fn find(key: &FlightKey) -> Option<*mut Flight> {
    if key.slot > 0 {
        return FLIGHTS.get_ptr_mut(key);
    }
    let name = name_of(key);
    let seat = seat(name)?;
    // SAFETY: fields of a live map value, whole integers.
    unsafe {
        if read_volatile(&raw const (*seat).name) != name {
            return None;
        }
        Some(&raw mut (*seat).flight)
    }
}

/// Takes a bio of this length out of a slot; none when another CPU took it
/// first, and perhaps put another there.
#[inline(always)]
pub fn claim(key: &FlightKey, sectors: u32) -> Option<Flight> {
    if key.slot == 0 {
        return vacate(name_of(key), sectors);
    }
    let found = FLIGHTS.get_ptr_mut(key)?;
    // SAFETY: a live map value, copied out before it goes.
    let flight = unsafe { *found };
    if flight.sectors != sectors {
        return None;
    }
    // One without sectors is nobody's but ours. Kernels without the
    // instruction may let two CPUs take one.
    if cfg_get!(exchanges) != 0 {
        let claimed = Flight {
            sectors: 0,
            ..flight
        };
        // SAFETY: the last two members of a live map value, as one number,
        // for which it is aligned.
        #[allow(clippy::cast_ptr_alignment)]
        let place = unsafe { &raw mut (*found).sectors }.cast::<u64>();
        if !exchange(place, flight.tail(), claimed.tail()) {
            return None;
        }
    }
    if FLIGHTS.remove(key).is_err() {
        return None;
    }
    add_control(control::STANDING, u64::MAX);
    if key.slot > 1 {
        add_control(control::TWINS, u64::MAX);
    }
    Some(flight)
}

/// Takes a bio of this length from its seat.
#[inline(always)]
fn vacate(name: u64, sectors: u32) -> Option<Flight> {
    let seat = seat(name)?;
    // SAFETY: a field of a live map value.
    let place = unsafe { &raw mut (*seat).name };
    if !exchange(place, name, Seat::BUSY) {
        return None;
    }
    // SAFETY: nobody else touches a busy seat.
    let flight = unsafe { (*seat).flight };
    let ours = flight.sectors == sectors;
    // By exchange, which keeps the copy above it on every machine.
    exchange(place, Seat::BUSY, if ours { 0 } else { name });
    ours.then_some(flight)
}
