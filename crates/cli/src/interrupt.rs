//! What Ctrl-C does to a verb that goes on until it is stopped: the first lets it finish what it has
//! begun, and the second ends it at once, whatever it waits for.

use std::process::exit;

use tokio::signal::unix::{SignalKind, signal};

/// What shells report of a program that Ctrl-C has ended.
const INTERRUPTED: i32 = 130;

/// Waits for the first Ctrl-C, and has the second end the program.
pub async fn interrupted() {
    // One that listens hears both, also when the second comes before anybody waits for it. Where
    // there is nothing to listen with, Ctrl-C ends the program as it does any other.
    let Ok(mut interrupts) = signal(SignalKind::interrupt()) else {
        return std::future::pending().await;
    };
    interrupts.recv().await;
    tokio::spawn(async move {
        interrupts.recv().await;
        exit(INTERRUPTED)
    });
}
