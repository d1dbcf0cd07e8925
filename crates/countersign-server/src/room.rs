//! Who may stay connected when many are. Whoever oversees agents always finds room: to deny and to halt is what a server
//! under pressure is for.
//!
//! Nobody is kept out because others came first and say nothing. Where there is no room, the connection that is missed least
//! is cut: one that no request is open on before one that works, a stranger's before an agent's, an agent's before an
//! overseer's, the older before the newer. An overseer's open request is never cut.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::task::AtomicWaker;
use tokio::time::Instant;

/// One part in so many is kept from any single address, so that no machine takes all the room, this one neither.
const KEPT_FREE: usize = 8;

/// The connections of one server.
pub(crate) struct Room {
    most: usize,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    entered: u64,
    places: BTreeMap<u64, Arc<Place>>,
    by_address: HashMap<IpAddr, usize>,
}

/// What is known of one connection.
pub(crate) struct Place {
    number: u64,
    /// The other end.
    pub(crate) peer: SocketAddr,
    address: IpAddr,
    standing: AtomicU8,
    entered: Instant,
    /// Requests that are open.
    open: AtomicUsize,
    /// Since when that has been so, in microseconds after the connection came in.
    since: AtomicU64,
    /// It is gone.
    pub(crate) cut: Signal,
    /// It is to end when what was begun on it is done.
    pub(crate) ending: Signal,
}

/// Something to be told to a connection, once. It is looked at whenever the connection moves, so looking takes no lock.
#[derive(Default)]
pub(crate) struct Signal {
    given: AtomicBool,
    waker: AtomicWaker,
}

impl Signal {
    fn give(&self) {
        self.given.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Whether it was given.
    pub(crate) fn is_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    /// Ready if it was given; else the one who asks, and nobody who asked before, is woken when it is.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        if !self.is_given() {
            self.waker.register(context.waker());
        }
        // Looked at once more: it may have been given before anybody was there to wake.
        if self.is_given() { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// A connection's stay. Ends when dropped.
pub(crate) struct Stay {
    pub(crate) place: Arc<Place>,
    room: Arc<Room>,
}

/// An open request. Closes when dropped.
pub(crate) struct Open(Arc<Place>);

/// What somebody on a connection has shown to be, from who is missed least to who is missed most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Standing {
    /// Showed no good credential yet.
    Stranger,
    /// Submits and runs calls.
    Agent,
    /// Decides, operates or audits.
    Overseer,
}

impl Room {
    /// Room for so many connections.
    pub(crate) fn for_most(most: usize) -> Arc<Room> {
        Arc::new(Room { most: most.max(1), inside: Mutex::default() })
    }

    /// Lets a connection in, if need be instead of another; none where nobody can be missed.
    pub(crate) fn enter(self: &Arc<Room>, peer: SocketAddr) -> Option<Stay> {
        let address = network(peer.ip());
        // A poisoned lock means that counting failed: fail closed.
        let mut inside = self.inside.lock().ok()?;
        while inside.from(address) >= self.most_from(address) {
            inside.cut_one(|place| place.address == address)?;
        }
        while inside.places.len() >= self.most {
            inside.cut_one(|_| true)?;
        }
        let place = Arc::new(Place {
            number: inside.entered,
            peer,
            address,
            standing: AtomicU8::new(Standing::Stranger as u8),
            entered: Instant::now(),
            open: AtomicUsize::new(0),
            since: AtomicU64::new(0),
            cut: Signal::default(),
            ending: Signal::default(),
        });
        inside.entered += 1;
        inside.places.insert(place.number, Arc::clone(&place));
        *inside.by_address.entry(address).or_default() += 1;
        Some(Stay { place, room: Arc::clone(self) })
    }

    /// Cuts the connection that is missed least: the system has no more descriptors.
    pub(crate) fn make_room(&self) {
        if let Ok(mut inside) = self.inside.lock() {
            inside.cut_one(|_| true);
        }
    }

    /// Tells every connection to end when what was begun on it is done.
    pub(crate) fn end(&self) {
        if let Ok(inside) = self.inside.lock() {
            inside.places.values().for_each(|place| place.ending.give());
        }
    }

    /// Connections from one address. Programs of this machine are many; no other machine needs so much.
    fn most_from(&self, address: IpAddr) -> usize {
        let free = self.most / KEPT_FREE;
        let most = if address.is_loopback() { self.most - free } else { free };
        most.max(1)
    }
}

impl Inside {
    fn from(&self, address: IpAddr) -> usize {
        self.by_address.get(&address).copied().unwrap_or_default()
    }

    fn cut_one(&mut self, among: impl Fn(&Place) -> bool) -> Option<()> {
        let missed = self.places.values().filter(|place| among(place));
        let missed = missed.filter_map(|place| Some((place.missed()?, place.number)));
        let (_, number) = missed.min()?;
        self.leave(number)?.cut.give();
        Some(())
    }

