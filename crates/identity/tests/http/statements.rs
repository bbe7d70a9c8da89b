//! Every statement is accepted by each database.

use kilonova_identity::statements;

use crate::cloud::clouds;

#[tokio::test]
async fn every_statement_prepares() {
    for cloud in clouds().await {
        for list in statements() {
            assert_eq!(cloud.store.refused(list).await, Vec::<String>::new());
        }
    }
}
