//! Bios in flight, as the programs keep them: in seats, an array that we share
//! by mapping, or in a map.

use super::probe::{Probe, ProbeError, map_error};
use aya::maps::{HashMap, MapData};
use std::{io, sync::atomic::Ordering};
use tracer_common::{Flight, FlightKey, RowKey, RowValue, Seat};

/// Epochs of a run or an interval, the end left out.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// First epoch.
    pub begin: u32,
    /// The one after the last.
    pub end: u32,
}

impl Span {
    fn has(self, flight: &Flight) -> bool {
        let length = self.end.wrapping_sub(self.begin);
        flight.submitted.wrapping_sub(self.begin) < length
    }
}

/// Where a bio is kept.
enum Place {
    Seat(usize, u64),
    Map(FlightKey),
}

/// The mapped seats.
pub struct Seats(super::mapped::Mapping<Seat>);

impl Seats {
    /// Maps the array of a loaded object.
    pub fn new(map: &MapData) -> io::Result<Self> {
        super::mapped::Mapping::new(map, Seat::COUNT as usize, true).map(Self)
    }

    fn of_disk(&self, disk: u16) -> impl Iterator<Item = (Place, Flight)> {
        (0..Seat::COUNT as usize).filter_map(move |index| {
            let seat = self.0.read(index);
            let taken = seat.name != 0 && seat.name != Seat::BUSY;
            (taken && Seat::disk(seat.name) == disk)
                .then_some((Place::Seat(index, seat.name), seat.flight))
        })
    }

    /// Frees a seat; says whether this bio still had it.
    fn free(&self, index: usize, name: u64) -> bool {
        // The name is the first member of a seat.
        let place = self.0.atomic(index);
        place
            .compare_exchange(name, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

impl Probe {
    fn old_flights(&mut self, disk: u16, span: Span) -> Result<Vec<(Place, Flight)>, ProbeError> {
        let seated: Vec<_> = self.seats.of_disk(disk).collect();
        let flights = self.flights_map()?;
        let standing = flights.iter().filter_map(Result::ok);
        let standing = standing.filter(|(key, _)| key.disk == disk);
        Ok(seated
            .into_iter()
            .chain(standing.map(|(key, flight)| (Place::Map(key), flight)))
            // A program is about to remove those without sectors.
            .filter(|(_, flight)| flight.sectors > 0 && span.has(flight))
            .collect())
    }

    fn flights_map(&mut self) -> Result<HashMap<&mut MapData, FlightKey, Flight>, ProbeError> {
        HashMap::try_from(self.map_mut("FLIGHTS")?).map_err(map_error("FLIGHTS"))
    }

    /// Number of bios of a disk in flight that were submitted in a span.
    pub fn flights(&mut self, disk: u16, span: Span) -> Result<usize, ProbeError> {
        Ok(self.old_flights(disk, span)?.len())
    }

    /// Takes bios that were submitted in the span and are known to have
    /// completed, although no program was run for it.
    ///
    /// The kernel runs no program where one of the same kind was interrupted,
    /// and a hardened one may keep programs out of chosen tasks, also when an
    /// interrupt finds them on the CPU.
    pub fn take_unseen(
        &mut self,
        disk: u16,
        span: Span,
    ) -> Result<Vec<(RowKey, RowValue)>, ProbeError> {
        let mut rows = Vec::new();
        for (place, flight) in self.old_flights(disk, span)? {
            let ours = match place {
                Place::Seat(index, name) => self.seats.free(index, name),
                Place::Map(key) => {
                    let gone = self.flights_map()?.remove(&key).is_ok();
                    if gone {
                        self.edges.bio_left_the_map(key.slot > 1);
                    }
                    gone
                }
            };
            if ours {
                let value = RowValue {
                    sectors: flight.sectors.into(),
                    bios: 1,
                    flushes: 0,
                };
                rows.push((flight.row, value));
            }
        }
        Ok(rows)
    }
}
