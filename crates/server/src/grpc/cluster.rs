//! The servers' state and version.

use std::sync::Arc;

use leasehold_api::grpc::cluster_server::Cluster;
use leasehold_api::grpc::{ClusterState, GetClusterRequest, GetVersionRequest, Version};
use tonic::{Request, Response, Status};

use super::opened;
use crate::convert;
use crate::service::app::App;

pub(super) struct Service(pub(super) Arc<App>);

#[tonic::async_trait]
impl Cluster for Service {
    async fn get(
        &self,
        request: Request<GetClusterRequest>,
    ) -> Result<Response<ClusterState>, Status> {
        let (app, (caller, _)) = (&self.0, opened(request));
        let view = app.cluster(&caller).await;
        let cluster = convert::cluster(app.now(), &app.name, &app.address, view);
        Ok(Response::new((&cluster).into()))
    }

    async fn get_version(
        &self,
        _: Request<GetVersionRequest>,
    ) -> Result<Response<Version>, Status> {
        let version = convert::version();
        Ok(Response::new(Version {
            name: version.name,
            version: version.version,
            api: version.api,
        }))
    }
}
