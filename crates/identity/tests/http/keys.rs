//! Token keys: sealed in the database, shared by all controllers, rotated while in use.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kilonova_identity::{Identity, KeyRole, MIGRATIONS, TokenKeys};
use kilonova_seal::{KeySource, Vault};
use kilonova_store::Store;
use kilonova_store::testing::{CrashPlan, Death};
use kilonova_testkit::Guard;

use crate::cloud::{PASSWORD, TemporaryDirectory, by_name, clouds, mounted, options, token_of};

const HOUR: Duration = Duration::from_secs(3600);

/// A database, and a directory for the files of controllers.
struct Place {
    store: Store,
    directory: TemporaryDirectory,
    _guard: Guard,
}

async fn places() -> Vec<Place> {
    let stores = kilonova_testkit::stores(&[kilonova_seal::MIGRATIONS, MIGRATIONS]).await;
    let place =
        |(_, store, guard)| Place { store, directory: TemporaryDirectory::new(), _guard: guard };
    stores.into_iter().map(place).collect()
}

impl Place {
    fn file(&self, name: &str) -> PathBuf {
        self.directory.0.join(name)
    }

    /// A key repository as the previous version wrote it.
    fn repository(&self, numbers: &[u32]) -> Vec<String> {
        let folder = self.file("keys");
        std::fs::create_dir(&folder).unwrap();
        let key = |number: &u32| {
            let key = fernet::Fernet::generate_key();
            private(&folder.join(number.to_string()), &key);
            key
        };
        numbers.iter().map(key).collect()
    }

    async fn vault(&self, store: &Store) -> Result<Vault, kilonova_seal::Error> {
        Vault::open(store.clone(), KeySource::Default(self.file("seal.key"))).await
    }

    async fn keys(&self, store: &Store) -> Result<TokenKeys, kilonova_identity::Error> {
        TokenKeys::open(self.vault(store).await?, &self.file("keys")).await
    }
}

