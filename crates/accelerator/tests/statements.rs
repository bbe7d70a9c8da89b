//! Every statement of this crate can be prepared on both databases.

use crate::common;

#[tokio::test]
async fn both_databases_prepare_every_statement() {
    for (name, store, _guard) in common::stores().await {
        for list in kilonova_accelerator::statements() {
            assert_eq!(store.refused(list).await, Vec::<String>::new(), "{name}");
        }
    }
}
