//! The pulse of a WebSocket: a socket that says nothing is asked now and then whether anybody is there, and ends with the
//! credential it began with.

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::app::App;
use crate::auth::Principal;
use crate::limits;
use crate::rate::StreamPlace;

/// A socket that is asked now and then whether anybody is there, and its place among the streams.
pub(crate) struct Pulse {
    beats: Interval,
    heard: bool,
    _place: StreamPlace,
}

impl Pulse {
    /// Begins with a socket that has its place.
    pub(crate) fn begin(place: StreamPlace) -> Pulse {
        let mut beats = interval_at(Instant::now() + limits::KEEP_ALIVE, limits::KEEP_ALIVE);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Pulse { beats, heard: true, _place: place }
    }

    /// Resolves when it is time to [`Pulse::ask`].
    pub(crate) async fn beat(&mut self) {
        self.beats.tick().await;
    }

    /// Something came from the other end.
    pub(crate) fn hear(&mut self) {
        self.heard = true;
    }

    /// Asks whether anybody is there, or says why the talk must end.
    pub(crate) async fn ask(
        &mut self,
        app: &App,
        principal: &Principal,
        socket: &mut WebSocket,
    ) -> Result<(), &'static str> {
        if !std::mem::take(&mut self.heard) {
            return Err("nobody answers");
        }
        // SECURITY: a credential that was revoked or ran out hears and says nothing more.
        if !principal.still_holds(app).await {
            return Err("the credential ended");
        }
        send(socket, Message::Ping(Vec::new().into())).await
    }
}

/// Sends a message, if the other end takes it in time.
pub(crate) async fn send(socket: &mut WebSocket, message: Message) -> Result<(), &'static str> {
    match tokio::time::timeout(limits::SEND_WITHIN, socket.send(message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err("the socket is gone"),
        Err(_) => Err("nobody reads"),
    }
}

/// Says why the talk ends.
pub(crate) async fn close(socket: &mut WebSocket, why: &'static str) {
    let close = CloseFrame { code: close_code::AWAY, reason: why.into() };
    let _ = send(socket, Message::Close(Some(close))).await;
}