fn private(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// A controller over the database.
async fn controller(place: &Place, keys: TokenKeys) -> Identity {
    let identity = Identity::open(place.store.clone(), keys, options()).await.unwrap();
    identity.bootstrap(PASSWORD).await.unwrap();
    identity
}

async fn login(identity: &Identity) -> String {
    let body = by_name("admin", PASSWORD, Some("admin"));
    let request = axum::http::Request::post("/identity/v3/auth/tokens")
        .header("content-type", "application/json")
        .body(axum::body::Body::from(body.to_string()))
        .unwrap();
    token_of(&crate::cloud::send(&mounted(identity), request).await)
}

async fn accepts(identity: &Identity, token: &str) -> bool {
    let mut headers = axum::http::HeaderMap::new();
    headers.insert("x-auth-token", token.parse().unwrap());
    kilonova_wire::Authenticator::authenticate(identity, &headers).await.is_ok()
}

#[tokio::test]
async fn keys_survive_a_restart_and_are_sealed() {
    for place in places().await {
        let one = controller(&place, place.keys(&place.store).await.unwrap()).await;
        let token = login(&one).await;
        let again = controller(&place, place.keys(&place.store).await.unwrap()).await;
        assert!(!again.bootstrap("something else").await.unwrap());
        assert!(again.bootstrap("").await.is_err());
        assert!(accepts(&again, &token).await);
        assert!(!place.file("keys").exists(), "no key is in a file");
        let mode = std::fs::metadata(place.file("seal.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[tokio::test]
async fn a_key_repository_is_imported_once_and_stays_valid() {
    for place in places().await {
        let files = place.repository(&[0, 4, 5]);
        let one = controller(&place, place.keys(&place.store).await.unwrap()).await;
        let token = login(&one).await;
        let primary = fernet::Fernet::new(&files[2]).unwrap();
        assert!(primary.decrypt(&token).is_ok(), "the key with the highest number still signs");
        let roles: Vec<(i64, KeyRole)> = TokenKeys::list(&place.store)
            .await
            .unwrap()
            .into_iter()
            .map(|key| (key.number, key.role))
            .collect();
        let expected = [(0, KeyRole::Staged), (4, KeyRole::Secondary), (5, KeyRole::Primary)];
        assert_eq!(roles, expected);
        // The files stay, but are no longer read.
        private(&place.file("keys/5"), "garbage");
        let again = controller(&place, place.keys(&place.store).await.unwrap()).await;
        assert!(accepts(&again, &token).await);
        assert_eq!(std::fs::read_dir(place.file("keys")).unwrap().count(), 3);
    }
}

#[tokio::test]
async fn a_crash_of_the_import_leaves_nothing_or_everything() {
    for at in 0..3 {
        for death in [Death::BeforeCommit, Death::AfterCommit] {
            for place in places().await {
                let files = place.repository(&[1]);
                let plan = CrashPlan::at(at, death);
                let dying = place.store.with_crash_plan(plan.clone());
                let outcome = place.keys(&dying).await;
                assert_eq!(outcome.is_err(), plan.is_dead(), "write {at}");
                let one = controller(&place, place.keys(&place.store).await.unwrap()).await;
                let token = login(&one).await;
                assert!(fernet::Fernet::new(&files[0]).unwrap().decrypt(&token).is_ok());
                assert_eq!(TokenKeys::list(&place.store).await.unwrap().len(), 2);
            }
        }
    }
}

#[tokio::test]
async fn an_unusable_key_repository_is_refused() {
    for place in places().await {
        place.repository(&[1]);
        let path = place.file("keys/1");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let refused = place.keys(&place.store).await.err().unwrap().to_string();
        assert!(refused.contains(&format!("`chmod 600 {}`", path.display())), "{refused}");
        private(&path, "hunter2");
        let refused = place.keys(&place.store).await.err().unwrap().to_string();
        assert!(refused.contains("contains no Fernet key"), "{refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
    }
}

#[tokio::test]
async fn controllers_that_start_at_once_agree_on_their_keys() {
    for place in places().await {
        private(&place.file("seal.key"), &kilonova_seal::SealKey::generate().unwrap().line());
        let starts = (0..4).map(|_| place.keys(&place.store));
        let mut keys = Vec::new();
        for start in futures(starts).await {
            keys.push(start.unwrap());
        }
        let one = controller(&place, keys.remove(0)).await;
        let token = login(&one).await;
        for other in keys {
            let other = Identity::open(place.store.clone(), other, options()).await.unwrap();
            assert!(accepts(&other, &token).await);
        }
    }
}

/// Runs all futures concurrently.
async fn futures<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut running: Vec<_> = all.map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(|context| {
        let mut pending = false;
        for (future, outcome) in &mut running {
            if outcome.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(done) => *outcome = Some(done),
                    std::task::Poll::Pending => pending = true,
                }
            }
        }
        if pending { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    running.into_iter().map(|(_, outcome)| outcome.unwrap()).collect()
}

#[tokio::test]
async fn a_rotation_at_one_controller_takes_effect_at_the_others() {
    for place in places().await {
        let (a_keys, b_keys) =
            (place.keys(&place.store).await.unwrap(), place.keys(&place.store).await.unwrap());
        let (a, b) =
            (controller(&place, a_keys.clone()).await, controller(&place, b_keys.clone()).await);
        let before = login(&a).await;
        assert!(accepts(&b, &before).await);
        let vault = place.vault(&place.store).await.unwrap();
        let rotated = TokenKeys::rotate(&vault, 3, HOUR).await.unwrap();
        assert_eq!((rotated.primary, rotated.deleted), (2, vec![]));
        // B already has the formerly staged key, which now signs at A.
        assert!(a_keys.reload().await.unwrap());
        assert!(!a_keys.reload().await.unwrap(), "nothing changed since");
        let staged = login(&a).await;
        assert!(accepts(&b, &staged).await && accepts(&b, &before).await);
        // After two more rotations, B reloads the keys on the first token that the new key signed.
        TokenKeys::rotate(&vault, 3, HOUR).await.unwrap();
        TokenKeys::rotate(&vault, 3, HOUR).await.unwrap();
        a_keys.reload().await.unwrap();
        let new = login(&a).await;
        assert!(accepts(&b, &new).await, "an unknown key causes a reload");
        assert!(!b_keys.reload().await.unwrap(), "B is current");
        for token in [&before, &staged, &new] {
            assert!(accepts(&a, token).await && accepts(&b, token).await);
        }
    }
}

#[tokio::test]
async fn unknown_tokens_cause_few_reloads() {
    for cloud in clouds().await {
        let foreign = {
            let keys = TokenKeys::in_memory().unwrap();
            let other = Identity::open(cloud.store.clone(), keys, options()).await.unwrap();
            login(&other).await
        };
        let meter = kilonova_store::testing::Meter::counting();
        let vault = Vault::open(
            cloud.store.with_meter(meter.clone()),
            KeySource::Default(cloud.directory().join("seal.key")),
        )
        .await
        .unwrap();
        let keys = TokenKeys::open(vault, Path::new("/nowhere")).await.unwrap();
        let other = Identity::open(cloud.store.clone(), keys, options()).await.unwrap();
        meter.take();
        for _ in 0..200 {
            assert!(!accepts(&other, &foreign).await);
            assert!(!accepts(&other, "gAAAAA~").await);
        }
        // At most one for each second that the loop took.
        let reloads = meter.take();
        assert!((1..20).contains(&reloads), "{reloads} reloads");
    }
}

/// The status and `Retry-After` of the refusal of a token; `None` if it is accepted.
async fn refusal(identity: &Identity, token: &str) -> Option<(u16, Option<String>)> {
    let mut headers = axum::http::HeaderMap::new();
    headers.insert("x-auth-token", token.parse().unwrap());
    let fault = kilonova_wire::Authenticator::authenticate(identity, &headers).await.err()?;
    let answer = axum::response::IntoResponse::into_response(fault);
    let after = answer.headers().get("retry-after").map(|after| after.to_str().unwrap().to_owned());
    Some((answer.status().as_u16(), after))
}

#[tokio::test]
async fn a_token_that_cannot_be_judged_is_not_called_invalid() {
    for place in places().await {
        let keys = place.keys(&place.store).await.unwrap();
        let one = controller(&place, keys.clone()).await;
        let plan = CrashPlan::at(0, Death::BeforeCommit);
        let dying = place.store.with_crash_plan(plan.clone());
        let other_keys = place.keys(&dying).await.unwrap();
        let other = Identity::open(place.store.clone(), other_keys, options()).await.unwrap();
        let known = login(&one).await;
        let vault = place.vault(&place.store).await.unwrap();
        for _ in 0..2 {
            TokenKeys::rotate(&vault, 3, HOUR).await.unwrap();
        }
        keys.reload().await.unwrap();
        let new = login(&one).await;
        // From now on, every use of `dying` fails.
        let _ = dying.write(|_| Ok::<_, kilonova_store::Error>(())).await;
        assert!(plan.is_dead());
        let unavailable = Some((503, Some("1".to_owned())));
        for _ in 0..3 {
            assert_eq!(refusal(&other, &new).await, unavailable);
        }
        assert_eq!(refusal(&other, &known).await, None, "its key is known");
        assert_eq!(refusal(&other, "no Fernet token").await.unwrap().0, 401);
        assert_eq!(refusal(&one, &new).await, None);
    }
}

/// A flood of tokens that no key validates does not queue behind a slow command, and runs it only
/// once.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_tokens_do_not_wait_for_a_slow_command() {
    for place in places().await {
        let keys = place.keys(&place.store).await.unwrap();
        let one = controller(&place, keys.clone()).await;
        let known = login(&one).await;
        let [key, slow, runs] = ["seal.key", "slow", "runs"].map(|name| place.file(name));
        let command = format!(
            "echo >>{}; test ! -e {} || sleep 4; cat {}",
            runs.display(),
            slow.display(),
            key.display()
        );
        let source = KeySource::Command(command);
        let vault = Vault::open(place.store.clone(), source).await.unwrap();
        let other_keys = TokenKeys::open(vault, Path::new("/nowhere")).await.unwrap();
        let other = Identity::open(place.store.clone(), other_keys, options()).await.unwrap();
        // After the sealing key and the token keys change, the other must run the command again.
        let vault = place.vault(&place.store).await.unwrap();
        vault.add_key().await.unwrap();
        vault.reseal().await.unwrap();
        for _ in 0..2 {
            TokenKeys::rotate(&vault, 3, HOUR).await.unwrap();
        }
        keys.reload().await.unwrap();
        let new = login(&one).await;
        std::fs::write(&slow, "").unwrap();
        std::fs::write(&runs, "").unwrap();
        let begun = std::time::Instant::now();
        let refusals = futures((0..200).map(|_| refusal(&other, &new))).await;
        assert!(refusals.iter().all(|refusal| refusal.as_ref().is_some_and(|one| one.0 == 503)));
        assert!(begun.elapsed() < Duration::from_millis(3500), "{:?}", begun.elapsed());
        assert_eq!(refusal(&other, &known).await, None, "a known key needs no command");
        assert_eq!(std::fs::read_to_string(&runs).unwrap().lines().count(), 1);
        // The command ends, and the next request finds the keys.
        while refusal(&other, &new).await.is_some() {
            assert!(begun.elapsed() < Duration::from_secs(30));
        }
    }
}

#[tokio::test]
async fn a_rotation_keeps_the_keys_of_valid_tokens() {
    for place in places().await {
        place.keys(&place.store).await.unwrap();
        let vault = place.vault(&place.store).await.unwrap();
        for n in 0..4 {
            let rotated = TokenKeys::rotate(&vault, 3, HOUR).await.unwrap();
            assert_eq!((rotated.primary, rotated.deleted), (n + 2, vec![]));
            assert_eq!(rotated.kept.len(), usize::try_from(n).unwrap(), "beyond the limit");
        }
        let rotated = TokenKeys::rotate(&vault, 3, Duration::ZERO).await.unwrap();
        assert_eq!((rotated.primary, rotated.deleted), (6, vec![1, 2, 3, 4]));
        let keys = TokenKeys::list(&place.store).await.unwrap();
        assert_eq!(keys.iter().map(|key| key.number).collect::<Vec<_>>(), [0, 5, 6]);
        assert!(keys[1].retired_at.is_some() && keys[2].retired_at.is_none());
    }
}

#[tokio::test]
async fn a_controller_without_the_sealing_key_is_refused() {
    for place in places().await {
        place.keys(&place.store).await.unwrap();
        let key = place.file("seal.key");
        let kept = std::fs::read_to_string(&key).unwrap();
        std::fs::remove_file(&key).unwrap();
        let said = place.vault(&place.store).await.unwrap_err().to_string();
        assert!(said.contains("copy it from a controller"), "{said}");
        assert!(!key.exists(), "no other key is created");
        private(&key, &kilonova_seal::SealKey::generate().unwrap().line());
        let said = place.vault(&place.store).await.unwrap_err().to_string();
        assert!(said.contains("are sealed with key"), "{said}");
        private(&key, &kept);
        place.keys(&place.store).await.unwrap();
    }
}

/// On a cloud that was never started, an operator's command creates no key file, which would belong
/// to the operator instead of the service.
#[tokio::test]
async fn a_command_before_the_first_start_creates_nothing() {
    for place in places().await {
        let path = place.file("seal.key");
        let source = KeySource::Default(path.clone());
        let refused = async || {
            let opened = Vault::open_existing(place.store.clone(), source.clone()).await;
            let said = opened.expect_err("there are no secrets").to_string();
            assert!(said.contains("start kilonova serve as the user of the service"), "{said}");
        };
        refused().await;
        assert!(!path.exists());
        private(&path, &kilonova_seal::SealKey::generate().unwrap().line());
        refused().await;
        let found = Vault::inspect(&place.store, &source).await.unwrap();
        assert_eq!((found.current, found.secrets, found.problems.len()), (None, 0, 0));
        place.keys(&place.store).await.unwrap();
        Vault::open_existing(place.store.clone(), source.clone()).await.unwrap();
        let found = Vault::inspect(&place.store, &source).await.unwrap();
        assert_eq!((found.secrets, found.keys, found.problems.len()), (2, 1, 0));
        std::fs::remove_file(&path).unwrap();
        let found = Vault::inspect(&place.store, &source).await.unwrap();
        assert!(found.problems[0].to_string().contains("copy it from a controller"));
        assert!(!path.exists());
        private(&path, &kilonova_seal::SealKey::generate().unwrap().line());
        let found = Vault::inspect(&place.store, &source).await.unwrap();
        let [problem] = &found.problems[..] else { panic!("{:?}", found.problems) };
        assert!(problem.to_string().contains("are sealed with key"), "{problem}");
    }
}

#[tokio::test]
async fn the_sealing_key_is_changed_under_way() {
    for place in places().await {
        let keys = place.keys(&place.store).await.unwrap();
        let one = controller(&place, keys.clone()).await;
        let token = login(&one).await;
        let vault = place.vault(&place.store).await.unwrap();
        let new = vault.add_key().await.unwrap();
        let (current, sealed) = vault.list().await.unwrap();
        assert_ne!(current.as_deref(), Some(new.as_str()), "a new key does not seal yet");
        let resealed = vault.reseal().await.unwrap();
        assert_eq!((&resealed.key, resealed.secrets), (&new, sealed.len()));
        let (current, sealed) = vault.list().await.unwrap();
        assert_eq!(current.as_deref(), Some(new.as_str()));
        assert!(sealed.iter().all(|one| one.sealed_with().unwrap() == new));
        // The running controller reads the key file again.
        assert!(keys.reload().await.unwrap());
        assert!(accepts(&one, &token).await);
        // The old key is not needed any more.
        let text = std::fs::read_to_string(place.file("seal.key")).unwrap();
        let last = text.lines().last().unwrap();
        private(&place.file("seal.key"), last);
        let again = controller(&place, place.keys(&place.store).await.unwrap()).await;
        assert!(accepts(&again, &token).await);
    }
}
