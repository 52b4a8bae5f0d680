//! Types of messages that clients act on by themselves. What is published never has one, or a publisher could speak in the
//! broker's name.

/// Whether a type is the protocol's own.
pub fn is_reserved(kind: &str) -> bool {
    matches!(
        kind,
        "" | "PING"
            | "PONG"
            | "batch"
            | "client_hello"
            | "config_update"
            | "connection_quality"
            | "connection_state_change"
            | "error"
            | "health_check"
            | "health_check_response"
            | "heartbeat"
            | "metrics_request"
            | "ping"
            | "pong"
            | "presence_join"
            | "presence_leave"
            | "presence_update"
            | "priority_message"
            | "published"
            | "rate_limit_warning"
            | "server_hello"
            | "server_ready"
            | "snapshot_complete"
            | "subscription"
            | "subscription_update"
            | "sync_request"
    )
}
