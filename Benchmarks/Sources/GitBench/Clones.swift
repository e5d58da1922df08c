import Glibc

/// Clones of 60 MB through `gitssh` against plain ssh, in turn, from a real sshd on loopback. A file server has the key
/// where the control plane would.
func benchClones(_ binary: String) throws {
    var template = Array("/tmp/wa-gitbench-XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else { throw Failure(text: "mkdtemp") }
    let directory = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    let (sshPort, webPort) = (20_000 + Int(getpid() % 20_000), 40_000 + Int(getpid() % 20_000))
    defer { _ = system("kill $(cat \(directory)/pids); rm -rf \(directory)") }
    try shell(
        """
        set -e; cd \(directory)
        ssh-keygen -q -t ed25519 -N '' -f host; ssh-keygen -q -t ed25519 -N '' -C '' -f key
        mkdir -p home/.ssh bin web/api/v2/workspaceagents/me; cp key.pub authorized
        printf 'HostKey %s/host\\nAuthorizedKeysFile %s/authorized\\nPidFile none\\nStrictModes no\\nUsePAM no\\n' $PWD $PWD >sshd
        echo "[127.0.0.1]:\(sshPort) $(cut -d' ' -f1,2 host.pub)" >home/.ssh/known_hosts
        python3 -c 'import json;print(json.dumps({"public_key":open("key.pub").read(),"private_key":open("key").read()}))' \
            >web/api/v2/workspaceagents/me/gitsshkey
        for name in git sh env; do ln -s $(command -v $name) bin/; done
        [ $(id -u) != 0 ] || mkdir -p /run/sshd
        /usr/sbin/sshd -D -f sshd -o ListenAddress=127.0.0.1 -p \(sshPort) & echo $! >pids
        python3 -m http.server --bind 127.0.0.1 --directory web \(webPort) >/dev/null 2>&1 & echo $! >>pids
        git init -q work; head -c 62914560 /dev/urandom >work/random
        git -C work add .; git -C work -c user.name=a -c user.email=a@b commit -qm all; git clone -q --bare work repo.git
        """)
    let clone = "git clone -q ssh://$(id -un)@127.0.0.1:\(sshPort)\(directory)/repo.git \(directory)/copy"
    let known = "-o UserKnownHostsFile=\(directory)/home/.ssh/known_hosts"
    let environment = """
        env HOME=\(directory)/home GIT_SSH_VARIANT=ssh CODER_AGENT_URL=http://127.0.0.1:\(webPort) \
        CODER_AGENT_TOKEN=t no_proxy=127.0.0.1
        """
    let ways = [
        ("plain ssh", "GIT_SSH_COMMAND='ssh \(known) -i \(directory)/key'"),
        ("gitssh with ssh", "GIT_SSH_COMMAND='\(binary) gitssh -- \(known)'"),
        ("gitssh with libssh2", "PATH=\(directory)/bin GIT_SSH_COMMAND='\(binary) gitssh -- \(known)'"),
    ]
    var times = [[Double]](repeating: [], count: ways.count)
    for round in 0..<8 {
        for (index, way) in ways.enumerated() {
            let time = try shell("\(environment) \(way.1) \(clone)")
            // The first round fills caches.
            if round > 0 { times[index].append(time) }
            try shell("rm -rf \(directory)/copy")
        }
    }
    print("clone of 60 MB over ssh")
    for (index, way) in ways.enumerated() {
        let ratio = Double(Int(median(times[index]) / median(times[0]) * 100)) / 100
        print("  \(way.0), median of 7: \(ms(median(times[index])))  = \(ratio) x")
    }
}
