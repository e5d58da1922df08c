extension JSONShape {
    /// coder.agent.v2.Manifest (docs/contracts/agent-api.md#manifest).
    static let manifest = JSONShape.message([
        "agentId": .uuid,
        "gitAuthConfigs": .int(0...Int64(UInt32.max)),
        "environmentVariables": .map(.string),
        "directory": .string,
        "vsCodePortProxyUri": .string,
        "motdPath": .string,
        "disableDirectConnections": .bool,
        "derpForceWebsockets": .bool,
        "derpMap": .anything,
        "scripts": .list(script),
        "apps": .list(app),
        "metadata": .list(metadata),
        "ownerUsername": .string,
        "workspaceId": .uuid,
        "agentName": .string,
        "workspaceName": .string,
        "devcontainers": .list(devcontainer),
        "parentId": .uuid,
        "secrets": .list(secret),
    ])

    private static let script = JSONShape.message([
        "logSourceId": .uuid,
        "logPath": .string,
        "script": .string,
        "cron": .string,
        "runOnStart": .bool,
        "runOnStop": .bool,
        "startBlocksLogin": .bool,
        "timeout": .duration,
        "displayName": .string,
        "id": .uuid,
    ])

    private static let app = JSONShape.message([
        "id": .uuid,
        "url": .string,
        "external": .bool,
        "slug": .string,
        "displayName": .string,
        "command": .string,
        "icon": .string,
        "subdomain": .bool,
        "subdomainName": .string,
        "sharingLevel": .enumeration([
            "SHARING_LEVEL_UNSPECIFIED", "OWNER", "AUTHENTICATED", "PUBLIC", "ORGANIZATION",
        ]),
        "healthcheck": .message([
            "url": .string, "interval": .duration, "threshold": .int(0...Int64(Int32.max)),
        ]),
        "health": .enumeration(["HEALTH_UNSPECIFIED", "DISABLED", "INITIALIZING", "HEALTHY", "UNHEALTHY"]),
        "hidden": .bool,
    ])

    private static let metadata = JSONShape.message([
        "displayName": .string,
        "key": .string,
        "script": .string,
        "interval": .duration,
        "timeout": .duration,
    ])

    private static let devcontainer = JSONShape.message([
        "id": .uuid,
        "workspaceFolder": .string,
        "configPath": .string,
        "name": .string,
        "subagentId": .uuid,
    ])

    private static let secret = JSONShape.message([
        "envName": .string,
        "filePath": .string,
        "value": .bytes,
    ])
}
