//! Who decides, which version this is.

use std::sync::Arc;

use leasehold_api::grpc::cluster_server::Cluster;
use leasehold_api::grpc::{ClusterState, GetClusterRequest, GetVersionRequest, Version};
use tonic::{Request, Response, Status};

use crate::http::health;
use crate::service::app::App;

pub(super) struct Service(pub(super) Arc<App>);

#[tonic::async_trait]
impl Cluster for Service {
    async fn get(&self, _: Request<GetClusterRequest>) -> Result<Response<ClusterState>, Status> {
        let cluster = health::cluster_now(&self.0).await;
        Ok(Response::new((&cluster).into()))
    }

    async fn get_version(
        &self,
        _: Request<GetVersionRequest>,
    ) -> Result<Response<Version>, Status> {
        let version = health::version_now();
        Ok(Response::new(Version {
            name: version.name,
            version: version.version,
            api: version.api,
        }))
    }
}
