//! Who asks, and what they may: credentials and the rights of those who show them. It knows no topic, no socket and no
//! storage; time, random numbers and the secrets of the broker are arguments.
