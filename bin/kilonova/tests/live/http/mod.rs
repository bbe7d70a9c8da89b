//! HTTP itself: unusual and malformed requests, and clients that are slow or many.

mod lists;
mod slow;
mod unusual_requests;
mod uploads;
