//! Sessions: their beginning, their end, and their protection.

use axum::body::Body;
use http::{Method, header};

use crate::browser::Browser;
use crate::cloud::{PASSWORD, clouds};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_begins_and_ends() {
    for cloud in clouds().await {
        let mut browser = Browser::new(&cloud);
        // Without a session, the login page leads back to the requested page.
        let page = browser.get("/dashboard/servers?status=ACTIVE").await;
        page.has_status(200)
            .shows("Password")
            .shows("/dashboard/servers?status=ACTIVE")
            .hides("ended");
        let csrf = page.hidden("csrf");
        let next = page.hidden("next");
        let fields = [("csrf", &*csrf), ("user", "ann"), ("password", PASSWORD), ("next", &*next)];
        let page = browser.post("/dashboard/login", &fields).await;
        page.has_status(200).shows("<h1>Servers</h1>").shows("ann").shows("red");
        assert_eq!(page.at, "/dashboard/servers?status=ACTIVE", "{}", cloud.store);
        assert!(!browser.cookies.contains_key("kilonova-login"), "the login cookie is removed");
        let cookie = browser.cookies["kilonova-session"].clone();
        assert!(cookie.starts_with("kns1:") && cookie.len() < 3900, "{cookie}");
        // No controller keeps the session in memory: successive requests use different ones.
        for _ in 0..4 {
            browser.get("/dashboard/servers").await.has_status(200).shows("ann");
        }
        let bye = browser.submit(&page, "/dashboard/logout", &[]).await;
        bye.has_status(200).shows("You are logged out.");
        assert!(!browser.cookies.contains_key("kilonova-session"));
        let kept = browser.get("/dashboard/login?bye=kept").await;
        kept.shows("could not revoke the token").hides("You are logged out.");
        // A copy of the cookie is worthless: the token is revoked.
        browser.cookies.insert("kilonova-session".into(), cookie);
        browser.get("/dashboard/servers").await.shows("Your session has ended.").shows("Password");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_logins_are_refused_alike() {
    for cloud in clouds().await {
        let mut browser = Browser::new(&cloud);
        for (user, password, project) in [
            ("ann", "wrong", ""),
            ("nobody", PASSWORD, ""),
            ("ann", PASSWORD, "blue"),
            ("", "", ""),
        ] {
            let page = browser.log_in(user, password, project).await;
            page.has_status(401).shows("is wrong").hides(PASSWORD);
            assert!(!browser.cookies.contains_key("kilonova-session"), "{}", cloud.store);
        }
        browser.log_in("nob", PASSWORD, "").await.has_status(401).shows("no role in any project");
        let page = browser.log_in("\"><script>", "x", "").await;
        page.has_status(401).hides("<script>").shows("&quot;&gt;&lt;script&gt;");
        // A form of another browser, a request without a form, and a form that is too large.
        let csrf = Browser::new(&cloud).get("/dashboard/login").await.hidden("csrf");
        browser.get("/dashboard/login").await;
        let fields = [("csrf", &*csrf), ("user", "ann"), ("password", PASSWORD)];
        browser
            .post("/dashboard/login", &fields)
            .await
            .has_status(403)
            .shows("This form has expired");
        let page = browser.once(Method::POST, "/dashboard/login", None).await;
        page.has_status(400).shows("not a form");
        let large = format!("csrf={}", "x".repeat(300_000));
        browser.once(Method::POST, "/dashboard/login", Some(large)).await.has_status(400);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_above_projects_is_explained_at_the_login() {
    for cloud in clouds().await {
        let users = cloud.get("/identity/v3/users?name=nob").await;
        let user = users["users"][0]["id"].as_str().unwrap().to_owned();
        let roles = cloud.get("/identity/v3/roles?name=admin").await;
        let role = roles["roles"][0]["id"].as_str().unwrap().to_owned();
        for above in ["domains/default", "system"] {
            let grant = format!("/identity/v3/{above}/users/{user}/roles/{role}");
            cloud.send(Method::PUT, &grant, "application/json", Body::empty()).await;
            let mut browser = Browser::new(&cloud);
            let page = browser.log_in("nob", PASSWORD, "").await;
            page.has_status(401)
                .shows("Your roles are on the system or the domain")
                .shows("role add");
            page.hides("You have no role in any project");
            // A login with a wrong password does not reveal it.
            let page = browser.log_in("nob", "wrong", "").await;
            page.has_status(401).shows("is wrong").hides("on the system");
            cloud.send(Method::DELETE, &grant, "application/json", Body::empty()).await;
            browser.log_in("nob", PASSWORD, "").await.shows("You have no role in any project");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_leads_to_the_other_pages_projects_and_the_logout() {
    for cloud in clouds().await {
        let mut browser = Browser::of(&cloud, "rob", "red").await;
        for (path, status) in [
            ("/dashboard/launch", 403),
            ("/dashboard/floor", 403),
            ("/dashboard/servers/00000000-0000-0000-0000-000000000000", 404),
        ] {
            let page = browser.get(path).await;
            page.has_status(status)
                .shows("href=\"/dashboard/images\"")
                .shows("/dashboard/projects");
            page.shows("Log out").shows("</span>red").hides("href=\"/dashboard/floor\"");
        }
        let refused = browser.get("/dashboard/launch").await;
        let bye = browser.submit(&refused, "/dashboard/logout", &[]).await;
        bye.has_status(200).shows("You are logged out.");
        // Without a session, the page has no forms that need one.
        let page = browser.get("/dashboard/nothing").await;
        page.has_status(404).hides("Log out").hides("csrf");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_switches_between_projects_and_only_theirs() {
    for cloud in clouds().await {
        let mut browser = Browser::of(&cloud, "bea", "blue").await;
        let page = browser.get("/dashboard/projects").await;
        page.has_status(200)
            .shows("<strong>red</strong>")
            .shows("<strong>blue</strong>")
            .hides("admin");
        let (head, _) = page.html.split_once("<strong>red</strong>").unwrap();
        assert!(head.len() < page.html.len());
        let rest = page.html.split_once("<strong>red</strong>").unwrap().1;
        let id = rest.split_once("name=\"project\" value=\"").unwrap().1;
        let red = id[..id.find('"').unwrap()].to_owned();
        let old = browser.cookies["kilonova-session"].clone();
        let page = browser.submit(&page, "/dashboard/projects", &[("project", &red)]).await;
        page.has_status(200).shows("<h1>Servers</h1>").shows("</span>red");
        // The token of the other project is revoked.
        let new = browser.cookies.insert("kilonova-session".into(), old).unwrap();
        browser.get("/dashboard/servers").await.shows("Password");
        browser.cookies.insert("kilonova-session".into(), new);
        let page = browser.get("/dashboard/projects").await;
        let other = "0".repeat(32);
        browser.submit(&page, "/dashboard/projects", &[("project", &other)]).await.has_status(403);
        browser.get("/dashboard/servers").await.has_status(200).shows("</span>red");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_without_a_project_enters_the_default_project() {
    for cloud in clouds().await {
        let user = cloud.get("/identity/v3/users?name=bea").await;
        let user = format!("/identity/v3/users/{}", user["users"][0]["id"].as_str().unwrap());
        // Bea has roles in the projects red and blue, and none in admin.
        for (default, named, entered) in [
            ("red", "", "red"),
            ("blue", "", "blue"),
            ("blue", "red", "red"),
            ("admin", "", "blue"),
        ] {
            let project = cloud.get(&format!("/identity/v3/projects?name={default}")).await;
            let project = project["projects"][0]["id"].as_str().unwrap();
            let body = format!(r#"{{"user": {{"default_project_id": "{project}"}}}}"#);
            cloud.send(Method::PATCH, &user, "application/json", body.into()).await;
            let mut browser = Browser::new(&cloud);
            let page = browser.log_in("bea", PASSWORD, named).await;
            page.has_status(200).shows(&format!("</span>{entered}")).shows("/dashboard/projects");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_credential_is_a_session_in_its_project() {
    for cloud in clouds().await {
        let token = cloud.login("ann", "red").await;
        let me = cloud.get("/identity/v3/users?name=ann").await;
        let id = me["users"][0]["id"].as_str().unwrap().to_owned();
        let path = format!("/identity/v3/users/{id}/application_credentials");
        let body = r#"{"application_credential": {"name": "robot"}}"#;
        let made =
            cloud.send_as(&token, Method::POST, &path, "application/json", body.into()).await;
        let made = &made["application_credential"];
        let (id, secret) = (made["id"].as_str().unwrap(), made["secret"].as_str().unwrap());
        let mut browser = Browser::new(&cloud);
        let page = browser.get("/dashboard/login?with=credential").await;
        let csrf = page.hidden("csrf");
        let mut fields = [("csrf", &*csrf), ("credential_id", id), ("secret", "wrong")];
        let page = browser.post("/dashboard/login", &fields).await;
        page.has_status(401).shows("application credential is wrong");
        let csrf = page.hidden("csrf");
        fields[0].1 = &csrf;
        fields[2].1 = secret;
        let page = browser.post("/dashboard/login", &fields).await;
        page.has_status(200).shows("<h1>Servers</h1>").shows("red").hides("/dashboard/projects");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forms_of_other_sites_are_refused() {
    for cloud in clouds().await {
        let id = cloud.boot("ann", "one", "f-tiny").await;
        cloud.becomes(&id, "ACTIVE").await;
        let mut browser = Browser::of(&cloud, "ann", "red").await;
        let stop = format!("/dashboard/servers/{id}/actions/stop");
        let delete = format!("/dashboard/servers/{id}/actions/delete");
        for path in
            [&*stop, &*delete, "/dashboard/logout", "/dashboard/projects", "/dashboard/launch"]
        {
            for form in ["", "csrf=", "csrf=00000000000000000000000000000000&name=x"] {
                let page = browser.once(Method::POST, path, Some(form.to_owned())).await;
                page.has_status(403).shows("does not belong to your session");
            }
        }
        // A form of another session of the same user.
        let other = Browser::of(&cloud, "ann", "red").await.get("/dashboard/servers").await;
        browser.submit(&other, &stop, &[]).await.has_status(403);
        cloud.becomes(&id, "ACTIVE").await;
        let page = browser.get("/dashboard/servers").await;
        browser.submit(&page, &stop, &[]).await.has_status(200);
        cloud.becomes(&id, "SHUTOFF").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_named_by_their_content() {
    let cloud = clouds().await.remove(0);
    let mut browser = Browser::new(&cloud);
    let page = browser.get("/dashboard/login").await;
    for (start, media) in
        [("/dashboard/assets/dashboard.", "text/"), ("/dashboard/assets/htmx.", "text/javascript")]
    {
        let at = page.html.find(start).unwrap();
        let path = page.html[at..].split('"').next().unwrap();
        let file = browser.once(Method::GET, path, None).await;
        assert!(file.headers[header::CONTENT_TYPE].to_str().unwrap().starts_with(media), "{path}");
        assert_eq!(file.headers[header::CACHE_CONTROL], "public, max-age=31536000, immutable");
        assert!(file.html.len() > 1000, "the file is not compressed for a client without gzip");
    }
    browser.get("/dashboard/assets/dashboard.css").await.has_status(404);
    browser.get("/dashboard/nothing").await.has_status(404).shows("Not found");
}
