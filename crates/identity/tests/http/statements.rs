//! Every statement is accepted by each database.

use kilonova_identity::statements;

use crate::cloud::clouds;

#[tokio::test]
async fn statements_prepare_on_each_database() {
    for cloud in clouds().await {
        for list in statements() {
            assert_eq!(cloud.store.refused(list).await, Vec::<String>::new());
        }
    }
}
