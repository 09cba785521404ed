//! Fence registers, over a real socket.

use crate::world::World;

#[tokio::test]
async fn register_takes_only_tokens_that_rise() {
    let world = World::start().await;
    world.get("/v1/fences/disk/1").await.problem("not_found");
    let accept = |token: u64| format!(r#"{{"fencing_token":{token}}}"#);
    let accepted = world.post("/v1/fences/disk%2F1/accept", &accept(7)).await.ok();
    assert_eq!((&accepted["accepted"], &accepted["high_water"]), (&true.into(), &7.into()));
    world.post("/v1/fences/disk/1/accept", &accept(7)).await.ok();
    let stale = world.post("/v1/fences/disk/1/accept", &accept(6)).await;
    assert_eq!(stale.status, 412);
    assert_eq!(stale.problem("stale_fence")["high_water"], 7);
    assert_eq!(world.get("/v1/fences/disk/1").await.ok()["high_water"], 7);
}

#[tokio::test]
async fn register_refuses_a_token_that_was_never_issued() {
    let world = World::start().await;
    let (_, token) = world.acquire("job", "a").await;
    let accept = |token: u64| format!(r#"{{"fencing_token":{token}}}"#);
    for above in [token + 1, (1 << 53) - 1] {
        let refused = world.post("/v1/fences/disk/accept", &accept(above)).await;
        assert_eq!(refused.status, 400);
        let problem = refused.problem("invalid_request");
        assert_eq!(problem["errors"][0]["field"], "fencing_token");
        assert!(problem["detail"].as_str().unwrap().contains("was never issued"), "{problem}");
    }
    world.get("/v1/fences/disk").await.problem("not_found");
    world.post("/v1/fences/disk/accept", &accept(token)).await.ok();
}

#[tokio::test]
async fn registers_are_listed_page_by_page_and_deleted_with_a_reason() {
    let world = World::start().await;
    for name in ["a", "b%2F1", "c"] {
        world.post(&format!("/v1/fences/{name}/accept"), r#"{"fencing_token":7}"#).await.ok();
    }
    let names = |page: &serde_json::Value| -> Vec<String> {
        let fences = page["fences"].as_array().unwrap();
        fences.iter().map(|fence| fence["name"].as_str().unwrap().to_string()).collect()
    };
    let first = world.get("/v1/fences?page_size=2").await.ok();
    assert_eq!(names(&first), ["a", "b/1"]);
    let token = first["next_page_token"].as_str().unwrap().replace('/', "%2F");
    let second = world.get(&format!("/v1/fences?page_size=2&page_token={token}")).await.ok();
    assert_eq!((names(&second), second.get("next_page_token")), (vec!["c".to_string()], None));
    assert_eq!(names(&world.get("/v1/fences?namespace=other").await.ok()), Vec::<String>::new());
    world.get("/v1/fences?page_token=").await.problem("invalid_request");

    let json = [("content-type", "application/json")];
    let delete = async |body| world.send("DELETE", "/v1/fences/b/1", &json, Some(body)).await;
    delete("{}").await.problem("invalid_request");
    delete(r#"{"reason":""}"#).await.problem("invalid_request");
    let deleted = delete(r#"{"reason":"moved"}"#).await.ok();
    assert_eq!((&deleted["name"], &deleted["high_water"]), (&"b/1".into(), &7.into()));
    delete(r#"{"reason":"moved"}"#).await.problem("not_found");
    assert_eq!(names(&world.get("/v1/fences").await.ok()), ["a", "c"]);
    world.post("/v1/fences/b/1/accept", r#"{"fencing_token":3}"#).await.ok();
}
