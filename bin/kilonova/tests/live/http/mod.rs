//! HTTP itself: unusual and malformed requests, and clients that are slow or many.

mod odd;
mod slow;
mod uploads;
