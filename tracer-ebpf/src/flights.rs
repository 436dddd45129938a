//! Bios in flight: where a bio's row is kept from submission to completion.
//!
//! The usual place is a seat in an array, found by the bio's start sector. A
//! bio whose seat is taken stands in a map, which costs ten times as much;
//! kernels that have no compare-and-exchange for programs keep all bios there.

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

/// Bios in flight on one start sector that can be told apart.
pub const SLOTS: u8 = 8;

/// Sets a number to `new` if it is `old`; says whether it was. The core
/// library offers none on this target; the instruction exists since 5.12.
#[inline(always)]
fn exchange(number: *mut u64, old: u64, new: u64) -> bool {
    const ORDER: AtomicOrdering = AtomicOrdering::SeqCst;
    // SAFETY: callers pass the aligned name of a live map value.
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
    let mut first = 0;
    if let Some(seat) = seat(name) {
        // SAFETY: fields of a live map value, whole integers.
        let sitting = unsafe { read_volatile(&raw const (*seat).name) };
        if sitting == name {
            first = 1;
        } else if sitting == 0
            && (control_value(control::STANDING) == 0 || FLIGHTS.get_ptr(&key).is_none())
            // SAFETY: as above.
            && exchange(unsafe { &raw mut (*seat).name }, 0, Seat::BUSY)
        {
            // SAFETY: nobody else touches a busy seat.
            unsafe {
                (*seat).flight = *flight;
                write_volatile(&raw mut (*seat).name, name);
            }
            return;
        }
    }
    stand(key, first, flight);
}

/// Keeps a bio in the map.
#[inline(always)]
fn stand(mut key: FlightKey, first: u8, flight: &Flight) {
    for slot in 0..SLOTS {
        if slot < first {
            continue;
        }
        key.slot = slot;
        if FLIGHTS.insert(&key, flight, u64::from(BPF_NOEXIST)).is_ok() {
            add_control(control::STANDING, 1);
            if slot > 0 {
                add_control(control::TWINS, 1);
            }
            return;
        }
    }
    lose(loss::FLIGHT);
}

/// The bio in one slot of a start sector; a seat is slot 0.
#[inline(always)]
pub fn find(key: &FlightKey) -> Option<*mut Flight> {
    if key.slot == 0 {
        let name = name_of(key);
        if let Some(seat) = seat(name) {
            // SAFETY: fields of a live map value, whole integers.
            let sitting = unsafe { read_volatile(&raw const (*seat).name) };
            if sitting == name {
                // SAFETY: a field of a live map value.
                return Some(unsafe { &raw mut (*seat).flight });
            }
            if control_value(control::STANDING) == 0 {
                return None;
            }
        }
    }
    FLIGHTS.get_ptr_mut(key)
}

/// Takes the bio out of a slot; none when another CPU took it first.
#[inline(always)]
pub fn claim(key: &FlightKey) -> Option<Flight> {
    if key.slot == 0 {
        let name = name_of(key);
        if let Some(seat) = seat(name) {
            // SAFETY: a field of a live map value.
            let place = unsafe { &raw mut (*seat).name };
            if exchange(place, name, Seat::BUSY) {
                // SAFETY: nobody else touches a busy seat.
                let flight = unsafe { (*seat).flight };
                // By exchange, which keeps the copy above it on every machine.
                exchange(place, Seat::BUSY, 0);
                return Some(flight);
            }
        }
    }
    let found = FLIGHTS.get_ptr(key)?;
    // SAFETY: a live map value, copied out before it goes.
    let flight = unsafe { *found };
    if FLIGHTS.remove(key).is_err() {
        return None;
    }
    add_control(control::STANDING, u64::MAX);
    if key.slot > 0 {
        add_control(control::TWINS, u64::MAX);
    }
    Some(flight)
}
