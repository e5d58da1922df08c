# A workspace of a Coder template, in a container, that runs workspace-agent in the place of the stock agent.
# What matters are the entrypoint and the variables: an agent needs the control plane's address and its token, and
# nothing of the stock agent's init script.
terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
    docker = {
      source = "kreuzwerker/docker"
    }
  }
}

variable "image" {
  description = "An image with workspace-agent in its PATH, such as that of packaging/container."
  type        = string
  default     = "workspace-agent:latest"
}

data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}

resource "coder_agent" "main" {
  arch = "amd64"
  os   = "linux"
}

resource "docker_container" "workspace" {
  count = data.coder_workspace.me.start_count
  name  = "coder-${data.coder_workspace_owner.me.name}-${lower(data.coder_workspace.me.name)}"
  image = var.image

  # In the place of ["sh", "-c", coder_agent.main.init_script], which downloads and starts the stock agent.
  entrypoint = ["workspace-agent", "agent"]
  env = [
    "CODER_AGENT_URL=${data.coder_workspace.me.access_url}",
    "CODER_AGENT_TOKEN=${coder_agent.main.token}",
  ]
}
