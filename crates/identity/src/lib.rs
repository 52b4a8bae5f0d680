//! Who asks, and what they may: credentials and the rights of those who show them. It knows no topic, no socket and no
//! storage; time, random numbers and the secrets of the broker are arguments.

mod api_key;
mod base32;
pub mod limits;
mod password;
mod secret;

pub use api_key::{
    API_KEY_CHARACTERS, API_KEY_ID_CHARACTERS, API_KEY_ID_RANDOM_BYTES, API_KEY_PREFIX, ApiKey,
    ApiKeyError, ApiKeyId,
};
pub use password::{PasswordCost, PasswordError, PasswordHash, SALT_BYTES};
pub use secret::{MasterSecret, SECRET_BYTES, Secret};
pub use zeroize::Zeroizing;
