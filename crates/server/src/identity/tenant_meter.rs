//! The meters of tenants: what the keys and users of each use of its quotas, on all cores together.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use sennit_identity::{Directory, OverQuota, QuotaMeter, Quotas, TenantName};
use sennit_model::Timestamp;

/// The meters of all tenants.
#[derive(Debug, Default)]
pub(crate) struct TenantMeters(RwLock<HashMap<TenantName, Arc<TenantMeter>>>);

/// The meter of a tenant.
#[derive(Debug, Default)]
pub(crate) struct TenantMeter {
    rates: Mutex<(Quotas, QuotaMeter)>,
    connections: AtomicU64,
}

/// A connection of a tenant. Dropped, it counts no more.
#[derive(Debug)]
pub(crate) struct ConnectionPlace(Arc<TenantMeter>);

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TenantMeters {
    /// From now on the quotas of this directory are in force. What was used stays used.
    pub(crate) fn set(&self, directory: &Directory) {
        let mut meters = self.0.write().unwrap_or_else(PoisonError::into_inner);
        meters.retain(|tenant, _| directory.tenant(tenant).is_some());
        for (tenant, entry) in directory.tenants() {
            let meter = meters.entry(tenant.clone()).or_default();
            let mut rates = meter.rates.lock().unwrap_or_else(PoisonError::into_inner);
            if rates.0 != entry.quotas {
                *rates = (entry.quotas, QuotaMeter::default());
            }
        }
    }

    /// The meter of a tenant.
    pub(crate) fn of(&self, tenant: &TenantName) -> Option<Arc<TenantMeter>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(tenant).cloned()
    }
}

impl TenantMeter {
    /// Takes a batch of so many messages and bytes, all of it or nothing.
    ///
    /// # Errors
    /// The quota that is used up.
    pub(crate) fn take(&self, batch: (u64, u64), now: Timestamp) -> Result<(), OverQuota> {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let (quotas, meter) = &mut *rates;
        meter.take(quotas, batch, now)
    }

    /// Takes a place for a connection.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn connect(self: Arc<Self>) -> Result<ConnectionPlace, OverQuota> {
        let most = self.quotas().connections;
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        let place = ConnectionPlace(self);
        match most {
            Some(limit) if before >= limit => {
                Err(OverQuota { quota: "connections", limit, retry_after: None })
            }
            _ => Ok(place),
        }
    }

    /// The quotas in force.
    pub(crate) fn quotas(&self) -> Quotas {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(entry: &str) -> Directory {
        let mut directory = Directory::default();
        directory.apply("tenant.acme", Some(entry.as_bytes())).unwrap();
        directory
    }

    #[test]
    fn connections_are_counted_while_they_last() {
        let meters = TenantMeters::default();
        meters.set(&directory(r#"{"created_ms":0,"connections":2}"#));
        let acme = "acme".parse().unwrap();
        let connect = || meters.of(&acme).unwrap().connect();
        let (one, _two) = (connect().unwrap(), connect().unwrap());
        assert_eq!(connect().unwrap_err().quota, "connections");
        drop(one);
        let _three = connect().unwrap();
        assert!(connect().is_err());
        // Another quota does not forget who is there.
        meters.set(&directory(r#"{"created_ms":0,"connections":3}"#));
        let _four = connect().unwrap();
        assert!(connect().is_err());
        meters.set(&Directory::default());
        assert!(meters.of(&acme).is_none());
    }
}
