//! HTTP itself: odd requests, broken ones, and clients that are slow or many.

mod odd;
mod slow;
mod uploads;
