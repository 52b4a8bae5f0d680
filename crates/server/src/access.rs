//! The control of who may do what: requests about keys, users, roles and tenants become changes of the configuration, one
//! after the other on the first core. It knows no protocol.

mod control;
mod request;

pub(crate) use self::{
    control::{AccessControl, ask, first_admin_key, first_admin_key_of_cluster},
    request::{
        AccessAnswer, AccessChange, AccessKind, AccessRefusal, AccessRequest, DecidedRight,
        ListedEntry,
    },
};
