//! The worker's side of the messages with its parent: progress out, orders in.

use std::io::{self, Write};

use anyhow::{Result, bail};
use tokio::sync::mpsc;

use crate::plan::{News, Order, Window};

/// Tells the parent.
///
/// # Errors
/// Nobody hears it.
pub fn tell(news: &News) -> Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, news)?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

/// What the parent orders, one after the other. A parent that is gone ends the work.
pub type Orders = mpsc::UnboundedReceiver<Order>;

/// Says that everything is ready, and waits for the start.
///
/// # Errors
/// The parent has gone, or wants something else.
pub async fn start(orders: &mut Orders) -> Result<Window> {
    tell(&News::Ready)?;
    match orders.recv().await {
        Some(Order::Start(window)) => Ok(window),
        other => bail!("a start was expected, this came: {other:?}"),
    }
}
