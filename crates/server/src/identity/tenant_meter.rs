//! The meters of tenants: what the keys and users of each use of its quotas, on all cores together.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use sennit_identity::{
    Directory, OverQuota, QuotaMeter, QuotaRetry, Quotas, StoredBytes, StoredMeter, TenantName,
};
use sennit_model::Timestamp;

/// The meters of all tenants.
#[derive(Debug, Default)]
pub(crate) struct TenantMeters {
    meters: RwLock<HashMap<TenantName, Arc<TenantMeter>>>,
    /// Whether a tenant stores nothing, as long as it is not known how much it stores.
    waits_for_measurements: AtomicBool,
}

/// The meter of a tenant.
#[derive(Debug, Default)]
pub(crate) struct TenantMeter {
    used: Mutex<Used>,
    connections: AtomicU64,
}

/// The quotas of a tenant, and what is used of them.
#[derive(Debug, Default)]
struct Used {
    quotas: Quotas,
    rates: QuotaMeter,
    stored: StoredMeter,
    waits_for_measurement: bool,
}

impl Used {
    fn check_stored(&self, bytes: u64, now: Timestamp) -> Result<(), OverQuota> {
        let Some(limit) = self.quotas.stored_bytes else { return Ok(()) };
        if self.waits_for_measurement && self.stored.bytes().is_none() && bytes > 0 {
            let retry = QuotaRetry::OnceMeasured;
            return Err(OverQuota { quota: "stored_bytes", limit, stored: None, retry });
        }
        self.stored.check(limit, bytes, now)
    }
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
        let waits = self.waits_for_measurements.load(Ordering::Relaxed);
        let mut meters = self.meters.write().unwrap_or_else(PoisonError::into_inner);
        meters.retain(|tenant, _| directory.tenant(tenant).is_some());
        for (tenant, entry) in directory.tenants() {
            let meter = meters.entry(tenant.clone()).or_default();
            let mut used = meter.used();
            used.waits_for_measurement = waits;
            if used.quotas != entry.quotas {
                used.quotas = entry.quotas;
                used.rates = QuotaMeter::default();
            }
        }
    }

    /// From now on a tenant of whom it is not known how much it stores stores nothing.
    pub(crate) fn wait_for_measurements(&self) {
        self.waits_for_measurements.store(true, Ordering::Relaxed);
    }

    /// The meter of a tenant.
    pub(crate) fn of(&self, tenant: &TenantName) -> Option<Arc<TenantMeter>> {
        self.meters.read().unwrap_or_else(PoisonError::into_inner).get(tenant).cloned()
    }
}

impl TenantMeter {
    /// Takes a batch of so many messages and bytes, all of it or nothing.
    ///
    /// # Errors
    /// The quota that is used up.
    pub(crate) fn take(&self, batch: (u64, u64), now: Timestamp) -> Result<(), OverQuota> {
        let mut used = self.used();
        used.check_stored(batch.1, now)?;
        let Used { quotas, rates, stored, .. } = &mut *used;
        rates.take(quotas, batch, now)?;
        stored.add(batch.1);
        Ok(())
    }

    /// Has a batch that was not asked for be paid for by what is taken next.
    pub(crate) fn charge(&self, batch: (u64, u64), now: Timestamp) {
        let Used { quotas, rates, stored, .. } = &mut *self.used();
        rates.charge(quotas, batch, now);
        stored.add(batch.1);
    }

    /// Checks that nothing is owed of what may be published in a second.
    ///
    /// # Errors
    /// Something is.
    pub(crate) fn check_rates(&self, now: Timestamp) -> Result<(), OverQuota> {
        let used = self.used();
        used.rates.check(&used.quotas, now)
    }

    /// Checks that so many bytes more may be stored.
    ///
    /// # Errors
    /// The quota of stored bytes is used up.
    pub(crate) fn check_stored(&self, bytes: u64, now: Timestamp) -> Result<(), OverQuota> {
        self.used().check_stored(bytes, now)
    }

    /// Whether there is a quota of stored bytes, and nobody knows how much is stored.
    pub(crate) fn is_unmeasured(&self) -> bool {
        let used = self.used();
        used.quotas.stored_bytes.is_some() && used.stored.bytes().is_none()
    }

    /// The stored bytes are being measured from now on.
    pub(crate) fn begin_measurement(&self) {
        self.used().stored.begin();
    }

    /// The measurement that began last has come to this.
    pub(crate) fn end_measurement(&self, stored: StoredBytes) {
        self.used().stored.end(stored);
    }

    /// Bytes that are stored, if there is a quota of them.
    pub(crate) fn stored_bytes(&self) -> Option<u64> {
        let used = self.used();
        used.quotas.stored_bytes.and(used.stored.bytes())
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
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
                let retry = QuotaRetry::WhenFreed;
                Err(OverQuota { quota: "connections", limit, stored: None, retry })
            }
            _ => Ok(place),
        }
    }

    /// The quotas in force.
    pub(crate) fn quotas(&self) -> Quotas {
        self.used().quotas
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
    fn a_meter_that_waits_for_its_measurement_lets_nothing_be_stored_before() {
        let meters = TenantMeters::default();
        meters.wait_for_measurements();
        meters.set(&directory(r#"{"created_ms":0,"stored_bytes":100}"#));
        let meter = meters.of(&"acme".parse().unwrap()).unwrap();
        let refused = meter.take((1, 10), Timestamp(1)).unwrap_err();
        assert_eq!((refused.retry, refused.stored), (QuotaRetry::OnceMeasured, None));
        assert!(meter.is_unmeasured() && meter.check_stored(0, Timestamp(1)).is_ok());
        meter.begin_measurement();
        meter.end_measurement(StoredBytes { bytes: 95, ..StoredBytes::default() });
        assert!(!meter.is_unmeasured());
        assert_eq!(meter.take((1, 10), Timestamp(1)).unwrap_err().stored, Some(95));
        meter.take((1, 5), Timestamp(1)).unwrap();
        // Without a quota of them there is nothing to wait for.
        meters.set(&directory(r#"{"created_ms":0}"#));
        meter.take((1, 10), Timestamp(1)).unwrap();
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
