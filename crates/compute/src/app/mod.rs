//! What the service does, without HTTP and without SQL.
