//! Who asks the broker for something. Each request carries its principal from the connection to the place where its
//! rights are checked. It knows no protocol, and not what is asked.

pub(crate) mod principal;
