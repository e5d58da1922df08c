# A workspace of a Coder template, in a container, that runs workspace-agent in the place of the stock agent.
# It fetches the single file, which needs nothing of the image. What matters is the entrypoint: an agent needs the control
# plane's address and its token, and nothing of the stock agent's init script.
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
  description = "Any image with a shell, and curl or wget."
  type        = string
  default     = "alpine:latest"
}

variable "binary_url" {
  description = "Where workspace-agent-VERSION-linux-ARCH.run is."
  type        = string
}

variable "sha256" {
  description = "Its hash, as in the .sha256 file beside it."
  type        = string
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

  # In the place of coder_agent.main.init_script, which downloads and starts the stock agent.
  entrypoint = ["sh", "-c", templatefile("${path.module}/init.sh.tftpl", {
    url        = data.coder_workspace.me.access_url
    token      = ""
    binary_url = var.binary_url
    sha256     = var.sha256
  })]
  # Not in the command line, which other users of the container may read.
  env = ["CODER_AGENT_TOKEN=${coder_agent.main.token}"]
}