    fn leave(&mut self, number: u64) -> Option<Arc<Place>> {
        let place = self.places.remove(&number)?;
        if let Some(count) = self.by_address.get_mut(&place.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&place.address);
            }
        }
        Some(place)
    }
}

impl Place {
    /// Notes what somebody on this connection has shown to be.
    pub(crate) fn stands(&self, standing: Standing) {
        self.standing.fetch_max(standing as u8, Ordering::Relaxed);
    }

    /// A request begins.
    pub(crate) fn open(self: &Arc<Place>) -> Open {
        self.stay_open();
        Open(Arc::clone(self))
    }

    /// A request begins that ends with the connection.
    pub(crate) fn stay_open(&self) {
        self.open.fetch_add(1, Ordering::AcqRel);
    }

    /// INVARIANT: the moment is noted before the request counts as closed, so whoever sees that none is open sees since
    /// when.
    fn close(&self) {
        let since = u64::try_from(self.entered.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.since.store(since, Ordering::Release);
        self.open.fetch_sub(1, Ordering::AcqRel);
    }

    /// Resolves when no request was open for so long. It looks only when that may be so: a timer set anew for every
    /// request would cost a busy server its share.
    pub(crate) async fn idle_for(&self, span: Duration) {
        loop {
            let left = match self.open.load(Ordering::Acquire) {
                0 => span.saturating_sub(self.entered.elapsed().saturating_sub(self.since())),
                _ => span,
            };
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }

    /// When a request was last open, counted from when the connection came in.
    fn since(&self) -> Duration {
        Duration::from_micros(self.since.load(Ordering::Acquire))
    }

    /// How much it would be missed; none if it must not be cut.
    fn missed(&self) -> Option<u8> {
        let standing = self.standing.load(Ordering::Relaxed);
        match self.open.load(Ordering::Acquire) {
            0 => Some(standing),
            _ if standing == Standing::Overseer as u8 => None,
            _ => Some(standing + Standing::Overseer as u8 + 1),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        if let Ok(mut inside) = self.room.inside.lock() {
            inside.leave(self.place.number);
        }
    }
}

/// What counts as one address: of IPv6 the network, since each machine has as many addresses as it likes.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() => {
            let [a, b, c, d, ..] = ip.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> SocketAddr {
        format!("{text}:1000").parse().unwrap()
    }

    /// Who is cut when one more comes.
    #[test]
    fn who_is_missed_least_goes_first() {
        let room = Room::for_most(8);
        let stays: Vec<Stay> = (1..=8).map(|n| room.enter(peer(&format!("10.0.0.{n}"))).unwrap()).collect();
        let place = |n: usize| &stays.get(n).unwrap().place;
        let mut open = Vec::new();
        place(0).stands(Standing::Overseer);
        open.push(place(0).open());
        place(1).stands(Standing::Overseer);
        place(2).stands(Standing::Agent);
        open.push(place(2).open());
        place(3).stands(Standing::Agent);
        open.push(place(4).open());
        for (n, expected) in [5, 6, 7, 3, 1, 4, 2].into_iter().enumerate() {
            let newcomer = room.enter(peer(&format!("10.0.1.{n}"))).unwrap();
            newcomer.place.stands(Standing::Overseer);
            open.push(newcomer.place.open());
            std::mem::forget(newcomer);
            let cut: Vec<usize> = (0..8).filter(|n| place(*n).cut.is_given()).collect();
            assert!(cut.contains(&expected), "{expected} of {cut:?}");
            assert_eq!(cut.len(), n + 1);
        }
        assert!(room.enter(peer("10.0.2.1")).is_none(), "nobody is left who could be missed");
    }

    #[test]
    fn one_address_does_not_take_all_the_room() {
        for (address, most) in [("127.0.0.1", 14), ("10.0.0.1", 2), ("[::1]", 14), ("[2001:db8::1]", 2)] {
            let room = Room::for_most(16);
            let stays: Vec<Stay> = (0..20).filter_map(|_| room.enter(peer(address))).collect();
            assert_eq!(stays.len(), 20, "the older ones go");
            assert_eq!(room.inside.lock().unwrap().places.len(), most, "{address}");
            let other = room.enter(peer("10.0.0.2")).unwrap();
            assert_eq!(stays.iter().filter(|stay| stay.place.cut.is_given()).count(), 20 - most);
            drop((stays, other));
            assert!(room.inside.lock().unwrap().by_address.is_empty());
        }
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let room = Room::for_most(16);
        let stays: Vec<Stay> = (1..9).map(|n| room.enter(peer(&format!("[2001:db8::{n}]"))).unwrap()).collect();
        assert_eq!(stays.iter().filter(|stay| !stay.place.cut.is_given()).count(), 2);
    }
}
